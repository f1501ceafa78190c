"""What the planner is told is what the picture shows, from discovery to the waiting work."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench._device_list import list_devices
from kaiwo.decide import decide
from kaiwo.devices.discover import discover
from kaiwo.explain import obstacles_of
from kaiwo.explain.obstacle_sentences import remedy, sentence
from kaiwo.gpus.partitioning.demand import GpuModeState, node_states, waiting_demands
from kaiwo.gpus.partitioning.pending_mode_change import close_for_change
from kaiwo.gpus.partitioning.planner import plan_partitions
from kaiwo.gpus.partitioning.planner_types import UNKNOWN_S, GpuState, ModeDemand, NodeState, PodSize, Tenant
from kaiwo.model.events import NodeChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode, partition_milli
from kaiwo.model.node import Node
from kaiwo.model.obstacle import ClosestNode, Reason
from kaiwo.model.request import Request
from kaiwo.runtime.nodes.local_node import node_of
from tests.devices.amd_trees import Box, write_box
from tests.worlds import World

SPX, CPX = Mode("SPX", "NPS1"), Mode("CPX", "NPS1")
PART = Request(gpus=1, partition="CPX")


def cut(name: str, mode: str = "CPX+NPS1") -> list[Gpu]:
    return [Gpu(f"{name}-p{at}", "MI300X", 24_576, True, "", name, mode, partition_milli(at, 8)) for at in range(8)]


def node(name: str, *gpus: Gpu) -> NodeChanged:
    return NodeChanged(Node(name, cpu_milli=10**6, memory_mib=10**6, gpus=gpus))


def fleet(world: World, ongoing: dict[tuple[str, str], GpuModeState] | None = None) -> list[NodeState]:
    return node_states(world.state, ongoing or {}, world.now_s)


def test_waiting_work_is_told_by_what_it_asks_for() -> None:
    world = World(nodes=0)
    world.now_s = 100
    world.submit("gang", pods=8, gpus_each=1, submitted_s=40).submit("node", gpus_each=8, submitted_s=90)
    world.submit("part", request=PART).submit("exact", request=Request(gpus=2, partition="CPX+NPS4"))
    world.submit("any", request=Request(gpus=1, partition="any"), models=())
    for number in range(3):
        world.submit(f"half-{number}", fraction_milli=500)
    world.submit("memory", memory_mib=5_000).submit("cpu", cpu_milli=10)
    world.submit("mig", request=Request(gpus=1, partition="1g.10gb"))
    needs = sorted(
        waiting_demands(world.state, world.now_s), key=lambda need: (need.compute, need.memory, -need.waited_s)
    )
    assert all(sum(size.count for size in need.sizes) == need.count for need in needs)
    assert [replace(need, sizes=()) for need in needs] == [
        ModeDemand("CPX", "", 1, 2),  # who asks for the same, and has waited about as long, is told together
        ModeDemand("CPX", "NPS4", 2, 1),
        ModeDemand("SPX", "", 1, 8, 60),
        ModeDemand("SPX", "", 8, 1, 10),
        ModeDemand("SPX", "", 1, 2 + 1, is_share=True),  # GPUs, on which all of them find room
    ]


def test_what_pods_ask_for_beside_gpus_is_told_by_size_and_does_not_make_more_kinds() -> None:
    world = World(nodes=0).tell(NodeChanged(Node("n", 8_000, 1_000, pods=9, extended={"rdma": 4, "fpga": 1})))
    for name, cpu_milli in (("a", 100), ("b", 100), ("c", 300)):
        world.submit(name, request=Request(cpu_milli, 50, 1, partition="CPX", extended=(("rdma", 2),)))
    (need,) = waiting_demands(world.state, 0)
    assert sorted(need.sizes, key=lambda size: size.count) == [
        PodSize((300, 50, 1, 0, 2), 1), PodSize((100, 50, 1, 0, 2), 2),
    ]  # fmt: skip
    world.submit("third", request=Request(cpu_milli=10, gpus=1, gpu_milli=300))
    shares = next(need for need in waiting_demands(world.state, 0) if need.is_share)
    assert shares.sizes == (PodSize((10, 0, 1, 0, 0), 1, sharers=3),)


def test_what_is_free_beside_the_gpus_and_what_goes_with_their_work_is_told() -> None:
    wholes = [Gpu(f"gpu-{at}", "MI300X", 196_608) for at in (1, 2)]
    world = World(nodes=0).tell(NodeChanged(Node("n", 8_000, 1_000, pods=9, gpus=(*cut("gpu-0"), *wholes))))
    for number in range(2):
        world.submit(f"part-{number}", request=Request(100, 10, 1, partition="CPX"))
    world.submit("pair", request=Request(300, 30, 2)).submit("cpu", request=Request(1_000, 100))
    world.settle()
    (found,) = fleet(world)
    assert found.free == (8_000 - 200 - 300 - 1_000, 1_000 - 20 - 30 - 100, 9 - 4)
    assert sorted(found.tenants, key=lambda tenant: tenant.gpus) == [
        Tenant(("gpu-0",), (200, 20, 2)), Tenant(("gpu-1", "gpu-2"), (300, 30, 1)),
    ]  # fmt: skip


def test_who_has_waited_much_longer_is_told_apart() -> None:
    world = World(nodes=0)
    world.now_s = 5_000
    for cpu_milli, submitted_s in ((1, 100), (2, 4_990), (3, 4_995)):
        request = Request(cpu_milli=cpu_milli, gpus=1, partition="CPX")
        world.submit(f"job-{cpu_milli}", request=request, submitted_s=submitted_s)
    assert sorted(need.waited_s for need in waiting_demands(world.state, world.now_s)) == [10, 4_900]


def test_where_it_may_go_and_whether_its_queue_lets_it_are_asked() -> None:
    world = World(nodes=0)
    world.submit("part", request=PART)
    (need,) = waiting_demands(world.state, 0, open_to=lambda want, pods: frozenset({"a"}))
    assert need.nodes == {"a"}
    assert waiting_demands(world.state, 0, may_start=lambda waiting: False) == []


def test_who_waits_for_a_reservation_waits_for_no_mode() -> None:
    world = World(nodes=0).tell(node("n", *(Gpu(f"gpu-{at}", "MI300X", 196_608) for at in range(8))))
    world.submit("named", gpus_each=4, reservation="over").settle()
    assert waiting_demands(world.state, world.now_s) == []


def test_what_runs_is_told_by_when_it_ends_and_what_would_be_lost() -> None:
    world = World(nodes=0).tell(node("n", *cut("gpu-0"), *cut("gpu-1"), Gpu("gpu-2", "MI300X", 196_608)))
    world.submit("short", request=PART, time_limit_s=600).submit("long", request=PART, time_limit_s=1_800)
    world.settle()
    world.submit("whole", gpus_each=1)
    world.settle()
    world.now_s = 100
    (found,) = fleet(world)
    assert found.model == "MI300X"
    first, second, third = found.gpus
    idle = ((1_700 - 500) + 6 * 1_700) // 8
    assert first == GpuState("gpu-0", CPX, 2, 1_700, idle)
    assert second == GpuState("gpu-1", CPX)
    assert (third.mode, third.used, third.free_in_s) == (SPX, 1, UNKNOWN_S)


def test_a_node_whose_gpus_all_change_shows_no_devices_and_is_still_counted_on() -> None:
    world = World(nodes=0).tell(node("n"), node("m", Gpu("gpu-0", "MI300X", 196_608)))
    world.submit("part", request=PART)
    ongoing = {("n", "gpu-0"): GpuModeState("MI300X", SPX, 0, CPX, is_changing=True)}
    plan = plan_partitions(1_000, fleet(world, ongoing), waiting_demands(world.state, 0))
    assert (plan.steps, plan.unserved) == ((), ())
    assert len(plan_partitions(1_000, fleet(world), waiting_demands(world.state, 0)).steps) == 1


def test_a_change_that_has_just_ended_counts_before_the_picture_shows_it() -> None:
    """Else a second GPU would change for the same work."""
    first = close_for_change(Gpu("gpu-0", "MI300X", 196_608), CPX, is_changing=True)
    world = World(nodes=0).tell(node("n", first, Gpu("gpu-1", "MI300X", 196_608))).submit("part", request=PART)
    over = {("n", "gpu-0"): GpuModeState("MI300X", CPX, 990)}
    (found,) = fleet(world, over)
    assert [gpu.mode for gpu in found.gpus] == [CPX, SPX]
    plan = plan_partitions(1_000, [found], waiting_demands(world.state, 0))
    assert (plan.steps, plan.unserved) == ((), ())


def test_nodes_that_take_no_work_and_gpus_that_cannot_be_cut_are_left_out() -> None:
    world = World(nodes=0).node("cordoned", cordoned=True).node("down", ready=False).node("old", model="MI210")
    world.tell(node("mixed", Gpu("gpu-0", "MI210", 65_536), Gpu("gpu-1", "MI300X", 196_608)))
    (found,) = fleet(world)
    assert (found.name, [gpu.id for gpu in found.gpus]) == ("mixed", ["gpu-1"])


def test_a_discovered_machine_in_cpx_serves_partitions_by_the_same_ledger(tmp_path: Path) -> None:
    """63 devices, as real nodes show: each has its own part, and the one that does not show is nobody's."""
    box = Box(gpus=8, compute="CPX", memory="NPS4", lost=((7, 7),))
    found = node_of(discover(str(write_box(tmp_path, box))))
    assert found is not None
    assert len(found.gpus) == 63
    assert {gpu.profile for gpu in found.gpus} == {"CPX+NPS4"}
    assert len({gpu.parent for gpu in found.gpus}) == 8
    assert sum(gpu.milli for gpu in found.gpus) == 8_000 - 125
    assert found.wiring.speed(0, 1) > found.wiring.speed(0, 63 - 1) > 0
    world = World(nodes=0).tell(NodeChanged(found))
    world.submit("pair", request=Request(gpus=2, partition="CPX+NPS4")).submit("whole", gpus_each=1)
    world.settle()
    assert len(world.devices_of("pair")) == 2
    assert not world.is_running("whole")
    assert world.state.used["default"][0] == 250
    listed = list_devices(world.state.nodes)
    assert len(listed) == 63
    assert int(listed.free_milli.sum()) == 8_000 - 125 - 250
    assert set(listed.nodes) == {found.name}


