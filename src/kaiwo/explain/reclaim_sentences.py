"""Sentences about making room: why nothing is reclaimed, preempted or moved for a waiting workload."""

from msgspec.structs import replace

from kaiwo.explain.change_sentences import short_name
from kaiwo.model.amounts import amount, rounded_duration, unit_of_extended
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

ALL_EVICTED = "even if all work that may be evicted or moved for it were gone"
_OF = {
    Reason.NOT_ENOUGH_MEMORY: " of memory",
    Reason.NOT_ENOUGH_FREE_GPU_MEMORY: " of GPU memory",
    Reason.NOT_ENOUGH_FREE_GPU_SHARE: " of one GPU",
}
_SCOPES = {
    ReclaimScope.CLUSTER: "",
    ReclaimScope.ALLOWED_DEVICES: " on the GPUs that it may use",
    ReclaimScope.ALLOWED_NODES: " on the nodes that it may use",
}


def may_not_reclaim(o: Obstacle) -> str:
    refused = f"queue '{o.subject}' may not reclaim from other queues"
    if isinstance(o.facts, NeverReclaims):
        return f"{refused}: its reclaimStrategy is none"
    bound = "quota" if isinstance(o.facts, OverQuota) else "fair share"
    use = f"with this workload it would use {amount(o.need, o.unit, o.have)}"
    return f"{refused}: {use}, and its {bound} is {amount(o.have, o.unit, o.need)}"


def not_enough_reclaimable(o: Obstacle) -> str:
    """Proved: by sums over queues, by what single nodes could have, or by how many of its pods find room."""
    if isinstance(o.facts, NodeBound | ReclaimBound) and o.facts.resource:
        o = replace(o, unit=unit_of_extended(o.facts.resource))
    need, have = amount(o.need, o.unit, o.have), amount(o.have, o.unit, o.need)
    match o.facts:
        case NodeBound(level=level, domain=domain) if level:
            closest = (
                f"{domain} would have room for only {o.have}" if o.have else "none would have room for any of them"
            )
            return f"its {need} must run in one {level}, but {closest} {ALL_EVICTED}{_in_brackets(o)}"
        case NodeBound(None) if o.need == 1:
            return f"no node would have room for it {ALL_EVICTED}{_in_brackets(o)}"
        case NodeBound(None):
            room = f"there would be room for only {o.have}" if o.have else "there would be no room for any of them"
            return f"its {need} must start together, but {room} {ALL_EVICTED}{_in_brackets(o)}"
        case NodeBound(Reason() as short_of, resource):
            of = _OF.get(short_of, f" of {resource}" if resource else "")
            most = f"no node would have more than {have} {ALL_EVICTED}"
            return f"it needs {need}{of} free on one node, but {most}{_in_brackets(o)}"
        case ReclaimBound() as facts:
            every = (o.need, o.have, facts.free, facts.moved, *(each.amount for each in facts.queues))
            most = f"what is free or can be reclaimed from other queues adds up to {amount(o.have, o.unit, *every)}"
            asked = f"{amount(o.need, o.unit, *every)}{_scope(o, facts)}"
            return f"it needs {asked}, but {most} ({_parts(o, facts, every)})"
    return f"it needs {need}, but what is free or can be reclaimed from other queues adds up to {have}"


def no_victims_found(o: Obstacle) -> str:
    """Undecided. Where the workload needs nothing that is counted, the other obstacles name what is short."""
    tried = o.facts.tried if isinstance(o.facts, SearchGaveUp) else 0
    searched = (
        f"undecided: {tried} running pods or gangs were tried in order, but not every combination of them"
        if tried
        else "undecided: nothing was tried, because no work that would be evicted first runs where it would help"
    )
    searched = "; ".join(filter(None, (searched, _protections(o))))
    if not o.need:
        return f"work in other queues may be evicted for it, but no way to make room was found ({searched})"
    of = " of memory" if o.unit == "mib" else ""
    need, have = amount(o.need, o.unit, o.have), amount(o.have, o.unit, o.need)
    return (
        f"it needs {need}{of}, and {have} would be free or reclaimable from other queues, "
        f"but no way to make room was found ({searched})"
    )


def lower_priority_protected(o: Obstacle) -> str:
    protections = _protections(o)
    text = f"work of lower priority runs in queue '{o.subject}', but may not be evicted now"
    return f"{text}: {protections}" if protections else text


def preemption_cooldown(o: Obstacle) -> str:
    name, until = short_name(o.subject), _until(o)
    return f"{name} was preempted recently and may not preempt other work before {until} (the policy's holdOff)"


def preemption_delay(o: Obstacle) -> str:
    return f"{short_name(o.subject)} may not preempt other work before {_until(o)} (its own preemption delay)"


def _until(o: Obstacle) -> str:
    """The end of the delay, and how far off that is, if the question is asked now."""
    at = clock_words(o.facts.at_s) if isinstance(o.facts, WaitsUntil) else "a later time"
    return at + (f", in {rounded_duration(o.need)}" if o.need else "")


def _scope(o: Obstacle, facts: ReclaimBound) -> str:
    if facts.resource:
        return f" of {facts.resource}"
    of = " of memory" if o.unit == "mib" else ""
    return of + (f" of {' or '.join(facts.models)}" if facts.models else _SCOPES[facts.scope])


def _parts(o: Obstacle, facts: ReclaimBound, every: tuple[int, ...]) -> str:
    parts = [f"{amount(facts.free, o.unit, *every)} free"]
    parts += [f"{amount(facts.moved, o.unit, *every)} by moving work"] if facts.moved else []
    parts += [f"{amount(each.amount, o.unit, *every)} in queue {each.queue}" for each in facts.queues]
    return "; ".join([", ".join(parts), *map(_protection, facts.protections)])


def _in_brackets(o: Obstacle) -> str:
    protections = _protections(o)
    return f" ({protections})" if protections else ""


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
                return f"{gpus} in queue {queue} cannot be reclaimed ({shown}): {why}"
            return f"disruption budgets protect {gpus} in queue {queue} ({shown})"
        case ProtectedByMinRunTime(queue, milli, least_s):
            least = rounded_duration(least_s)
            return f"minimum run times of {least} protect {amount(milli, 'milli-gpu')} in queue {queue}"
        case EvictionBudgetSpent(queue, per_hour):
            return f"at most {amount(per_hour, 'workloads')} of queue {queue} may be evicted per hour"
