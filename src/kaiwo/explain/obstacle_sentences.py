"""Obstacles into sentences: the same words in the CLI, on the page, and later in Events and conditions.

In:    one Obstacle.   Out: what is in the way, with numbers, and what would remove it.
"""

from collections.abc import Callable

from kaiwo.explain import gang_sentences, reclaim_sentences
from kaiwo.explain.planned_start_sentences import gap_words
from kaiwo.explain.possible_changes import MIN_FRACTION_MILLI
from kaiwo.model.amounts import amount
from kaiwo.model.obstacle import (
    ClosestNode,
    LargerNodes,
    ModelsPresent,
    ModeMissing,
    MoreBesideTenants,
    MpsOnAmd,
    NeverReclaims,
    NodesExcluded,
    NoSuchMode,
    NotOffered,
    Obstacle,
    QueueBound,
    Reason,
    ReservationProblem,
    ReservationUnusable,
    ReservedBy,
    RetryReason,
    RunTime,
    RunTimeSource,
    SizeBound,
    TopologyLabelMissing,
    VendorMissing,
)
from kaiwo.model.reservation import ENDLESS_S, clock_words, times_words


def sentence(obstacle: Obstacle) -> str:
    """What is in the way."""
    text = _WORDS[obstacle.reason][0](obstacle)
    return f"{text} ({obstacle.detail})" if obstacle.detail else text


def remedy(obstacle: Obstacle) -> str:
    """What would remove it."""
    return _WORDS[obstacle.reason][1](obstacle)


def before_start(obstacle: Obstacle) -> str:
    """What helps beside naming another reservation."""
    facts = obstacle.facts
    is_to_come = isinstance(facts, ReservationUnusable) and facts.problem is ReservationProblem.NOT_STARTED
    return "wait for its start, or " if is_to_come else ""


def _model(obstacle: Obstacle) -> str:
    """The limit or quota of one GPU model."""
    facts = obstacle.facts
    return f" of {facts.model}" if isinstance(facts, QueueBound) and facts.model else ""


def _is_beyond(o: Obstacle) -> bool:
    """It needs more than the limit is, not only more than is left of it."""
    return isinstance(o.facts, QueueBound) and o.facts.bound < o.need


def _more_of_limit(o: Obstacle) -> str:
    """Who may use GPUs of other models waits for those."""
    more = f"raise its limit by {amount(o.need - o.have, o.unit)}"
    if not _is_beyond(o):
        return f"{more}, or wait for work in it to end"
    return f"{more}; waiting {'helps only if it may use other models' if _model(o) else 'does not help'}"


def _need(o: Obstacle) -> str:
    return amount(o.need, o.unit)


def _have(o: Obstacle) -> str:
    return amount(o.have, o.unit)


def _is_size(o: Obstacle) -> bool:
    """No node is large enough, whatever comes free."""
    return isinstance(o.facts, SizeBound)


def _size(o: Obstacle, of: str = "") -> str:
    """What the largest node has, or the largest part of a reservation on one node."""
    if o.subject and not of:
        most = f"reservation '{o.subject}' has at most {_have(o)} on one node"
    else:
        most = f"the largest node{_may_use(o)} has {_have(o)}"
    return f"it asks for {_need(o)}{of} on one node, and {most}"


def _free(o: Obstacle, of: str = "") -> str:
    """One resource is short on every node, or each is there and never all on one node."""
    if _is_size(o):
        return _size(o, of)
    if isinstance(o.facts, ClosestNode):
        return (
            f"no single node has all that it needs free at once: it needs {_need(o)}{of}, "
            f"and {o.facts.node}, which comes closest, has {_have(o)} free"
        )
    pool = f" of reservation '{o.subject}'" if o.reason is Reason.NOT_ENOUGH_FREE_GPUS and o.subject else ""
    return f"it needs {_need(o)}{of} free on one node, and the best node has {_have(o)}{pool} free"


