"""Sentences about a running gang that lacks pods: what is missing, when it is stopped, and which places are kept."""

from kaiwo.decide.actions.make_room import stale_from_s
from kaiwo.decide.make_room.nominations import kept_until_s
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.plan import Nomination
from kaiwo.model.policy import Policy
from kaiwo.model.workload import ACTIVE_PHASES, Workload, has_required_pods
from kaiwo.snapshot.cluster_state import ClusterState

MAX_NODES = 4


def below_minimum(state: ClusterState, name: str, policy: Policy, now_s: int) -> str:
    """`running with 11 of the 12 pods that it needs; all of them will be stopped in 42 s unless ...`; empty: it is not
    below its minimum."""
    if name not in state.below_minimum:
        return ""
    workload = state.workloads[name]
    up = {pod.name for pod in state.pods.get(name, {}).values() if pod.phase in ACTIVE_PHASES}
    if not up:
        return ""
    return f"running with {_count(workload, len(up))}; {_end(state, workload, up, policy, now_s)}"


def kept_places(state: ClusterState, name: str, policy: Policy, now_s: int) -> str:
    """`the place of 1 lost pod on node-3 is kept for its replacement for another 4 min`; empty: none is."""
    found = [each for each in state.nominations.get(name, {}).values() if each.lost_s]
    return "; ".join(
        text
        for is_awaited in (False, True)
        if (text := _kept([each for each in found if each.is_awaited == is_awaited], is_awaited, policy, now_s))
    )


def _kept(kept: list[Nomination], is_awaited: bool, policy: Policy, now_s: int) -> str:
    if not kept:
        return ""
    nodes = sorted({each.node for each in kept})
    more = f" and {len(nodes) - MAX_NODES} more nodes" if len(nodes) > MAX_NODES else ""
    where = f"{', '.join(nodes[:MAX_NODES])}{more}"
    left_s = max(0, min(kept_until_s(each, policy.keep_lost_place_s) for each in kept) - now_s)
    due_s = min(each.due_s for each in kept)
    is_one = len(kept) == 1
    are = "is" if is_one else "are"
    if is_awaited:
        who, it = ("place of 1 pod", "it exists") if is_one else (f"places of {len(kept)} pods", "they exist")
        left = rounded_duration(left_s)
        return f"the {who} on {where} {are} kept until {it}: the leader comes first; for another {left}"
    what = "the place of 1 lost pod" if is_one else f"the places of {len(kept)} lost pods"
    whose = "its replacement" if is_one else "their replacements"
    text = f"{what} on {where} {are} kept for {whose} for another {rounded_duration(left_s)}"
    if due_s > now_s:
        text += f"; no replacement is expected in the next {rounded_duration(due_s - now_s)}"
    return text


def _count(workload: Workload, running: int) -> str:
    needed = sum(role.needed for role in workload.roles)
    if workload.groups:  # not every role must run
        return f"{running} {'pod' if running == 1 else 'pods'}, which is below its minimum"
    return f"{running} of the {needed} pods that it needs"


def _end(state: ClusterState, workload: Workload, up: set[str], policy: Policy, now_s: int) -> str:
    if has_required_pods(workload, up | set(state.nominations.get(workload.name, ()))):
        return "space is being freed for the rest"
    if "stale-gangs" not in policy.actions or not (from_s := stale_from_s(workload, policy)):
        return "the rest start when there is room"
    left_s = from_s - now_s
    when = f"in {rounded_duration(left_s)}" if left_s > 0 else "now"
    return f"all of them will be stopped {when} unless the rest start before"