@pytest.mark.parametrize("mode", ["SPX", "CPX"])
def test_the_listing_says_what_each_device_is_and_has(mode: str) -> None:
    world = World(nodes=0)
    gpus = cut("gpu-0") if mode == "CPX" else [Gpu("gpu-0", "MI300X", 196_608)]
    world.tell(node("b", *gpus), node("a", Gpu("x", "H100", 81_920, False)))
    world.submit("half", fraction_milli=500, memory_mib=0).submit("part", request=PART)
    assert decide(world.snapshot()).starts
    world.settle()
    listed = list_devices(world.state.nodes)
    assert (listed.nodes[0], listed.ids[0], listed.models[0], listed.usable[0]) == ("a", "x", "H100", 0)
    assert list(listed.ids[1:]) == [gpu.id for gpu in gpus]
    assert listed.free_milli[1] == (0 if mode == "CPX" else 500)
    assert listed.free_mib[1] == (0 if mode == "CPX" else 98_304)


def test_work_that_only_another_mode_serves_says_so() -> None:
    world = (
        World(nodes=2, gpus_per_node=3)
        .submit("part", request=PART)
        .submit("tpx", request=Request(gpus=1, partition="TPX"))
    )
    world.settle()
    assert world.why("part") == [Reason.PARTITION_MODE]
    assert world.why("tpx") == [Reason.PARTITION_MODE]
    (told,) = obstacles_of(world.state, "default/tpx", world.policy, 0)
    assert sentence(told) == "no GPU in this cluster supports TPX mode: MI300X supports SPX, DPX, QPX, CPX"
    assert remedy(told) == "ask for a mode that the GPUs support; waiting does not help"
    (told,) = obstacles_of(world.state, "default/part", world.policy, 0)
    assert sentence(told) == "no GPU is in CPX mode, but 6 GPUs could change"
    world.tell(node("cut", *cut("gpu-0")))
    world.settle()
    assert world.is_running("part")
    only_cut = World(nodes=0).tell(node("n", *cut("gpu-0"), *cut("gpu-1"))).submit("whole", gpus_each=1)
    only_cut.settle()
    (told,) = obstacles_of(only_cut.state, "default/whole", only_cut.policy, 0)
    assert sentence(told) == "no GPU is in SPX mode, but 2 GPUs could change"


