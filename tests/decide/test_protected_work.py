"""What disruption budgets and minimum run times protect is named to the work that waits for it."""

from msgspec.structs import replace

from kaiwo.explain import why
from kaiwo.model.events import QueueChanged, WorkloadChanged
from kaiwo.model.obstacle import Obstacle, ProtectedByBudget, ProtectedByMinRunTime, Reason, ReclaimBound, WorkProtected
from kaiwo.model.queue import Fairness, Queue, QueueAmounts
from tests.worlds import World


def full(keeps: int = 8, min_runtime_s: int | None = None) -> World:
    """`rich` fills the node with single GPUs, of which disruption budgets keep some; `owed` is due half of it."""
    rich = Queue("rich", fairness=Fairness(min_runtime_s=min_runtime_s))
    world = World().tell(QueueChanged(Queue("owed", gpu=QueueAmounts(quota=4_000))), QueueChanged(rich))
    for number in range(8):
        world.submit(f"rich-{number}", gpus_each=1, queue="rich")
    world.settle()
    for number in range(keeps):
        budget(world, f"rich-{number}", 0)
    return world


def budget(world: World, name: str, may_go: int) -> None:
    world.tell(WorkloadChanged(replace(world.state.workloads[f"default/{name}"], may_go=may_go)))


def told(world: World, reason: Reason) -> list[Obstacle]:
    return [o for found in world.state.backlog.by_key.values() for o in found.obstacles if o.reason is reason]


def test_a_budget_that_stops_a_reclaim_is_named() -> None:
    world = full()
    world.submit("mine", gpus_each=1, queue="owed")
    world.settle()
    assert not world.is_running("mine")
    (obstacle,) = told(world, Reason.NOT_ENOUGH_RECLAIMABLE)
    assert (obstacle.need, obstacle.have) == (1_000, 0)
    assert isinstance(obstacle.facts, ReclaimBound)
    named = ("default/rich-0", "default/rich-1", "default/rich-2")
    assert obstacle.facts.protections == (ProtectedByBudget("rich", 8_000, named, 5),)


def test_what_is_not_kept_is_taken_and_the_rest_is_named() -> None:
    world = full(keeps=6)
    world.submit("mine", pods=2, gpus_each=1, queue="owed").submit("more", gpus_each=1, queue="owed")
    world.settle()
    assert world.is_running("mine")
    (obstacle,) = told(world, Reason.NOT_ENOUGH_RECLAIMABLE)
    assert isinstance(obstacle.facts, ReclaimBound)
    assert [each.milli for each in obstacle.facts.protections if isinstance(each, ProtectedByBudget)] == [6_000]
    for number in range(6):
        budget(world, f"rich-{number}", -1)
    world.settle()
    assert world.is_running("more")
    assert not told(world, Reason.NOT_ENOUGH_RECLAIMABLE)


def test_a_minimum_run_time_that_stops_a_reclaim_is_named_until_it_is_over() -> None:
    world = full(keeps=0, min_runtime_s=600)
    world.submit("mine", gpus_each=1, queue="owed")
    world.settle()
    assert not world.is_running("mine")
    (obstacle,) = told(world, Reason.NOT_ENOUGH_RECLAIMABLE)
    assert (obstacle.need, obstacle.have) == (1_000, 0)
    assert isinstance(obstacle.facts, ReclaimBound)
    assert obstacle.facts.protections == (ProtectedByMinRunTime("rich", 8_000, 600),)
    world.now_s += 600
    world.settle()
    assert world.is_running("mine")


def test_a_budget_that_stops_a_preemption_is_named() -> None:
    world = full()
    world.submit("urgent", gpus_each=1, queue="rich", priority=10)
    world.settle()
    assert not world.is_running("urgent")
    (obstacle,) = told(world, Reason.NO_WAY_TO_PREEMPT)
    assert isinstance(obstacle.facts, WorkProtected)
    assert [each.milli for each in obstacle.facts.protections if isinstance(each, ProtectedByBudget)] == [8_000]
    explained = why(world.state, "default/urgent", world.policy, world.now_s).obstacles
    assert any("may not be evicted now: disruption budgets protect" in each.sentence for each in explained)
    budget(world, "rich-3", 1)
    world.settle()
    assert world.is_running("urgent")


def test_nothing_is_said_of_what_is_as_important() -> None:
    world = full()
    world.submit("equal", gpus_each=1, queue="rich")
    world.settle()
    assert not told(world, Reason.NO_WAY_TO_PREEMPT)