def _free_on_device(o: Obstacle, of: str = "") -> str:
    if isinstance(o.facts, MoreBesideTenants):
        more = "there is more beside tenants from whom it could not be kept apart"
        return f"it needs {_need(o)}{of} free{_on_each(o)}, and the best has {_have(o)} free; {more}"
    if o.facts is not None:
        return _free(o, f"{of}{_on_each(o)}")
    if o.subject:
        so_many = f"the best node has {_have(o)} on each of so many"
        return f"it needs {_need(o)}{of} free{_on_each(o)} of one node, and {so_many}"
    return f"it needs {_need(o)}{of} free{_on_each(o)}, and the best has {_have(o)} free"


def _less(o: Obstacle) -> str:
    if _is_size(o):
        return _smaller(o)
    least = MIN_FRACTION_MILLI if o.reason is Reason.NOT_ENOUGH_FREE_GPU_SHARE else 1
    wait = "wait for running work to end"
    return f"ask for {_have(o)} or less, or {wait}" if o.have >= least else wait


def _smaller(o: Obstacle) -> str:
    if isinstance(o.facts, SizeBound) and o.facts.larger is LargerNodes.LARGE_ENOUGH:
        wait = "wait until a larger one may be used"
        return f"ask for {_have(o)} or less, or {wait}" if o.have > 0 else wait
    return (
        f"ask for {_have(o)} or less; waiting does not help" if o.have > 0 else "no node of this cluster can serve it"
    )


def _are(o: Obstacle) -> str:
    return "is" if o.need == 1 else "are"


def _reserved(o: Obstacle) -> str:
    """`GPUs that it could use belong to reservation 'night', for queue lab until ...; 8 of them are free`."""
    what = f"{'nodes' if o.unit == 'nodes' else 'GPUs'} that it could use belong to reservation '{o.subject}'"
    if not isinstance(o.facts, ReservedBy):
        return what
    facts = o.facts
    text = f"{what}, for {facts.owner.words} {times_words(facts.start_s, facts.end_s)}"
    if facts.is_endless or facts.overruns:
        ends = "has no time limit" if facts.is_endless else "would run past that"
        text += f", and this work may not be preempted and {ends}"
    if facts.mode:
        text += f", and are not in {facts.mode} mode"
    return text + (f"; {facts.free} of them {'is' if facts.free == 1 else 'are'} free" if facts.free else "")


def _unusable(o: Obstacle) -> str:
    """The reservation that it names."""
    named = f"it names reservation '{o.subject}'"
    match o.facts:
        case ReservationUnusable(ReservationProblem.OTHER_OWNER, owner):
            return f"{named}, and it is for {owner.words}"
        case ReservationUnusable(ReservationProblem.NOT_STARTED, _, start_s, end_s):
            return f"{named}, and it holds {times_words(start_s, end_s)}"
        case ReservationUnusable():
            return f"{named}, and that is over, or was never made"
    return f"{named}, which it cannot use"


def _promised(o: Obstacle) -> str:
    """It would fit, and would still be there when a planned start needs the place."""
    is_known = 0 < o.need < ENDLESS_S
    run = f"it may run for {gap_words(o.need)}" if is_known else "nobody said how long it runs"
    why = f" ({_RUN_TIMES[o.facts.source]})" if isinstance(o.facts, RunTime) else ""
    return f"its place is promised to {_short(o.subject)}, in {gap_words(o.have)}, and {run}{why}"


_RUN_TIMES = {
    RunTimeSource.EARLIER_RUNS: "as earlier runs like it did",
    RunTimeSource.TIME_LIMIT: "it may not be stopped, so only a time limit counts",
}


def _short(name: str) -> str:
    """`default/train` is `train` to people."""
    return name.removeprefix("default/")


def _may_use(o: Obstacle) -> str:
    return " that it may use" if isinstance(o.facts, SizeBound) and not o.facts.is_of_all_nodes else ""


def _largest_gpu(o: Obstacle) -> str:
    return f"the largest GPU of reservation '{o.subject}'" if o.subject else f"the largest GPU{_may_use(o)}"


def _no_pods(o: Obstacle) -> str:
    if _is_size(o):
        return f"no node{_may_use(o)} takes any pods"
    if isinstance(o.facts, ClosestNode):
        closest = f"{o.facts.node}, which comes closest, runs as many pods as it may"
        return f"no single node has all that it needs free at once: {closest}"
    return "every node that it could use runs as many pods as it may"


