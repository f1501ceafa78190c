"""Sentences about resources that are short: on one node, on one device, or for a whole gang."""

from kaiwo.explain.possible_changes import MIN_FRACTION_MILLI
from kaiwo.model.amounts import amount, compared_memory, unit_of_extended
from kaiwo.model.gpus.gpu import rule_words
from kaiwo.model.obstacle import (
    ClosestNode,
    FloatingPool,
    GangBound,
    GangLimit,
    LargerNodes,
    MoreBesideTenants,
    NotOffered,
    Obstacle,
    Reason,
    ShareBound,
    SharedByOthers,
    SizeBound,
)
from kaiwo.model.request import MAX_MIB

WAIT = "wait for running work to end"
_OF_RESERVATION = (
    Reason.NOT_ENOUGH_GPUS, Reason.NOT_ENOUGH_FREE_GPUS, Reason.NOT_ENOUGH_CPU, Reason.NOT_ENOUGH_MEMORY,
    Reason.NOT_ENOUGH_PODS,
)  # fmt: skip
_COUNTED = ("gpus", "devices", "pods", "nodes")


def too_large(o: Obstacle, of: str = "") -> str:
    """No node is that large, or a reservation has too little on any one node."""
    if isinstance(o.facts, SizeBound) and o.facts.node:
        return _closest_when_empty(o, of)
    if (pool := _reservation(o)) and o.unit == "gpus":
        most = f"reservation '{pool}' has at most {have_words(o)} on one node"
    elif pool:
        most = f"the largest node of reservation '{pool}' has {have_words(o)}"
    else:
        most = f"the largest node{_may_use(o)} has {have_words(o)}"
    return f"it asks for {need_words(o)}{of} on one node, but {most}"


def device_too_small(o: Obstacle) -> str:
    if isinstance(o.facts, SizeBound) and o.facts.node:
        return _closest_when_empty(o, " of one GPU")
    largest = f"the largest GPU of reservation '{o.subject}'" if o.subject else f"the largest GPU{_may_use(o)}"
    return f"it asks for {need_words(o)} of one GPU, but {largest} has {have_words(o)}"


def not_free(o: Obstacle, of: str = "") -> str:
    """One resource is short on every node, or all are free somewhere but never on one node."""
    if isinstance(o.facts, SizeBound):
        return too_large(o, of)
    if isinstance(o.facts, ClosestNode):
        closest = f"the closest is {o.facts.node}, which has {have_words(o)} free"
        return f"no single node has everything it needs free at once: it needs {need_words(o)}{of}, and {closest}"
    if not (pool := _reservation(o)):
        most = _most_free("node", o)
    elif o.unit == "gpus":
        most = _most_free("node", o, f" of reservation '{pool}'")
    else:
        most = _most_free(f"node of reservation '{pool}'", o)
    return f"it needs {need_words(o)}{of} free on one node, but {most}"


def not_free_on_device(o: Obstacle, of: str = "") -> str:
    """The same for single devices, or for each of several."""
    on_each = f" on each of {o.subject}" if o.subject else " on one GPU"
    if isinstance(o.facts, SizeBound | ClosestNode):
        return not_free(o, f"{of}{on_each}")
    if o.subject and not isinstance(o.facts, MoreBesideTenants):
        most = f"{_most_free('node', o)} on each of that many"
        return f"it needs {need_words(o)}{of} free{on_each} of one node, but {most}"
    more = "; tenants from which it could not be isolated share GPUs with more" if o.facts else ""
    return f"it needs {need_words(o)}{of} free{on_each}, but {_most_free('GPU', o)}{more}"


def may_not_share(o: Obstacle) -> str:
    what = "memory" if o.unit == "mib" else "share"
    text = f"GPUs with enough free {what} are used by others with whom it may not share"
    if not isinstance(o.facts, SharedByOthers):
        return text
    facts = o.facts
    if facts.queues:
        text += f", of {'queue' if len(facts.queues) == 1 else 'queues'} {', '.join(facts.queues)}"
    if not facts.rule:
        return f"{text}: a rule of that work, of its queue or of the node excludes it"
    whose = "it asked to share" if facts.is_own else "by a rule of its queue or of the policy, it shares"
    return f"{text}: {whose} a GPU with {rule_words(facts.rule)} only".replace("with nobody only", "with nobody")


def share_too_large(o: Obstacle) -> str:
    queue = o.facts.queue if isinstance(o.facts, ShareBound) else ""
    bound = f"queue {queue} allows at most" if queue else "no node allows more than"
    return f"its share would take {need_words(o)} of one GPU, but {bound} {have_words(o)} for one share"


def share_with_more(o: Obstacle) -> str:
    is_own = isinstance(o.facts, SharedByOthers) and o.facts.is_own
    return f"submit it with another --share-with, or {WAIT}" if is_own else WAIT


def share_with_more_in_kubernetes(o: Obstacle) -> str:
    is_own = isinstance(o.facts, SharedByOthers) and o.facts.is_own
    return f"create it again with another kaiwo.ai/gpu-share-with, or {WAIT}" if is_own else WAIT


