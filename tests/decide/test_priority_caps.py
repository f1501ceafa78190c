"""A priority counts for no more than the maximum of its queue, whoever let it into the cluster."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.explain import capped_priority
from kaiwo.model.events import QueueChanged, QueueGone, WorkloadChanged
from kaiwo.model.priority_cap import DEFAULT_MAX_PRIORITY, PriorityCap, priority_cap
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from tests.worlds import World

BILLION = 1_000_000_000


def bring(world: World, name: str, **fields: Any) -> World:
    return world.tell(WorkloadChanged(Workload(f"default/{name}", (Role(Request(gpus=1)),), **fields)))


def priority(world: World, name: str) -> int:
    return world.state.workloads[f"default/{name}"].priority


def test_a_billion_stops_nobody_of_the_same_queue_who_has_the_maximum() -> None:
    world = World(gpus_per_node=1).queue("lab")
    bring(world, "honest", queue="lab", priority=DEFAULT_MAX_PRIORITY)
    world.settle()
    bring(world, "greedy", queue="lab", priority=BILLION, submitted_s=1)
    world.settle()
    assert world.is_running("honest")
    assert not world.is_running("greedy")
    said = "its priority counts as 1000, the maximum of queues that do not have their own; it asks for 1000000000"
    assert capped_priority(world.state, "default/greedy") == said


def test_a_billion_is_not_first_in_line() -> None:
    world = World(gpus_per_node=1).queue("lab", max_priority=10)
    bring(world, "old", queue="lab", priority=10)
    bring(world, "greedy", queue="lab", priority=BILLION, submitted_s=1)
    world.decide()
    assert priority(world, "greedy") == 10
    world.settle()
    assert world.is_running("old")
    assert capped_priority(world.state, "default/greedy").startswith(
        "its priority counts as 10, the maximum of queue lab"
    )


def test_the_smallest_maximum_on_the_way_up_counts_and_a_queue_may_allow_more_than_the_default() -> None:
    queues = {
        each.name: each
        for each in (
            Queue("root", max_priority=5000), Queue("team", "root", max_priority=9000),
            Queue("small", "team", max_priority=50), Queue("plain", "team"), Queue("other"),
        )
    }  # fmt: skip
    assert priority_cap(queues, "small") == PriorityCap(50, "small")
    assert priority_cap(queues, "plain") == PriorityCap(5000, "root")
    assert priority_cap(queues, "other") == PriorityCap(DEFAULT_MAX_PRIORITY, "")
    assert priority_cap(queues, "missing") == PriorityCap(DEFAULT_MAX_PRIORITY, "")


def test_a_priority_class_lifts_the_default_and_not_a_maximum_that_somebody_wrote() -> None:
    world = World().queue("free").queue("strict", max_priority=7)
    bring(world, "a", queue="free", priority=50_000, class_priority=50_000)
    bring(world, "b", queue="strict", priority=50_000, class_priority=50_000)
    bring(world, "c", queue="free", priority=BILLION, class_priority=50_000)
    bring(world, "d", queue="free", priority=3, class_priority=50_000)
    assert [priority(world, name) for name in "abcd"] == [50_000, 7, 50_000, 3]


def test_a_changed_maximum_holds_at_once_for_what_waits_and_what_runs() -> None:
    world = World(gpus_per_node=1).queue("lab", max_priority=2000)
    bring(world, "high", queue="lab", priority=2000)
    world.settle()
    bring(world, "rival", queue="lab", priority=1500, submitted_s=1)
    world.settle()
    assert world.is_running("high")
    world.queue("lab", max_priority=5)
    assert (priority(world, "high"), priority(world, "rival")) == (5, 5)
    world.queue("lab", max_priority=2000)
    assert (priority(world, "high"), priority(world, "rival")) == (2000, 1500)


QUEUES = st.lists(
    st.builds(
        Queue,
        st.sampled_from("abc"),
        st.sampled_from(["", "a", "b", "c"]),
        max_priority=st.sampled_from([None, -5, 10, 5000]),
    ),
    max_size=6,
)
WORK = st.tuples(
    st.sampled_from("xyz"), st.sampled_from("abcd"), st.sampled_from([-9, 5, 5000, BILLION]), st.sampled_from([0, 2000])
)


@given(QUEUES, st.lists(WORK, max_size=6), st.randoms(use_true_random=False), st.booleans())
def test_what_counts_is_never_above_the_cap_in_any_order_of_events_and_what_was_asked_is_kept(
    queues: list[Queue], work: list[tuple[str, str, int, int]], order: Any, is_gone: bool
) -> None:
    asked = {
        name: Workload(f"default/{name}", (Role(Request(gpus=1)),), queue, priority=wanted, class_priority=of_class)
        for name, queue, wanted, of_class in work
    }
    events: list[Any] = [*map(QueueChanged, {each.name: each for each in queues}.values())]
    events += [QueueGone("a")] if is_gone else []
    shuffled = [*(WorkloadChanged(each) for each in asked.values()), *events[:1]]
    order.shuffle(shuffled)
    state = ClusterState()
    state.patch([*shuffled, *events])
    for each in asked.values():
        found = state.workloads[each.name]
        most = priority_cap(state.queue_objects, each.queue).most_for(each)
        assert found.priority == min(each.priority, most)
        assert state.priorities.as_asked(found) == each
    again = ClusterState()
    again.patch(state.events())
    assert again.workloads == state.workloads
    assert again.events() == state.events() == state.fork().events()
