"""Lessons 8 to 11: large work that never started, because every GPU that came free went to something smaller."""

from kaiwo.explain import planned_start
from kaiwo.model.policy import Policy
from tests.properties.starvation_worlds import LARGE, StarvationStory, Stream
from tests.worlds import World

DAY_S = 86_400


def test_no_one_gpu_stream_keeps_a_gang_waiting() -> None:
    """KAI#1969: no reservation and no backfill, so big jobs never land. Nothing here says how long it runs."""
    story = StarvationStory([Stream("small", "lab-a", 1, 400, 6_000)], Policy())
    story.begin()
    waited_s = story.waits(until_s=DAY_S + 6_000)
    assert waited_s is not None
    assert waited_s >= DAY_S


def test_best_effort_queues_do_not_starve_gangs() -> None:
    """kueue#8309: StrictFIFO blocks across flavors, BestEffort starves gangs. Here small work goes on all the time."""
    story = StarvationStory([Stream("small", "lab-b", 1, 400, 6_000, priority=5)], Policy())
    story.begin()
    running = []
    while not story.world.is_running(LARGE) and story.world.now_s < 2 * DAY_S:
        story.waits(until_s=story.world.now_s - story.submitted_s + 6_000)
        running.append(sum(name != LARGE for name in story.world.state.pods))
    assert story.world.is_running(LARGE)
    assert min(running[:10]) >= 14  # of 16 GPUs: nothing is kept empty for it before it is overdue


def test_a_place_that_is_kept_stays_where_it_is_and_nobody_takes_it() -> None:
    """volcano#13, #748, #4690: reservations whose locked nodes were not locked."""
    world = World(nodes=2, gpus_per_node=2)
    world.submit("a", gpus_each=1).submit("b", gpus_each=1).submit("c", gpus_each=1).submit("d", gpus_each=1).settle()
    world.submit("gang", pods=2, gpus_each=2).settle()
    world.now_s = DAY_S
    world.settle()
    place = world.state.planned_starts["default/gang"]
    assert place.is_overdue
    said = "it has waited so long that no other work may start on its place on nodes node-0, node-1; it starts when"
    assert planned_start(world.state, "default/gang", world.now_s).startswith(said)
    for at, name in enumerate("abcd"):
        world.now_s += 100
        world.finish(name).submit(f"later-{name}", gpus_each=1, priority=100).settle()
        assert not world.is_running(f"later-{name}")
        assert world.is_running("gang") == (at == 3)
        kept = world.state.planned_starts.get("default/gang")
        assert kept is None or kept.places == place.places


def test_a_busy_node_is_not_modelled_as_busy_for_a_day() -> None:
    """spur#732: busy nodes counted as taken for 24 hours. The place is where known ends come first."""
    world = World(nodes=3, gpus_per_node=2)
    world.submit("long", gpus_each=2, estimate_s=2 * DAY_S).submit("unknown", gpus_each=2)
    world.submit("short", gpus_each=2, estimate_s=DAY_S + 3_600).settle()
    where = world.nodes_of("short")
    world.policy = Policy(promises=0)  # without planned starts, only the bound on the wait gives it a place
    world.submit("wants-two", gpus_each=2).settle()
    world.now_s = DAY_S
    world.settle()
    planned = world.state.planned_starts["default/wants-two"]
    assert [list(planned.nodes), planned.start_s] == [where, DAY_S + 3_600]


def test_a_planned_start_survives_the_loss_of_every_node() -> None:
    """Found by removing the only node in a what-if question: the cycle raised."""
    world = World(nodes=1, gpus_per_node=2).submit("first", gpus_each=2, estimate_s=600)
    world.settle()
    world.submit("second", gpus_each=2, estimate_s=600).settle()
    assert "default/second" in world.state.planned_starts
    world.lose_node("node-0").settle()
    assert not world.state.planned_starts


def test_work_that_was_stopped_begins_to_wait_anew() -> None:
    world = World(nodes=1, gpus_per_node=1).submit("low", gpus_each=1).queue("default", quota_milli=1_000)
    world.settle()
    world.now_s = 3 * DAY_S
    world.submit("high", gpus_each=1, priority=10).settle()
    assert world.is_running("high")
    assert not world.state.planned_starts
    world.now_s += DAY_S
    world.settle()
    assert world.state.planned_starts["default/low"].is_overdue


def test_overdue_work_that_has_started_is_not_stopped_at_once() -> None:
    world = World(nodes=1, gpus_per_node=1)
    world.submit("old", gpus_each=1).settle()
    world.submit("waits", gpus_each=1, priority=-1).settle()
    world.now_s = DAY_S
    world.settle()
    world.finish("old").submit("urgent", gpus_each=1, priority=50).settle()
    assert world.is_running("waits")
    world.now_s += 3_599
    assert not [plan.evictions for plan in world.settle() if plan.evictions]
    world.now_s += 1
    world.settle()
    assert world.is_running("urgent")
