"""The planner knows that pods share a node's CPUs, memory and slots: devices without those serve nobody."""

import random

import pytest

from kaiwo.gpus.partitioning.planner import could_serve, plan_partitions
from kaiwo.gpus.partitioning.planner_types import GpuState, ModeDemand, NodeResources, NodeState, PodSize, Tenant
from kaiwo.model.gpus.partition_modes import Mode, partition_count
from tests.gpus.test_planner import CPX, DAY_S, SPX, gpus, named

EMPTY = (192_000, 2_000_000, 110)
WIDE = (100_000, 1_000, 1)  # of these a node has room for one


def node(name: str, *parts: GpuState, free: NodeResources = EMPTY, tenants: tuple[Tenant, ...] = ()) -> NodeState:
    return NodeState(name, "MI300X", parts, "bare-metal", free, tenants)


def need(
    amounts: NodeResources, count: int = 1, compute: str = "CPX", devices: int = 1, waited_s: int = 0
) -> ModeDemand:
    return ModeDemand(compute, devices=devices, count=count, waited_s=waited_s, sizes=(PodSize(amounts, count),))


@pytest.mark.parametrize("amounts", [WIDE, (1_000, 1_500_000, 1), (1_000, 1_000, 60)])
def test_nodes_are_cut_for_as_many_pods_as_find_room_there(amounts: NodeResources) -> None:
    fleet = [node(f"node-{number}", *gpus(8, SPX)) for number in (1, 2, 3)]
    plan = plan_partitions(DAY_S, fleet, [need(amounts, 24)])
    assert sorted(named(plan)) == ["node-1/gpu-0", "node-2/gpu-0", "node-3/gpu-0"]
    assert plan.unserved == (need(amounts, 21),)


def test_free_partitions_without_cpus_serve_nobody_and_another_node_is_cut() -> None:
    full = node("a", *gpus(1, CPX, used=1), *gpus(8, SPX)[1:], free=(92_000, 10**6, 100))
    plan = plan_partitions(DAY_S, [full, node("b", *gpus(8, SPX))], [need(WIDE, 5)])
    assert list(named(plan)) == ["b/gpu-0"]
    assert plan.unserved == (need(WIDE, 4),)


def test_what_a_change_under_way_will_bring_is_capped_too() -> None:
    coming = node("a", GpuState("gpu-0", SPX, goal=CPX, is_changing=True))
    plan = plan_partitions(DAY_S, [coming, node("b", *gpus(2, SPX))], [need(WIDE, 2)])
    assert list(named(plan)) == ["b/gpu-0"]
    assert plan.unserved == ()


def test_a_gpu_is_not_changed_for_work_that_never_fits_beside_what_stays() -> None:
    others = node("a", *gpus(8, SPX), free=(60_000, 10**6, 100))  # pods without GPUs hold the rest
    plan = plan_partitions(DAY_S, [others], [need(WIDE)])
    assert (plan.steps, plan.unserved) == ((), (need(WIDE),))
    assert not could_serve([others], need(WIDE))
    assert could_serve([others], need((60_000, 1, 1)))


def test_the_gpu_drains_whose_work_leaves_room_behind() -> None:
    parts = (GpuState("gpu-0", SPX), GpuState("gpu-1", SPX, used=1, free_in_s=300), GpuState("gpu-2", SPX))
    busy = node("a", *parts, free=(60_000, 10**6, 100), tenants=(Tenant(("gpu-1",), (90_000, 1_000, 1)),))
    plan = plan_partitions(DAY_S, [busy], [need(WIDE)])
    assert list(named(plan)) == ["a/gpu-1"]
    assert not plan.steps[0].is_due
    assert could_serve([busy], need(WIDE))
    again = node(
        "a", parts[0], GpuState("gpu-1", SPX, used=1, free_in_s=200, goal=CPX), parts[2],
        free=(60_000, 10**6, 100), tenants=busy.tenants,
    )  # fmt: skip
    assert named(plan_partitions(DAY_S, [again], [need(WIDE)])) == named(plan)  # and it goes on


def test_a_pod_that_could_start_now_does_not_count_on_what_a_drain_will_free() -> None:
    parts = (GpuState("gpu-0", CPX), GpuState("gpu-1", SPX, used=1, free_in_s=9_000, goal=CPX))
    draining = node("a", *parts, free=(60_000, 10**6, 100), tenants=(Tenant(("gpu-1",), (90_000, 1_000, 1)),))
    small = need((50_000, 1_000, 1), 1, waited_s=50)
    plan = plan_partitions(DAY_S, [draining, node("b", *gpus(2, SPX))], [small, need(WIDE, 2)])
    assert sorted(named(plan)) == ["a/gpu-1", "b/gpu-0"]
    assert plan.unserved == ()