def _in_other_mode(o: Obstacle) -> str:
    if isinstance(o.facts, NoSuchMode):
        has = "; ".join(f"{each.model} has {', '.join(each.modes) or 'no modes'}" for each in o.facts.supported)
        return f"no GPU of this cluster can be in {o.subject} mode: {has}"
    node, changing = (o.facts.node, o.facts.changing) if isinstance(o.facts, ModeMissing) else ("", 0)
    if node:
        more = f"; {_gpus_that(changing, 'change')} to it" if changing else ", and its other GPUs could change to it"
        return f"it needs {_need(o)} in {o.subject} mode on one node, and {node} has {_have(o)} in it now{more}"
    if changing:
        return f"no GPU is in {o.subject} mode yet; {_gpus_that(changing, 'change')} to it"
    return f"no GPU is in {o.subject} mode, and {amount(o.have, o.unit)} could be"


def _other_mode_remedy(o: Obstacle) -> str:
    if isinstance(o.facts, NoSuchMode):
        return "ask for a mode that there is; waiting does not help"
    if isinstance(o.facts, ModeMissing) and o.facts.changing:
        return "wait for that change (kaiwo partitions shows it)"
    if isinstance(o.facts, ModeMissing) and o.facts.node:
        less = f", or ask for {_have(o)} or less" if o.have else ""
        return f"let GPUs change (kaiwo partitions shows the plan){less}"
    return "let idle GPUs change (kaiwo partitions shows the plan), or ask for what there is (kaiwo gpus)"


def _gpus_that(count: int, verb: str) -> str:
    return f"{amount(count, 'gpus')} {verb}{'s' if count == 1 else ''}"


def _no_match(o: Obstacle) -> str:
    """By its node selector or affinity, or by the vendor's name in the resource that it asks for."""
    if isinstance(o.facts, VendorMissing):
        vendor, nodes = o.facts.vendor, o.facts.nodes
        return f"it asks for {vendor}.com/gpu, and none of the {nodes} nodes has a GPU of {vendor}"
    return f"{_nodes(o)} do not match its node selector or affinity"


def _nodes(o: Obstacle) -> str:
    """`7 of 8 nodes`."""
    return f"{o.facts.excluded} of {o.facts.total} nodes" if isinstance(o.facts, NodesExcluded) else "some nodes"


def _no_model(o: Obstacle) -> str:
    has = f": the cluster has {', '.join(o.facts.models) or 'no GPUs'}" if isinstance(o.facts, ModelsPresent) else ""
    return f"no node has {o.subject}{has}"


def _no_extended(o: Obstacle) -> str:
    if isinstance(o.facts, NotOffered):
        return f"it needs {o.need} of {o.subject}, and no node of this cluster offers {o.subject}"
    return _free(o, f" of {o.subject}")


def _less_extended(o: Obstacle) -> str:
    if isinstance(o.facts, NotOffered):
        return f"check the name {o.subject}, or add a node that offers it; waiting does not help"
    return _smaller(o) if _is_size(o) else f"ask for less of {o.subject}, or wait for running work to end"


Words = Callable[[Obstacle], str]

