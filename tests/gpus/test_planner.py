"""The planner gives the waiting work its modes, and never breaks what runs."""

from collections.abc import Iterator
from itertools import product

import pytest

from kaiwo.gpus.partitioning.planner import could_serve, plan_partitions
from kaiwo.gpus.partitioning.planner_types import GpuState, ModeDemand, NodeState, PartitionPlan, PlannerSettings
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import COMPUTE_MODES, Mode, legal_modes, next_modes, partition_count, platforms
from tests.conftest import IS_FULL
from tests.gpus.plan_sums import ready_in_s

SPX, CPX, CPX4 = Mode("SPX", "NPS1"), Mode("CPX", "NPS1"), Mode("CPX", "NPS4")
DAY_S = 86_400


def node(name: str, *gpus: GpuState, model: str = "MI300X") -> NodeState:
    return NodeState(name, model, gpus)


def gpus(count: int, mode: Mode, **changes: object) -> list[GpuState]:
    return [GpuState(f"gpu-{at}", mode, **changes) for at in range(count)]  # type: ignore[arg-type]


def named(plan: PartitionPlan) -> dict[str, str]:
    return {f"{step.node}/{step.change.gpu}": "+".join(step.change.after) for step in plan.steps}


def test_idle_gpus_are_cut_for_those_who_wait_and_no_more_than_needed() -> None:
    plan = plan_partitions(DAY_S, [node("a", *gpus(8, SPX))], [ModeDemand("CPX", count=17)])
    assert named(plan) == {"a/gpu-0": "CPX+NPS1", "a/gpu-1": "CPX+NPS1", "a/gpu-2": "CPX+NPS1"}
    assert all(step.is_due and step.takes_s == 60 for step in plan.steps)
    assert ready_in_s(plan) == 60


def test_what_is_free_or_on_its_way_is_not_made_twice() -> None:
    free = node("a", *gpus(1, CPX, used=5))
    coming = node("b", GpuState("gpu-0", SPX, goal=CPX, is_changing=True), GpuState("gpu-1", SPX))
    assert plan_partitions(DAY_S, [free, coming], [ModeDemand("CPX", count=11)]).steps == ()
    assert named(plan_partitions(DAY_S, [free, coming], [ModeDemand("CPX", count=12)])) == {"b/gpu-1": "CPX+NPS1"}


def test_a_begun_node_is_broken_into_before_a_whole_one() -> None:
    whole, begun = node("a", *gpus(8, SPX)), node("b", *gpus(4, CPX, used=8)[:4], *gpus(8, SPX)[4:])
    assert list(named(plan_partitions(DAY_S, [whole, begun], [ModeDemand("CPX")]))) == ["b/gpu-4"]


def test_a_gang_gets_the_node_that_wastes_the_least() -> None:
    soon = node("a", *gpus(8, CPX, used=1, free_in_s=300, idle_gpu_s=262))
    late = node("b", *gpus(8, CPX, used=8, free_in_s=3_000, idle_gpu_s=0))
    mixed = node("c", *gpus(2, CPX, used=8, free_in_s=600, idle_gpu_s=100), *gpus(8, SPX)[2:])
    plan = plan_partitions(DAY_S, [soon, late], [ModeDemand("SPX", devices=8)])
    assert {step.node for step in plan.steps} == {"a"}
    assert not any(step.is_due for step in plan.steps)
    assert ready_in_s(plan) == 360
    plan = plan_partitions(DAY_S, [late, mixed], [ModeDemand("SPX", devices=8)])
    assert named(plan) == {"c/gpu-0": "SPX+NPS1", "c/gpu-1": "SPX+NPS1"}


