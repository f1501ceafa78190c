"""The law of bounded waits: no stream of other work keeps a workload waiting for ever (docs/starvation.md).

With W the policy's `max_wait_s`, M its `overdue_run_s` and T the longest that other work runs, a workload before which
k older ones wait starts within W + (k + 1) x (2 x T + M).
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.model.policy import Policy
from tests.conftest import SIZE
from tests.properties.starvation_worlds import StarvationStory, Stream

WAIT_S, RUN_S = 3_000, 500
QUEUES = ("lab-a", "lab-b", "lab-c")


@st.composite
def streams(draw: st.DrawFn) -> list[Stream]:
    """Two to four streams that together ask for about as much as there is, or for more."""
    found = []
    for _ in range(draw(st.integers(2, 4))):
        runs_s = draw(st.sampled_from([200, 400, 600]))
        found.append(
            Stream(
                "small",
                draw(st.sampled_from(QUEUES)),
                draw(st.integers(1, 3)),
                draw(st.sampled_from([50, 100, 150])),
                runs_s,
                says_s=draw(st.sampled_from([0, 0, runs_s, runs_s // 2])),
                priority=draw(st.integers(0, 2)),
                preemptible=draw(st.booleans()),
            )
        )
    return found


@settings(max_examples=6 * SIZE, deadline=None)
@given(
    streams(),
    st.integers(2, 4),
    st.sampled_from(QUEUES),
    st.integers(0, 2),
    st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 8)),
)
def test_whatever_streams_there_are_a_large_workload_starts_within_the_bound(
    work: list[Stream], pods: int, queue: str, priority: int, quotas: dict[str, int]
) -> None:
    policy = Policy(max_wait_s=WAIT_S, overdue_run_s=RUN_S)
    story = StarvationStory(work, policy, pods, queue, priority, quotas)
    longest_s = max(stream.runs_s for stream in work)
    story.begin()
    bound_s = WAIT_S + (story.older + 1) * (2 * longest_s + RUN_S)
    assert story.waits(until_s=bound_s) is not None, f"it still waits after {bound_s} s"


def test_without_the_bound_the_large_workload_waits_for_ever() -> None:
    """The law can fail: the same stream, with the bound switched off."""
    stream = [Stream("small", "lab-a", 1, 20, 400, priority=1)]
    off = StarvationStory(stream, Policy(max_wait_s=0))
    off.begin()
    assert off.waits(until_s=15_000) is None
    on = StarvationStory(stream, Policy(max_wait_s=WAIT_S, overdue_run_s=RUN_S))
    on.begin()
    waited_s = on.waits(until_s=15_000)
    assert waited_s is not None
    assert WAIT_S < waited_s <= WAIT_S + 400


def test_a_limit_that_its_own_queue_uses_up_is_kept_for_it_too() -> None:
    """The nodes have room; the queue may use 8 GPUs, and small work of its own takes every GPU that comes free."""
    stream = [Stream("small", "lab-a", 1, 25, 400, priority=1)]
    story = StarvationStory(
        stream, Policy(max_wait_s=WAIT_S, overdue_run_s=RUN_S), large_pods=2, limits={"lab-a": 8}, nodes=6
    )
    story.begin()
    waited_s = story.waits(until_s=15_000)
    assert waited_s is not None
    assert waited_s <= WAIT_S + 400
