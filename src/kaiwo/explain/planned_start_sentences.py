"""The sentence about a planned start: when, where, and what that is based on."""

from kaiwo.explain.change_sentences import short_name
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.planned_start import DelayCause, PlannedStart, expected_run_s
from kaiwo.model.reservation import clock_words
from kaiwo.model.workload import Workload
from kaiwo.snapshot.cluster_state import ClusterState

MAX_NODES = 4


def planned_start(state: ClusterState, name: str, now_s: int) -> str:
    """`planned start 2026-01-01 14:05 UTC (in 12 min) on nodes a, b, because train-3 ends then; ...`."""
    planned = state.planned_starts.get(name)
    if planned is None:
        return ""
    left_s = planned.start_s - now_s
    if not planned.is_time_known:
        text = f"it has waited so long that no other work may start on its place on {_nodes(planned)}"
        return f"{text}; it starts when what runs there has ended"
    when = f"{clock_words(planned.start_s)} ({f'in {rounded_duration(left_s)}' if left_s > 0 else 'now'})"
    text = f"planned start {when} on {_nodes(planned)}, because {_because(planned)}"
    text += "; no other work may delay it any more, because it has waited so long" if planned.is_overdue else ""
    return text + _delay(planned) + _assumed(planned, state.workloads[name])


def planned_when_made(planned: PlannedStart) -> str:
    """`planned start 2026-01-01 14:05 UTC on node a, because ...`: as it was said when it was made."""
    when = clock_words(planned.start_s)
    return f"planned start {when} on {_nodes(planned)}, because {_because(planned)}{_delay(planned)}"


def _nodes(planned: PlannedStart) -> str:
    names = planned.nodes
    more = f" and {len(names) - MAX_NODES} more" if len(names) > MAX_NODES else ""
    return f"{'node' if len(names) == 1 else 'nodes'} {', '.join(names[:MAX_NODES])}{more}"


def _because(planned: PlannedStart) -> str:
    if not planned.after:
        return "its place will be free by then"
    names = [short_name(name) for name in planned.after]
    named = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{named} {'is' if len(names) == 1 else 'are'} expected to end by then and free its place"


def _delay(planned: PlannedStart) -> str:
    if planned.delay is None:
        return ""
    words = _DELAYS[planned.delay].format(name=short_name(planned.delayed_by) or "another workload")
    return f"; it was postponed because {words}"


def _run_time_from(workload: Workload) -> str:
    """What the expected run time is based on: `its owner's estimate`; empty: it is unknown."""
    run_s = expected_run_s(workload)
    if not run_s:
        return ""
    if run_s == workload.estimate_s:
        return "its owner's estimate"
    is_learned = run_s == workload.learned_s and not workload.estimate_s
    return "earlier runs like it" if is_learned else "its time limit"


def _assumed(planned: PlannedStart, workload: Workload) -> str:
    if planned.run_s:
        by = f", by {_run_time_from(workload)}" if planned.run_s == expected_run_s(workload) else ""
        return f"; it is expected to run for {rounded_duration(planned.run_s)}{by}"
    return "; its run time is unknown, so its place is kept indefinitely"


_DELAYS = {
    DelayCause.OVERRAN: "{name} is running longer than expected",
    DelayCause.NODE: "node {name} is no longer available",
    DelayCause.OUTRANKED: "{name} now comes before it",
    DelayCause.TAKEN: "{name} is entitled to its place",
}