_WORDS: dict[Reason, tuple[Words, Words]] = {
    Reason.HELD: (lambda o: "it is held", lambda o: f"release it: kaiwo release {o.subject}"),
    Reason.DEPENDENCY: (
        lambda o: f"it waits until {o.subject} has succeeded",
        lambda o: f"wait for {o.subject}, or submit it without --after",
    ),
    Reason.DEPENDENCY_FAILED: (
        lambda o: f"{o.subject}, which had to succeed first, did not",
        lambda o: f"requeue {o.subject}, or submit this without --after",
    ),
    Reason.NOT_BEFORE: (
        lambda o: (
            f"it is not tried before {clock_words(o.need)}"
            + (f": {o.facts.why}" if isinstance(o.facts, RetryReason) else "")
        ),
        lambda o: "wait; it is tried again by itself",
    ),
    Reason.NO_QUEUE: (
        lambda o: f"there is no queue '{o.subject}'",
        lambda o: "create it with kaiwo apply, or submit to another queue (kaiwo queue lists them)",
    ),
    Reason.QUEUE_NOT_LEAF: (
        lambda o: f"queue '{o.subject}' has queues below it and takes no work itself",
        lambda o: f"submit to one of the queues below '{o.subject}'",
    ),
    Reason.QUEUE_LIMIT: (
        lambda o: f"queue '{o.subject}' has {_have(o)} left of its limit{_model(o)}, and this needs {_need(o)}",
        _more_of_limit,
    ),
    Reason.OVER_FAIR_SHARE: (
        reclaim_sentences.may_not_take,
        lambda o: (
            "wait for work to end, or give the queue another reclaimStrategy"
            if isinstance(o.facts, NeverReclaims)
            else "wait for work to end, or raise the queue's quota or weight"
        ),
    ),
    Reason.NOT_ENOUGH_RECLAIMABLE: (
        reclaim_sentences.too_little,
        lambda o: "ask for less, or wait for work to end",
    ),
    Reason.NO_WAY_TO_RECLAIM: (
        reclaim_sentences.no_way,
        lambda o: "ask for less, or wait for work to end",
    ),
    Reason.PATIENT: (
        reclaim_sentences.patient,
        lambda o: "wait; it is tried again by itself then, or sooner if work ends",
    ),
    Reason.HELD_OFF: (
        reclaim_sentences.held_off,
        lambda o: "wait; it is tried again by itself then, or sooner if work ends",
    ),
    Reason.NO_WAY_TO_PREEMPT: (
        reclaim_sentences.protected,
        lambda o: "wait for work to end, or loosen what keeps it",
    ),
    Reason.QUEUE_QUOTA: (
        lambda o: (
            f"queue '{o.subject}' has {_have(o)} left of its quota{_model(o)}, "
            f"and this may not be preempted and needs {_need(o)}"
        ),
        lambda o: (
            "let it be preempted (submit it without --no-preempt), or raise the quota by "
            f"{amount(o.need - o.have, o.unit)}"
        ),
    ),
    Reason.NO_NODES: (lambda o: "the cluster has no nodes", lambda o: "add a node"),
    Reason.NODE_NOT_READY: (lambda o: f"{_nodes(o)} are not ready", lambda o: "look at kaiwo nodes for the reason"),
    Reason.NODE_CORDONED: (lambda o: f"{_nodes(o)} are cordoned", lambda o: "uncordon one: kaiwo nodes uncordon NODE"),
    Reason.NODE_RULES: (
        _no_match,
        lambda o: (
            "ask for GPUs that the cluster has (kaiwo gpus lists them), or add a node with such GPUs"
            if isinstance(o.facts, VendorMissing)
            else "loosen the node selector, or label a node"
        ),
    ),
    Reason.NODE_TAINTED: (
        lambda o: f"{_nodes(o)} have taints that it does not tolerate",
        lambda o: "add a toleration, or remove the taint",
    ),
    Reason.NODE_AVOIDED: (
        lambda o: f"it failed to start on {_nodes(o)} and avoids them",
        lambda o: "mend the node, then requeue the workload",
    ),
    Reason.PODS_NOT_NEAR: (
        lambda o: f"{_nodes(o)} have none of the pods nearby that it must be near ({o.subject})",
        lambda o: "start those pods first, or prefer to be near them (podAffinity)",
    ),
    Reason.PODS_TOO_NEAR: (
        lambda o: f"{_nodes(o)} are too near to pods that it must be apart from, or they from it ({o.subject})",
        lambda o: "wait until those pods go, add a node, or prefer to be apart (podAntiAffinity)",
    ),
    Reason.PODS_UNEVEN: (
        lambda o: (
            f"it must be spread over places that do not exist: no node has the label {o.facts.label}"
            if isinstance(o.facts, TopologyLabelMissing)
            else f"on {_nodes(o)} such pods would be spread too unevenly ({o.subject})"
        ),
        lambda o: (
            "label the nodes, spread over a label that they have (topologyKey), or say ScheduleAnyway"
            if isinstance(o.facts, TopologyLabelMissing)
            else "make room in the places that have fewest, raise maxSkew, or say ScheduleAnyway"
        ),
    ),
    Reason.PORT_TAKEN: (
        lambda o: f"{_nodes(o)} have the port that it asks for in use ({o.subject})",
        lambda o: "wait until the pod that has it goes, add a node, or ask for another hostPort",
    ),
    Reason.GPU_MODEL: (
        _no_model,
        lambda o: "ask for a model that the cluster has, or for any",
    ),
    Reason.GPU_UNHEALTHY: (
        lambda o: "every GPU that it could use is unhealthy",
        lambda o: "look at kaiwo gpus for the reason",
    ),
    Reason.GPU_ISOLATION: (
        lambda o: (
            'its isolation is "mps", which does not exist on AMD GPUs, and there are no others'
            if isinstance(o.facts, MpsOnAmd)
            else f"{_nodes(o)} cannot keep a share of a GPU apart as it asks"
        ),
        lambda o: (
            "ask for time-slicing, cu-mask or a partition; waiting does not help"
            if isinstance(o.facts, MpsOnAmd)
            else "ask for a weaker grade or any method, or for a partition or a whole GPU"
        ),
    ),
    Reason.PARTITION_MODE: (
        _in_other_mode,
        _other_mode_remedy,
    ),
    Reason.NOT_ENOUGH_GPUS: (
        _size,
        _smaller,
    ),
    Reason.NOT_ENOUGH_GPU_MEMORY: (
        lambda o: f"it asks for {_need(o)} of one GPU, and {_largest_gpu(o)} has {_have(o)}",
        _smaller,
    ),
    Reason.NOT_ENOUGH_FREE_GPUS: (
        _free,
        _less,
    ),
    Reason.NOT_ENOUGH_FREE_GPU_SHARE: (
        _free_on_device,
        _less,
    ),
    Reason.NOT_ENOUGH_FREE_GPU_MEMORY: (
        lambda o: _free_on_device(o, " of GPU memory"),
        _less,
    ),
    Reason.NOT_ENOUGH_CPU: (
        _free,
        _less,
    ),
    Reason.NOT_ENOUGH_MEMORY: (
        lambda o: _free(o, " of memory"),
        _less,
    ),
    Reason.NOT_ENOUGH_PODS: (
        _no_pods,
        lambda o: _smaller(o) if _is_size(o) else "wait for running work to end",
    ),
    Reason.NOT_ENOUGH_EXTENDED: (
        _no_extended,
        _less_extended,
    ),
    Reason.GANG: (
        gang_sentences.no_room,
        gang_sentences.more_room,
    ),
    Reason.RESERVED: (
        _reserved,
        lambda o: "wait until the reservation is over, or ask who has it (kaiwo reservations)",
    ),
    Reason.RESERVATION: (
        _unusable,
        lambda o: f"{before_start(o)}name another one or none (kaiwo reservations lists them)",
    ),
    Reason.EXPIRED: (
        lambda o: f"its allocation was given until {clock_words(o.need)}",
        lambda o: "submit it again with a later --expires, or without one",
    ),
    Reason.NOMINATED: (
        lambda o: f"{_need(o)} are kept for {o.subject}",
        lambda o: "wait; the space is given out again when it is not used",
    ),
    Reason.PROMISED: (
        _promised,
        lambda o: (
            f"give {'a --time' if o.facts else 'an --estimate or a --time'} below {gap_words(o.have)} if it takes no"
            f" longer, or wait until {_short(o.subject)} has started"
            if o.have
            else f"wait until {_short(o.subject)} has started"
        ),
    ),
    Reason.RELEASING: (
        lambda o: (
            f"{_need(o)} of its last run {_are(o)} still being stopped"
            if o.subject
            else f"it waits for others who are leaving: they still hold the space that is kept for {_need(o)} of it"
        ),
        lambda o: "wait a moment; it is tried again when they are gone",
    ),
    Reason.PLUGIN: (
        lambda o: "no node is left after all filters",
        lambda o: "look at the filters of the policy",
    ),
    Reason.NOT_TRIED: (
        lambda o: "it has not been tried yet",
        lambda o: "wait; the next cycles try it",
    ),
}


def _on_each(o: Obstacle) -> str:
    return f" on each of {o.subject}" if o.subject else " on one GPU"
