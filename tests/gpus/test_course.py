"""A plan is followed step by step: closed, changed, open again."""

import pytest
from msgspec.structs import replace

from kaiwo.clusters.ledger import NodeUsage, keep_devices_in_use
from kaiwo.gpus.partitioning.demand import GpuModeState, node_states, waiting_demands
from kaiwo.gpus.partitioning.pending_mode_change import PendingChange, close_for_change, pending_change, reopen
from kaiwo.gpus.partitioning.planner import plan_partitions
from kaiwo.gpus.partitioning.rollout import (
    change_done,
    changed_nodes,
    changes_starting,
    states_after,
    with_closed_devices,
    with_modes_applied,
)
from kaiwo.model.events import NodeChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from tests.worlds import World

SPX, CPX = Mode("SPX", "NPS1"), Mode("CPX", "NPS1")
Course = dict[tuple[str, str], GpuModeState]


def whole(*numbers: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in numbers)


def machine(*gpus: Gpu) -> Node:
    return Node("n", cpu_milli=10**6, memory_mib=10**6, gpus=gpus)


def plan(world: World, course: Course, now_s: int) -> Course:
    nodes = node_states(world.state, course, now_s)
    return states_after(nodes, plan_partitions(now_s, nodes, waiting_demands(world.state, now_s)))


def test_an_idle_gpu_is_cut_for_who_waits_and_serves_when_it_is_done() -> None:
    world = World(nodes=0).tell(NodeChanged(machine(*whole(0, 1))))
    world.submit("part", request=Request(gpus=1, partition="CPX")).settle()
    course = plan(world, {}, 1_000)
    assert changes_starting({}, course) == [("n", "gpu-0")]
    assert changed_nodes({}, course) == ["n"]
    world.tell(NodeChanged(with_closed_devices(machine(*whole(0, 1)), course)))
    changes = [pending_change(gpu) for gpu in world.state.node_objects["n"].gpus]
    assert changes == [PendingChange("changing", CPX), None]  # shown, and not ill
    again = plan(world, course, 1_030)
    assert changes_starting(course, again) == []  # it is on its way
    course = {("n", "gpu-0"): change_done(again["n", "gpu-0"], 1_060)}
    assert course["n", "gpu-0"] == GpuModeState("MI300X", CPX, 1_060)
    world.tell(NodeChanged(with_closed_devices(machine(*partition_gpu(whole(0)[0], CPX), *whole(1)), course)))
    world.settle()
    assert world.devices_of("part") == ["n/gpu-0-p0"]
    assert plan(world, course, 1_100) == course


def test_a_gpu_in_use_is_closed_its_work_ends_and_then_it_changes() -> None:
    parts = partition_gpu(whole(0)[0], CPX)
    world = World(nodes=0).tell(NodeChanged(machine(*parts)))
    world.submit("old", request=Request(gpus=1, partition="CPX"), time_limit_s=600).settle()
    world.submit("whole", gpus_each=1).settle()
    course = plan(world, {}, 100)
    assert (course["n", "gpu-0"].goal, course["n", "gpu-0"].is_changing) == (SPX, False)
    world.tell(NodeChanged(with_closed_devices(machine(*parts), course)))
    assert {gpu.reason for gpu in world.state.node_objects["n"].gpus} == {
        "closed to new work until it is idle: it changes to SPX+NPS1"
    }
    world.submit("new", request=Request(gpus=1, partition="CPX")).settle()
    assert not world.is_running("new")
    assert world.is_running("old")
    world.finish("old")
    assert changes_starting(course, plan(world, course, 200)) == [("n", "gpu-0")]  # `whole` came before `new`


@pytest.mark.parametrize("is_changing", [False, True])
def test_a_pending_change_is_read_from_its_fields_and_from_the_reason_that_0_1_0_wrote(is_changing: bool) -> None:
    gpu = whole(0)[0]
    closed = close_for_change(gpu, CPX, is_changing)
    assert pending_change(replace(closed, reason="reworded")) == pending_change(closed)
    assert reopen(closed) == gpu
    before = Gpu(gpu.id, gpu.model, gpu.memory_mib, False, closed.reason)
    assert pending_change(before) == PendingChange("changing" if is_changing else "draining", CPX)
    assert reopen(before) == gpu


def test_another_problem_is_no_pending_change() -> None:
    for reason in ("too many ECC errors", "its partition mode is being changed to something"):
        broken = replace(whole(0)[0], healthy=False, reason=reason)
        assert pending_change(broken) is None
        assert reopen(broken) is broken


def test_a_device_that_vanishes_in_a_change_waits_for_none() -> None:
    closed = close_for_change(whole(0)[0], CPX, True)
    usage = NodeUsage()
    usage.devices[closed.id] = (1000, 0)
    kept = keep_devices_in_use(machine(), machine(closed), usage).gpus
    assert [(gpu.id, gpu.healthy, pending_change(gpu)) for gpu in kept] == [(closed.id, False, None)]


def test_who_gives_up_opens_the_gpu_again() -> None:
    parts = partition_gpu(whole(0)[0], CPX)
    world = World(nodes=0).tell(NodeChanged(machine(*parts)))
    world.submit("old", request=Request(gpus=1, partition="CPX"), time_limit_s=600).settle()
    world.submit("whole", gpus_each=1).settle()
    course = plan(world, {}, 100)
    world.finish("whole")
    after = plan(world, course, 160)
    assert changed_nodes(course, after) == ["n"]
    assert with_closed_devices(machine(*parts), after) == machine(*parts)


def test_a_gpu_that_shows_no_device_while_it_changes_is_shown_in_its_new_mode() -> None:
    states = {("n", "gpu-1"): GpuModeState("MI300X", CPX, 0), ("other", "gpu-7"): GpuModeState("MI300X", CPX, 0)}
    node = with_modes_applied(machine(*whole(0)), states, {("n", "gpu-1"): 196_608})
    assert node.gpus == (*whole(0), *partition_gpu(Gpu("gpu-1", "MI300X", 196_608), CPX))
