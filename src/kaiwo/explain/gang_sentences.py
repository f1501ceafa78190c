"""Why the pods of a gang cannot start together, in words.

In:    one Obstacle about a gang.   Out: what is in the way, with numbers, and what would remove it.
"""

from kaiwo.model.amounts import amount
from kaiwo.model.obstacle import GangBound, GangLimit, Obstacle


def no_room(o: Obstacle) -> str:
    """How many would fit, and in what."""
    need = amount(o.need, o.unit)
    if o.subject and o.need > 1:
        return f"its sub-group {o.subject} needs {need} to start together, and there is room for {o.have}"
    if o.subject:
        return f"its sub-group {o.subject} needs {need}, and there is no room for it"
    if isinstance(o.facts, GangBound):
        return f"its {need} must start together, and {_EMPTY[o.facts.limit]} for {o.have}"
    if o.have < o.need:
        return f"its {need} must start together, and there is room for {o.have}"
    return f"its {need} must start together, and do not fit beside each other"


def more_room(o: Obstacle) -> str:
    """Waiting helps only where the nodes have room for all of them once they are empty."""
    fewer = f"ask for {amount(o.have, o.unit)} or fewer, or " if 0 < o.have < o.need else ""
    return fewer + (_MORE[o.facts.limit] if isinstance(o.facts, GangBound) else "wait for running work to end")


_EMPTY = {
    GangLimit.CLUSTER: "the whole cluster, were it empty, has GPUs",
    GangLimit.ALLOWED_NODES: "the nodes that it may use, were they empty, have room",
    GangLimit.UNRESERVED: "what reservations leave to it, were it empty, has room",
}
_MORE = {
    GangLimit.CLUSTER: "add nodes; waiting does not help",
    GangLimit.ALLOWED_NODES: "open more nodes to it; waiting for work to end does not help",
    GangLimit.UNRESERVED: "look at kaiwo reservations; waiting for work to end does not help",
}
