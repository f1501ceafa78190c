"""Why nothing is taken from others, in words.

In:    one Obstacle of those that only a cycle can tell.   Out: what is in the way, with numbers.
"""

from kaiwo.explain.planned_start_sentences import gap_words
from kaiwo.model.amounts import amount
from kaiwo.model.obstacle import (
    EvictionBudgetSpent,
    NeverReclaims,
    NodeBound,
    Obstacle,
    OverQuota,
    ProtectedByBudget,
    ProtectedByMinRunTime,
    Protection,
    Reason,
    ReclaimBound,
    ReclaimScope,
    SearchGaveUp,
    WaitsUntil,
    WorkProtected,
)
from kaiwo.model.reservation import clock_words

IF_ALL_WENT = "even if all went that may be stopped or moved for it"
_RECLAIMABLE = "all that is free or may be taken from other queues"
_OF = {
    Reason.NOT_ENOUGH_MEMORY: " of memory",
    Reason.NOT_ENOUGH_FREE_GPU_MEMORY: " of GPU memory",
    Reason.NOT_ENOUGH_FREE_GPU_SHARE: " of one GPU",
}
_SCOPES = {
    ReclaimScope.CLUSTER: "",
    ReclaimScope.ALLOWED_DEVICES: " of the devices that it may use",
    ReclaimScope.ALLOWED_NODES: " on the nodes that it may use",
}


def may_not_take(o: Obstacle) -> str:
    """Its queue may not."""
    if isinstance(o.facts, NeverReclaims):
        return f"queue '{o.subject}' takes nothing from others: its reclaimStrategy is none"
    bound = "its quota" if isinstance(o.facts, OverQuota) else "its fair share"
    return (
        f"queue '{o.subject}' may not take from others: with this it would use {amount(o.need, o.unit)}, "
        f"and {bound} is {amount(o.have, o.unit)}"
    )


def too_little(o: Obstacle) -> str:
    """Proved: by sums over queues, by what single nodes could have, or by how many of its pods find room."""
    need, have = amount(o.need, o.unit), amount(o.have, o.unit)
    match o.facts:
        case NodeBound(None) if o.need == 1:
            return f"no node would have room for it {IF_ALL_WENT}{_protected(o)}"
        case NodeBound(None):
            return f"its {need} must start together, and there is room for {o.have} {IF_ALL_WENT}{_protected(o)}"
        case NodeBound(Reason() as short_of, resource):
            of = _OF.get(short_of, f" of {resource}" if resource else "")
            most = f"no node would have more than {have} {IF_ALL_WENT}"
            return f"it needs {need}{of} free on one node, and {most}{_protected(o)}"
        case ReclaimBound() as facts:
            return f"it needs {need}{_scope(o, facts)}, and {_RECLAIMABLE} is {have} ({_parts(o, facts)})"
    return f"it needs {need}, and {_RECLAIMABLE} is {have}"


def _scope(o: Obstacle, facts: ReclaimBound) -> str:
    """What the sum is of."""
    if facts.resource:
        return f" of {facts.resource}"
    of = " of memory" if o.unit == "mib" else ""
    return of + (f" of {' or '.join(facts.models)}" if facts.models else _SCOPES[facts.scope])


def _parts(o: Obstacle, facts: ReclaimBound) -> str:
    parts = [f"{amount(facts.free, o.unit)} free"]
    parts += [f"{amount(facts.moved, o.unit)} by moving work"] if facts.moved else []
    parts += [f"{amount(each.amount, o.unit)} in {each.queue}" for each in facts.queues]
    return "; ".join([", ".join(parts), *map(_protection, facts.protections)])


def _protected(o: Obstacle) -> str:
    found = _protections(o)
    return f" ({found})" if found else ""


def _protections(o: Obstacle) -> str:
    if isinstance(o.facts, ReclaimBound | NodeBound | SearchGaveUp | WorkProtected):
        return "; ".join(map(_protection, o.facts.protections))
    return ""


def _protection(protection: Protection) -> str:
    match protection:
        case ProtectedByBudget(queue, milli, workloads, more, why):
            shown = ", ".join(workloads) + (f" and {more} more" if more else "")
            gpus = amount(milli, "milli-gpu")
            if why:
                return f"{gpus} in {queue} cannot be taken back ({shown}): {why}"
            return f"disruption budgets keep {gpus} in {queue} ({shown})"
        case ProtectedByMinRunTime(queue, milli, least_s):
            return f"minimum run times of {least_s} s keep {amount(milli, 'milli-gpu')} in {queue}"
        case EvictionBudgetSpent(queue, per_hour):
            return f"of queue {queue} at most {per_hour} workloads an hour are stopped for others"


def protected(o: Obstacle) -> str:
    """Work of lower priority."""
    kept = _protections(o)
    return f"less important work runs in queue '{o.subject}', and may not be stopped for it now" + (
        f": {kept}" if kept else ""
    )


def no_way(o: Obstacle) -> str:
    """Undecided. Of work that needs nothing that is counted the other obstacles name what is short."""
    tried = o.facts.tried if isinstance(o.facts, SearchGaveUp) else 0
    searched = (
        f"undecided: {tried} pieces of running work were tried in their order"
        if tried
        else "undecided: nothing was tried, since no work that goes first stands where it would help"
    )
    searched = "; ".join(filter(None, (searched, _protections(o))))
    if not o.need:
        return f"work of other queues may be stopped for it, and no way was found to make room by that ({searched})"
    of = " of memory" if o.unit == "mib" else ""
    return (
        f"{amount(o.have, o.unit)}{of} are free or may be taken from other queues, and no way was found to make room "
        f"for {amount(o.need, o.unit)} of them together ({searched})"
    )


def held_off(o: Obstacle) -> str:
    """The time that is left is there for whoever asks."""
    left = f" (in {gap_words(o.need)})" if o.need else ""
    return (
        f"{o.subject.removeprefix('default/')} could take room back from others, and had to go for others itself: "
        f"it stops nobody before {_until(o)}{left}, by the policy's holdOff"
    )


def patient(o: Obstacle) -> str:
    """The same."""
    left = f" (in {gap_words(o.need)})" if o.need else ""
    return (
        f"{o.subject.removeprefix('default/')} could take room from others, and asked to wait first: "
        f"it stops nobody before {_until(o)}{left}, by its preemption delay"
    )


def _until(o: Obstacle) -> str:
    return clock_words(o.facts.at_s) if isinstance(o.facts, WaitsUntil) else "some time"