def test_nothing_is_taken_from_those_who_wait_too_until_somebody_starves() -> None:
    busy = [node("a", *gpus(8, CPX, used=8, free_in_s=3_000))]
    small, gang = ModeDemand("CPX", count=40, waited_s=60), ModeDemand("SPX", devices=8, waited_s=120)
    plan = plan_partitions(DAY_S, busy, [small, gang])
    assert plan.steps == ()
    assert {need.compute for need in plan.unserved} == {"CPX", "SPX"}
    starving = ModeDemand("SPX", devices=8, waited_s=3_600)
    assert len(plan_partitions(DAY_S, busy, [small, starving]).steps) == 8


def test_a_gpu_stays_a_while_in_its_mode() -> None:
    fresh = [node("a", GpuState("gpu-0", CPX, since_s=DAY_S - 200))]
    assert plan_partitions(DAY_S, fresh, [ModeDemand("SPX")]).steps == ()
    assert len(plan_partitions(DAY_S + 100, fresh, [ModeDemand("SPX")]).steps) == 1


def test_a_drain_that_nobody_needs_any_more_is_given_up() -> None:
    draining = [node("a", *gpus(8, CPX, used=2, free_in_s=900, goal=SPX))]
    assert len(plan_partitions(DAY_S, draining, [ModeDemand("SPX", devices=8)]).steps) == 8
    assert plan_partitions(DAY_S, draining, []).steps == ()
    back = plan_partitions(DAY_S, draining, [ModeDemand("CPX", count=48)])
    assert (back.steps, back.unserved) == ((), ())  # its free partitions serve again


def test_another_memory_mode_changes_the_whole_node_and_waits_for_all_of_it() -> None:
    one_busy = node("a", GpuState("gpu-0", SPX, used=1, free_in_s=500), GpuState("gpu-1", SPX))
    plan = plan_partitions(DAY_S, [one_busy], [ModeDemand("CPX", "NPS4")])
    assert named(plan) == {"a/gpu-0": "CPX+NPS4", "a/gpu-1": "CPX+NPS4"}
    assert [step.is_due for step in plan.steps] == [False, False]
    assert ready_in_s(plan) == 500 + 600
    assert sum(step.idle_gpu_s for step in plan.steps) == 2 * 600 + 500
    back = plan_partitions(DAY_S, [node("a", *gpus(2, CPX4))], [ModeDemand("SPX")])
    assert named(back) == {"a/gpu-0": "SPX+NPS1", "a/gpu-1": "SPX+NPS1"}
    assert all(step.takes_s == 600 for step in back.steps)


def test_gpus_in_use_are_closed_only_where_the_settings_allow_it() -> None:
    busy = node("a", GpuState("gpu-0", CPX, used=8, free_in_s=3_000))
    plan = plan_partitions(DAY_S, [busy], [ModeDemand("SPX")])
    assert (plan.steps[0].is_due, ready_in_s(plan)) == (False, 3_000 + 60)
    assert plan_partitions(DAY_S, [busy], [ModeDemand("SPX")], PlannerSettings(may_drain=False)).steps == ()


def test_models_and_places_that_cannot_change_are_left_alone() -> None:
    guest = NodeState("a", "MI300X", tuple(gpus(2, SPX)), "vf")
    assert plan_partitions(DAY_S, [guest], [ModeDemand("CPX")]).unserved == (ModeDemand("CPX"),)
    assert not could_serve([guest], ModeDemand("CPX"))
    apu = NodeState("b", "MI300A", tuple(gpus(1, SPX)), "apu")
    assert could_serve([apu], ModeDemand("TPX", devices=3))
    assert not could_serve([apu], ModeDemand("TPX", devices=4))
    assert not could_serve([apu], ModeDemand("CPX", "NPS4"))  # the firmware's memory mode
    assert plan_partitions(DAY_S, [apu], [ModeDemand("CPX", models=("MI300X",))]).steps == ()


