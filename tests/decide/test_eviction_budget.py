"""A queue's eviction budget: only this many of its workloads are stopped for others within an hour."""

from kaiwo.model.events import QueueChanged
from kaiwo.model.obstacle import EvictionBudgetSpent, Reason, SearchGaveUp
from kaiwo.model.plan import EvictionCause
from kaiwo.model.queue import Fairness, Queue, QueueAmounts
from kaiwo.runtime.loop.learned_state import pack_state, unpack_state
from tests.worlds import World


def owed_and_rich(budget: int | None, parent: str = "") -> World:
    """`rich` fills the node with single GPUs; `owed` is due half of it."""
    rich = Queue("rich", parent, fairness=Fairness() if parent else Fairness(evictions_per_hour=budget))
    world = World().tell(QueueChanged(Queue("owed", gpu=QueueAmounts(quota=4_000))))
    if parent:
        world.tell(QueueChanged(Queue(parent, fairness=Fairness(evictions_per_hour=budget))))
    world.tell(QueueChanged(rich))
    for number in range(8):
        world.submit(f"rich-{number}", gpus_each=1, queue="rich")
    world.settle()
    return world


def ask(world: World, count: int = 4) -> World:
    for number in range(count):
        world.submit(f"owed-{number}", gpus_each=1, queue="owed", submitted_s=world.now_s)
    world.settle()
    return world


def owed(world: World) -> int:
    return sum(world.is_running(name) for name in world.state.pods if "owed" in name)


def test_without_a_budget_all_that_is_owed_is_taken_back() -> None:
    assert owed(ask(owed_and_rich(None))) == 4


def test_the_budget_is_kept_and_the_next_hour_brings_the_rest() -> None:
    world = ask(owed_and_rich(1))
    assert owed(world) == 1
    world.now_s += 3_599
    assert owed(ask(world, 0)) == 1
    world.now_s += 1
    assert owed(ask(world, 0)) == 2


def test_why_names_the_budget() -> None:
    world = ask(owed_and_rich(1))
    obstacles = [o for found in world.state.backlog.by_key.values() for o in found.obstacles]
    found = [o.facts for o in obstacles if o.reason is Reason.NO_WAY_TO_RECLAIM]
    assert found
    spent = EvictionBudgetSpent("rich", 1)
    assert all(isinstance(facts, SearchGaveUp) and spent in facts.protections for facts in found)


def test_a_queue_above_counts_for_all_below_it() -> None:
    assert owed(ask(owed_and_rich(2, parent="lab"))) == 2


def test_nought_means_never() -> None:
    assert owed(ask(owed_and_rich(0))) == 0


def test_a_gang_counts_once() -> None:
    world = World().tell(
        QueueChanged(Queue("owed", gpu=QueueAmounts(quota=4_000))),
        QueueChanged(Queue("rich", fairness=Fairness(evictions_per_hour=1))),
    )
    world.running("gang", gpus=8, queue="rich")
    assert owed(ask(world)) == 4


def test_preemption_inside_a_queue_counts_too() -> None:
    world = World().tell(QueueChanged(Queue("lab", fairness=Fairness(evictions_per_hour=1))))
    for number in range(8):
        world.submit(f"low-{number}", gpus_each=1, queue="lab")
    world.settle()
    for number in range(3):
        world.submit(f"high-{number}", gpus_each=1, queue="lab", priority=50)
    plans = world.settle()
    assert [each.cause for plan in plans for each in plan.evictions] == [EvictionCause.PREEMPT]


def test_a_journal_base_carries_what_was_stopped() -> None:
    world = ask(owed_and_rich(1))
    assert world.state.recent_stops["rich"]
    assert world.state.last_stop
    state = pack_state(world.state, world.policy, world.now_s)
    again = unpack_state(world.state.events(), state, world.plugins)
    assert again.last_stop == world.state.last_stop
    assert again.recent_stops == world.state.recent_stops