def test_a_node_that_lacks_the_mode_alone_is_told_so_beside_one_that_lacks_cpus() -> None:
    wholes = [Gpu(f"gpu-{at}", "MI300X", 196_608) for at in range(1, 8)]
    world = World(nodes=0).tell(
        NodeChanged(Node("cut", 192_000, 10**6, gpus=(*cut("gpu-0"), *wholes))),
        NodeChanged(Node("whole", 192_000, 10**6, gpus=tuple(wholes))),
    )
    for name in ("first", "second"):
        world.submit(name, request=Request(cpu_milli=100_000, gpus=1, partition="CPX"))
    world.settle()
    assert (world.is_running("first"), world.is_running("second")) == (True, False)
    mode, cpus, *_ = obstacles_of(world.state, "default/second", world.policy, 0)
    assert sentence(mode) == (
        "it needs 1 device in CPX mode on one node, but whole has 0 devices in that mode now; "
        "its other GPUs could change to it"
    )
    assert (cpus.reason, cpus.facts, cpus.have) == (Reason.NOT_ENOUGH_CPU, ClosestNode("cut"), 92_000)


def test_a_mode_that_somebody_else_changed_is_believed() -> None:
    world = World(nodes=0).tell(node("n", *cut("gpu-0")))
    (found,) = node_states(world.state, {("n", "gpu-0"): GpuModeState("MI300X", Mode("SPX", "NPS1"), 50)}, 100)
    assert (found.gpus[0].mode.compute, found.gpus[0].since_s < 0) == ("CPX", True)
    (found,) = node_states(world.state, {("n", "gpu-9"): GpuModeState("MI300X", Mode("SPX", "NPS1"), 50)}, 100)
    assert [gpu.id for gpu in found.gpus] == ["gpu-0"]  # the other was taken out of the machine