def test_the_same_state_gives_the_same_plan_whatever_its_order() -> None:
    fleet = [node(name, *gpus(8, SPX)) for name in "abcd"]
    needs = [
        ModeDemand("CPX", count=30, waited_s=5),
        ModeDemand("DPX", count=3, waited_s=5),
        ModeDemand("SPX", devices=8, waited_s=9),
    ]
    assert plan_partitions(DAY_S, fleet, needs) == plan_partitions(DAY_S, fleet[::-1], needs[::-1])


def small_fleets() -> Iterator[NodeState]:
    """Every node of two GPUs: model, place, modes, what runs, and what was begun."""
    for model in CHIPS:
        for place in platforms(model):
            for first, second in product(legal_modes(model, place), repeat=2):
                if first.memory != second.memory:
                    continue  # the memory mode is the node's
                for used, state in product((0, 1, 2), ("still", "draining", "changing")):
                    yield _fleet(model, place, (first, second), used, state)


def _fleet(model: str, place: str, modes: tuple[Mode, Mode], used: int, state: str) -> NodeState:
    first, second = modes
    others = [mode for mode in next_modes(model, first, place) if mode.memory == first.memory and mode != first]  # type: ignore[arg-type]
    goal = others[-1] if others and state != "still" else None
    held = min(used, 1) if state != "changing" else 0
    return NodeState(
        "a", model,
        (
            GpuState("gpu-0", first, held, 600 * held, 50 * held, -DAY_S, goal, bool(goal) and state == "changing"),
            GpuState("gpu-1", second, used // 2, 900 * (used // 2)),
        ),
        place,  # type: ignore[arg-type]
    )  # fmt: skip


NEEDS = [
    ModeDemand(compute, memory, devices, count, waited_s)
    for compute in COMPUTE_MODES
    for memory in ("", "NPS1", "NPS2", "NPS4")
    for devices, count, waited_s in ((1, 1, 0), (2, 3, 4_000))
]


@pytest.mark.parametrize("terms", [PlannerSettings(), PlannerSettings(starve_s=0)])
def test_no_plan_is_illegal_for_any_small_node_and_any_need(terms: PlannerSettings) -> None:
    looked = 0
    for number, fleet in enumerate(small_fleets()):
        for at, need in enumerate(NEEDS):
            if not IS_FULL and (number + at) % 5:
                continue
            looked += 1
            both = [need, NEEDS[(at * 7 + number) % len(NEEDS)]]
            for needs in ([need], both):
                check(fleet, plan_partitions(0, [fleet], needs, terms), terms, needs)
    assert looked > (50_000 if IS_FULL else 10_000)


def check(fleet: NodeState, plan: PartitionPlan, terms: PlannerSettings, needs: list[ModeDemand]) -> None:
    """Legal, one memory mode for the node, and nothing that is due runs anything."""
    where = (fleet, plan, needs)
    before = {gpu.id: gpu for gpu in fleet.gpus}
    after = {gpu.id: gpu.goal if gpu.is_changing and gpu.goal else gpu.mode for gpu in fleet.gpus}
    for step in plan.steps:
        gpu = before[step.change.gpu]
        assert step.change.before == gpu.mode != step.change.after, where
        assert step.change.after in next_modes(fleet.model, gpu.mode, fleet.platform), where
        assert not gpu.is_changing, where
        after[gpu.id] = step.change.after
        is_memory = step.change.after.memory != gpu.mode.memory
        running = [other for other in fleet.gpus if other.used] if is_memory else [gpu] if gpu.used else []
        assert step.is_due == (not running), where
        assert step.takes_s == (terms.memory_s if is_memory else terms.compute_s), where
    assert len({mode.memory for mode in after.values()}) == 1, where
    for need in plan.unserved:
        assert any(need.compute == each.compute and 0 < need.count <= each.count for each in needs), where
    if not plan.unserved and len(needs) == 1:
        need = needs[0]
        offered = sum(
            partition_count(fleet.model, mode.compute)
            for mode in after.values()
            if mode.compute == need.compute and need.memory in ("", mode.memory)
        )
        assert offered >= need.devices, where
