"""Every class has a turn to have room made, whatever else waits; and one that gets none does not block the others."""

import pytest
from msgspec.structs import replace

from kaiwo.model.events import WorkloadChanged, WorkloadGone
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Fairness
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup, Workload
from kaiwo.queues.current_shares import current_shares
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World

CLAIMS = 60


def many_claims_in_vain(steps: int) -> World:
    """Half of each node may be taken, and many different kinds of work of a queue that is owed need more of one."""
    world = World(nodes=2, policy=Policy(steps=steps, promises=0))
    world.queue("fix", quota_milli=8_000).queue("rich").queue("owed", quota_milli=9_000)
    world.submit("below", gpus_each=1, queue="owed", priority=-10).settle()  # preemption has something to look at, too
    for number in range(8):
        world.submit(f"f{number}", gpus_each=1, queue="fix", preemptible=False).settle()
        world.submit(f"r{number}", gpus_each=int(number < 7), queue="rich").settle()
    for number in range(CLAIMS):
        world.submit(f"o{number:02}", gpus_each=8, cpu_milli=number + 1, queue="owed")
    return world


def test_claims_in_vain_come_to_an_end_when_nothing_happens() -> None:
    world = many_claims_in_vain(steps=400)
    left = []
    for _ in range(CLAIMS):
        left.append(len(world.decide().unclaimed))
        if not left[-1]:
            break
    assert left[0] > 0  # the budget did not reach all of them
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    assert not world.decide().steps  # and then there is no cycle


def test_preemption_has_its_turns_beside_claims_without_end() -> None:
    world = many_claims_in_vain(steps=400)
    world.decide()
    world.submit("urgent", gpus_each=1, queue="rich", priority=1_000)
    for _ in range(4):  # each time everybody is to be tried again
        world.state.retry_all_classes()
        evictions = world.decide().evictions
        if evictions:
            break
    assert {(each.cause, each.beneficiary) for each in evictions} == {(EvictionCause.PREEMPT, "default/urgent")}


def owed_world(**fairness: int) -> World:
    """`x` has five GPUs and `y` three; the quota of `poor` is three."""
    world = World().queue("x", fairness=Fairness(**fairness)).queue("y").queue("poor", quota_milli=3_000)
    world.now_s = 1_000
    for number in range(8):
        world.submit(f"{'xxxxxyyy'[number]}{number}", gpus_each=1, queue="xxxxxyyy"[number]).settle()
    world.now_s += 100
    return world


def test_who_asked_to_wait_does_not_hold_up_those_behind_it() -> None:
    world = owed_world()
    world.submit("slow", gpus_each=1, queue="poor", preemption_delay_s=3_600)
    world.now_s += 1
    world.submit("fast", gpus_each=1, queue="poor")
    assert {each.beneficiary for each in world.decide().evictions} == {"default/fast"}


@pytest.mark.parametrize(("most", "taken"), [(0, "yyy"), (1, "xyy")])
def test_a_spent_eviction_budget_of_one_queue_does_not_keep_the_work_of_others(most: int, taken: str) -> None:
    world = owed_world(evictions_per_hour=most)
    for number in range(3):
        world.submit(f"c{number}", gpus_each=1, queue="poor")
    gone = world.decide().evictions
    assert sorted(each.workload.removeprefix("default/")[0] for each in gone) == list(taken)
    assert {each.beneficiary for each in gone} == {"default/c0", "default/c1", "default/c2"}


@pytest.mark.parametrize("order", [("ga", "gb", "gc"), ("ga", "gc", "gb")])
def test_a_sub_group_that_a_disruption_budget_lets_go_is_offered_whatever_stands_before_it(
    order: tuple[str, ...],
) -> None:
    world = World().queue("rich").queue("poor", quota_milli=4_000)
    roles = tuple(Role(Request(gpus=1), name, count, -1, f"g{name}") for name, count in (("a", 4), ("b", 1), ("c", 3)))
    groups = (SubGroup("", minimum=1), *(SubGroup(name, "") for name in order))
    world.tell(WorkloadChanged(Workload("default/e", roles, "rich", may_go=2, groups=groups))).settle()
    gone = world.submit("c", gpus_each=1, queue="poor").decide().evictions
    assert [each.pod for each in gone] == ["b-0"]


