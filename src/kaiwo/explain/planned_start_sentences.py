"""A planned start in words: when, where, and what that rests on.

In:    the cluster state, a workload's name.   Out: one sentence; empty when it has no planned start.
"""

from kaiwo.model.amounts import rounded_duration
from kaiwo.model.planned_start import DelayCause, PlannedStart, expected_run_s
from kaiwo.model.reservation import clock_words
from kaiwo.model.workload import Workload
from kaiwo.snapshot.cluster_state import ClusterState

MOST_NODES = 4
LEARNED = "earlier runs like it"


def planned_start(state: ClusterState, name: str, now_s: int) -> str:
    """`planned start 2026-01-01 14:05 UTC (in 12 min) on nodes a, b, because train-3 ends then; ...`."""
    promise = state.planned_starts.get(name)
    if promise is None:
        return ""
    when = f"{clock_words(promise.start_s)} ({_ahead(promise.start_s - now_s)})"
    said = f"planned start {when} on {_nodes(promise)}, because {_because(promise)}"
    return said + _delay(promise) + _assumed(promise, state.workloads[name])


def _ahead(seconds: int) -> str:
    return f"in {rounded_duration(seconds)}" if seconds > 0 else "now"


def _nodes(promise: PlannedStart) -> str:
    names = promise.nodes
    more = f" and {len(names) - MOST_NODES} more" if len(names) > MOST_NODES else ""
    return f"{'node' if len(names) == 1 else 'nodes'} {', '.join(names[:MOST_NODES])}{more}"


def _because(promise: PlannedStart) -> str:
    if not promise.after:
        return "its place will be free by then"
    names = [name.removeprefix("default/") for name in promise.after]
    who = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{who} {'is' if len(names) == 1 else 'are'} expected to end by then and free its place"


def _delay(promise: PlannedStart) -> str:
    if promise.delay is None:
        return ""
    words = _DELAYS[promise.delay].format(who=promise.delayed_by.removeprefix("default/") or "another workload")
    return f"; it was postponed because {words}"


def run_time_from(workload: Workload) -> str:
    """What the expected run time is based on: `its owner's estimate`; empty: it is unknown."""
    run_s = expected_run_s(workload)
    if not run_s:
        return ""
    if run_s == workload.estimate_s:
        return "its owner's estimate"
    return LEARNED if run_s == workload.learned_s and not workload.estimate_s else "its time limit"


def _assumed(promise: PlannedStart, workload: Workload) -> str:
    if promise.run_s:
        by = f", by {run_time_from(workload)}" if promise.run_s == expected_run_s(workload) else ""
        return f"; it is expected to run for {rounded_duration(promise.run_s)}{by}"
    return "; its run time is unknown, so its place is kept with no end"


_DELAYS = {
    DelayCause.OVERRAN: "{who} is running longer than expected",
    DelayCause.NODE: "node {who} is no longer available",
    DelayCause.OUTRANKED: "{who} now comes before it",
    DelayCause.TAKEN: "{who} is entitled to its place",
}