def no_pod_slots(o: Obstacle) -> str:
    if isinstance(o.facts, SizeBound) and o.facts.node:
        closest = f"the closest is {o.facts.node}, which accepts no pods"
        return f"no single node has everything it needs, even when empty: {closest}"
    if isinstance(o.facts, SizeBound):
        return f"no node{_may_use(o)} accepts any pods"
    if isinstance(o.facts, ClosestNode):
        closest = f"the closest is {o.facts.node}, which already runs as many pods as it may"
        return f"no single node has everything it needs free at once: {closest}"
    return "every node that it could use already runs as many pods as it may"


def extended_not_free(o: Obstacle) -> str:
    if isinstance(o.facts, NotOffered):
        return f"it needs {need_words(o)} of {o.subject}, but no node in this cluster offers it"
    if isinstance(o.facts, FloatingPool):
        total = amount(o.facts.total, _unit(o), o.need, o.have)
        return (
            f"it needs {need_words(o)} of {o.subject}, but of the {total} in the whole cluster {have_words(o)} are free"
        )
    return not_free(o, f" of {o.subject}")


def gang_does_not_fit(o: Obstacle) -> str:
    need = amount(o.need, o.unit)
    room = f"there is room for only {o.have}" if o.have else "there is no room for any of them"
    if o.subject and o.need > 1:
        return f"its sub-group {o.subject} needs {need} to start together, but {room}"
    if o.subject:
        return f"its sub-group {o.subject} needs {need}, but there is no room for it"
    if isinstance(o.facts, GangBound):
        fitting = f"only {o.have}" if o.have else "none"
        return f"its {need} must start together, but {_WHEN_EMPTY[o.facts.limit]} {fitting}"
    if o.have < o.need:
        return f"its {need} must start together, but {room}"
    return f"its {need} must start together, but do not fit next to each other"


def smaller(o: Obstacle) -> str:
    if isinstance(o.facts, SizeBound) and o.facts.larger is LargerNodes.LARGE_ENOUGH:
        wait = "wait until it may use a larger one"
        return f"ask for {or_less(o)}, or {wait}" if o.have > 0 else wait
    return f"ask for {or_less(o)}; waiting does not help" if o.have > 0 else "no node in this cluster can run it"


def less(o: Obstacle) -> str:
    if isinstance(o.facts, SizeBound):
        return smaller(o)
    least = MIN_FRACTION_MILLI if o.reason is Reason.NOT_ENOUGH_FREE_GPU_SHARE else 1
    return f"ask for {or_less(o)}, or {WAIT}" if o.have >= least else WAIT


def fewer_pods(o: Obstacle) -> str:
    return smaller(o) if isinstance(o.facts, SizeBound) else WAIT


def less_of_extended(o: Obstacle) -> str:
    if isinstance(o.facts, NotOffered):
        return f"check the name {o.subject}, or add a node that offers it; waiting does not help"
    return smaller(o) if isinstance(o.facts, SizeBound) else f"ask for less of {o.subject}, or {WAIT}"


def smaller_gang(o: Obstacle) -> str:
    """Waiting helps only where the empty nodes would have room for the whole gang."""
    fewer = f"ask for {or_less(o)}, or " if 0 < o.have < o.need else ""
    return fewer + (_MORE_ROOM[o.facts.limit] if isinstance(o.facts, GangBound) else WAIT)


def or_less(o: Obstacle) -> str:
    """`4 GPUs or fewer`, `16 GiB or less`."""
    return f"{have_words(o)} or {'fewer' if o.unit in _COUNTED else 'less'}"


_WHEN_EMPTY = {
    GangLimit.CLUSTER: "even an empty cluster has GPUs for",
    GangLimit.ALLOWED_NODES: "even when empty, the nodes that it may use would fit",
    GangLimit.UNRESERVED: "outside reserved GPUs, even an empty cluster would fit",
}
_MORE_ROOM = {
    GangLimit.CLUSTER: "add nodes; waiting does not help",
    GangLimit.ALLOWED_NODES: "allow it to use more nodes; waiting for work to end does not help",
    GangLimit.UNRESERVED: "check kaiwo reservations; waiting for work to end does not help",
}


def _closest_when_empty(o: Obstacle, of: str) -> str:
    node = o.facts.node if isinstance(o.facts, SizeBound) else ""
    closest = f"the closest is {node}, which has {have_words(o)}"
    return f"no single node has everything it needs, even when empty: it needs {need_words(o)}{of}, and {closest}"


def _reservation(o: Obstacle) -> str:
    """The reservation that it names; the subject of other reasons is something else."""
    return o.subject if o.reason in _OF_RESERVATION else ""


def _most_free(what: str, o: Obstacle, of: str = "") -> str:
    return f"no {what} has more than {have_words(o)}{of} free" if o.have > 0 else f"no {what} has any{of} free"


def _may_use(o: Obstacle) -> str:
    return " that it may use" if isinstance(o.facts, SizeBound) and not o.facts.is_of_all_nodes else ""


def need_words(o: Obstacle) -> str:
    """What it asks for; here and below, memory in the same unit in every sentence and remedy of an obstacle."""
    if o.unit == "mib" and o.need < MAX_MIB:
        return compared_memory(o.need, o.have)[0]
    return amount(o.need, _unit(o), o.have)


def have_words(o: Obstacle) -> str:
    if o.unit == "mib" and o.need < MAX_MIB:
        return compared_memory(o.need, o.have)[1]
    return amount(o.have, _unit(o), o.need)


def _unit(o: Obstacle) -> str:
    return unit_of_extended(o.subject) if o.reason is Reason.NOT_ENOUGH_EXTENDED else o.unit