def doomed_world(**doomed: object) -> World:
    """`a` has all eight GPUs, `c` wants four; a queue that stands before both wants what it can never have."""
    world = World().queue("d", priority=200).queue("a").queue("c")
    for number in range(8):
        world.submit(f"a{number}", gpus_each=1, queue="a")
    world.settle()
    world.submit("doomed", queue="d", **doomed)  # type: ignore[arg-type]
    for number in range(4):
        world.submit(f"c{number}", gpus_each=1, queue="c")
    return world


@pytest.mark.parametrize(
    "doomed",
    [
        {"gpus_each": 16},
        {"gpus_each": 1, "pods": 9},
        {"gpus_each": 1, "pods": 8, "models": ("H100",)},
        {"gpus_each": 8, "cpu_milli": 10_000_000},
        {"gpus_each": 8, "preemptible": False},
        {"memory_mib": 10_000_000},
    ],
)
def test_the_wish_for_what_can_never_be_had_keeps_nothing_from_others(doomed: dict[str, object]) -> None:
    world = doomed_world(**doomed)
    world.settle()
    assert sum(world.is_running(f"c{number}") for number in range(4)) == 4
    assert sum(world.is_running(f"a{number}") for number in range(8)) == 4
    now = current_shares(WorkingCopy(world.snapshot()).view)
    assert now.fair[now.queues.row["d"], 0] == 0


def test_a_wish_counts_from_when_it_could_be_had() -> None:
    world = doomed_world(gpus_each=1, pods=8, models=("H100",))
    world.settle()
    world.node("new", gpus=8, model="H100").settle()
    assert world.is_running("doomed")


@pytest.mark.parametrize("is_held", [False, True])
def test_a_wish_that_is_given_up_wakes_those_who_are_owed_more_by_that(is_held: bool) -> None:
    world = World().queue("d", priority=200).queue("a").queue("c")
    for number in range(8):
        world.submit(f"a{number}", gpus_each=1, queue="a")
    world.settle()
    world.submit("x", gpus_each=8, queue="d", preemption_delay_s=1_000_000)
    for number in range(4):
        world.submit(f"c{number}", gpus_each=1, queue="c")
    world.settle()
    assert not world.is_running("c0")
    waits = world.state.workloads["default/x"]
    world.tell(WorkloadChanged(replace(waits, held=True)) if is_held else WorkloadGone("default/x")).settle()
    assert world.is_running("c0")


def test_running_work_that_becomes_less_important_wakes_who_may_stop_it_now() -> None:
    world = World()
    for number in range(8):
        world.submit(f"l{number}", gpus_each=1, priority=100)
    world.settle()
    world.submit("h", gpus_each=1, priority=50).settle()
    world.tell(WorkloadChanged(replace(world.state.workloads["default/l0"], priority=0)))
    assert [each.workload for each in world.decide().evictions] == ["default/l0"]


def test_a_planned_start_is_named_as_what_keeps_work_with_an_optional_part() -> None:
    world = World().submit("run", gpus_each=6, estimate_s=1_000)
    world.settle()
    world.submit("big", gpus_each=8, estimate_s=500).settle()
    assert "default/big" in world.state.planned_starts
    roles = (Role(Request(gpus=1), "lead"), Role(Request(gpus=4), "work", 1, 0))
    world.tell(WorkloadChanged(Workload("default/s", roles, submitted_s=1))).settle()
    found = world.state.backlog.class_of("default/s")
    assert [each.reason for each in found.obstacles] == [Reason.PROMISED]


def test_work_whose_last_pod_slot_is_free_again_keeps_its_place() -> None:
    """The newer work is removed first; only the place of the older one is needed, and the newer one stays."""
    world = World(nodes=0).queue("theirs").queue("ours", quota_milli=2_000).node("a", gpus=3, pods=2)
    world.submit("large", gpus_each=2, queue="theirs").settle()
    world.now_s = 10
    world.submit("small", gpus_each=1, queue="theirs").settle()
    world.submit("owed", gpus_each=2, queue="ours")
    assert [eviction.workload for eviction in world.decide().evictions] == ["default/large"]


def test_each_of_several_extended_resources_is_held_on_its_own() -> None:
    world = World(nodes=0).node("a", gpus=0, extended={"x.com/first": 5, "x.com/second": 1})
    asks = Request(extended=(("x.com/second", 1),))
    world.submit("one", request=asks).settle()
    world.submit("two", request=asks).settle()
    assert world.is_running("one")
    assert not world.is_running("two")
    world.finish("one").settle()
    assert world.is_running("two")