def test_a_pod_counts_on_the_cpus_of_a_draining_gpu_only_if_it_will_use_that_gpu() -> None:
    parts = (GpuState("gpu-0", CPX), GpuState("gpu-1", CPX, used=1, free_in_s=9_000, goal=Mode("DPX", "NPS1")))
    draining = node("a", *parts, free=(60_000, 10**6, 100), tenants=(Tenant(("gpu-1",), (90_000, 1_000, 1)),))
    waiting = ModeDemand("DPX", count=1, sizes=(PodSize((1_000, 1_000, 1), 1),))
    plan = plan_partitions(DAY_S, [draining], [waiting, need(WIDE)])
    assert list(named(plan)) == ["a/gpu-1"]
    assert plan.unserved == (need(WIDE),)


def test_work_on_two_gpus_leaves_its_cpus_once() -> None:
    tenants = (Tenant(("gpu-0", "gpu-1"), (90_000, 1_000, 1)),)
    pair = node("a", *gpus(2, SPX, used=1, free_in_s=60), free=(60_000, 10**6, 100), tenants=tenants)
    plan = plan_partitions(DAY_S, [pair], [need((70_000, 1_000, 1), 3)])
    assert len(plan.steps) == 1
    assert plan.unserved == (need((70_000, 1_000, 1), 1),)


def test_of_shares_as_many_find_room_on_a_gpu_as_there_are_cpus_for() -> None:
    size = PodSize((100_000, 0, 1), 4, sharers=2)
    shares = ModeDemand("SPX", count=4, is_share=True, sizes=(size,))
    cut = [node(name, *gpus(2, CPX)) for name in "abc"]
    plan = plan_partitions(DAY_S, cut, [shares])
    assert sorted(named(plan)) == ["a/gpu-0", "b/gpu-0", "c/gpu-0"]
    assert plan.unserved[0].count == 1


def test_who_asks_for_no_cpus_minds_no_node_that_has_too_few() -> None:
    over = node("a", *gpus(1, SPX), free=(-5_000, 10**6, 100))
    assert len(plan_partitions(DAY_S, [over], [need((0, 1_000, 1))]).steps) == 1
    assert plan_partitions(DAY_S, [over], [need((1, 1_000, 1))]).steps == ()


def test_small_pods_find_room_beside_large_ones_of_the_same_kind() -> None:
    mixed = ModeDemand("CPX", count=8, sizes=(PodSize((4_000, 0, 1), 6), PodSize((150_000, 0, 1), 2)))
    plan = plan_partitions(DAY_S, [node("a", *gpus(8, SPX)), node("b", *gpus(8, SPX))], [mixed])
    assert (sorted(named(plan)), plan.unserved) == (["a/gpu-0", "b/gpu-0"], ())


def test_no_plan_counts_on_more_than_the_nodes_have() -> None:
    """Whatever is planned, somebody could start on it, and what is said to be served fits."""
    draw = random.Random(4)
    for _ in range(300):
        fleet = [_some_node(draw, f"node-{number}") for number in range(3)]
        amounts = (draw.choice((1_000, 40_000, 90_000)), draw.choice((0, 30_000)), 1)
        asked = need(amounts, draw.randint(1, 60), draw.choice(("CPX", "DPX", "SPX")), draw.choice((1, 2)))
        plan = plan_partitions(DAY_S, fleet, [asked])
        served = asked.count - sum(each.count for each in plan.unserved)
        changing = {(step.node, step.change.gpu) for step in plan.steps}
        assert served <= sum(_most(each, asked, changing) for each in fleet)
        for each in fleet:
            if any(name == each.name for name, _ in changing):
                assert _most(each, asked, changing) > 0


def _some_node(draw: random.Random, name: str) -> NodeState:
    parts, tenants = [], []
    for at in range(4):
        used = draw.choice((0, 0, 1))
        mode = draw.choice((SPX, CPX, Mode("DPX", "NPS1")))
        parts.append(GpuState(f"gpu-{at}", mode, used, 600 * used))
        if used:
            tenants.append(Tenant((f"gpu-{at}",), (draw.choice((1_000, 50_000)), 1_000, 1)))
    free = (draw.choice((0, 20_000, 100_000)), draw.choice((0, 60_000)), draw.choice((1, 30)))
    return node(name, *parts, free=free, tenants=tuple(tenants))


def _most(each: NodeState, asked: ModeDemand, changing: set[tuple[str, str]]) -> int:
    """Pods that such a node could hold at most, after the changes."""
    room, devices = list(each.free or ()), 0
    for gpu in each.gpus:
        count = partition_count(each.model, asked.compute)
        if (each.name, gpu.id) in changing:
            devices += count
            for tenant in each.tenants:
                if gpu.id in tenant.gpus:
                    room = [have + more for have, more in zip(room, tenant.amounts, strict=True)]
        elif gpu.mode.compute == asked.compute:
            devices += count - gpu.used
    amounts = asked.sizes[0].amounts
    return min(devices // asked.devices, *(have // size for have, size in zip(room, amounts, strict=True) if size))
