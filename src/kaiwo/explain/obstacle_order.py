"""Order obstacles as people should read them: what waiting never removes first, what only adds detail last.

In:    the obstacles of one workload, as a cycle found them.   Out: the same, the headline first.
Never: drops or changes an obstacle.
"""

import enum

from kaiwo.decide.obstacles.shortages import is_permanent
from kaiwo.explain.level_sentences import is_unknown_level
from kaiwo.model.obstacle import (
    BandwidthShort,
    GangBound,
    GangLimit,
    LargerNodes,
    LevelShort,
    MpsOnAmd,
    NoSuchMode,
    Obstacle,
    QueueBound,
    Reason,
    ReservationProblem,
    ReservationUnusable,
    SizeBound,
    TopologyLabelMissing,
    VendorMissing,
)


class Lasting(enum.IntEnum):
    """How an obstacle goes away; the order of the answer."""

    HELD = 0  # a person holds it, and releases it
    PERMANENT = 1  # only if somebody changes the workload, its queue or the cluster
    REPAIRED = 2  # if somebody repairs or reopens nodes or devices: there may be others
    TEMPORARY = 3  # when other work ends, or at a known time
    DETAIL = 4  # some nodes are closed to it while others are not, or why no work is evicted for it


def in_order_of_telling(obstacles: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
    """The headline first. Obstacles that last equally long keep their order.

    That a gang has no room at all follows from what each of its pods lacks, and comes after that.
    """
    return tuple(sorted(obstacles, key=lambda each: (lasting(each), each.reason is Reason.GANG and not each.have)))


def lasting(o: Obstacle) -> Lasting:
    if o.reason is Reason.HELD:
        return Lasting.HELD
    if isinstance(o.facts, SizeBound) and o.facts.larger is LargerNodes.LARGE_ENOUGH:
        return Lasting.DETAIL  # it fits where it may not run now
    if o.facts == GangBound(GangLimit.CLUSTER) and not o.have:
        return Lasting.DETAIL  # it follows from what each of its pods lacks, which may be repaired
    if is_permanent(o) or o.reason in _PERMANENT or isinstance(o.facts, _PERMANENT_FACTS) or _is_beyond(o):
        return Lasting.PERMANENT
    if o.facts == GangBound(GangLimit.ALLOWED_NODES):
        return Lasting.REPAIRED if o.have else Lasting.DETAIL
    if o.reason in _OF_NODES:
        return _OF_NODES[o.reason] if o.need else Lasting.DETAIL  # 0: some nodes are left
    return Lasting.DETAIL if o.reason in _WHY_NO_ROOM_IS_MADE else Lasting.TEMPORARY


def _is_beyond(o: Obstacle) -> bool:
    """It asks for more than it may ever have."""
    match o.facts:
        case QueueBound(bound):
            return bound < o.need
        case LevelShort():
            return is_unknown_level(o)
        case SizeBound(larger):
            return larger is not LargerNodes.LARGE_ENOUGH
        case BandwidthShort(need_mb_s, port_mb_s):
            return 0 < port_mb_s < need_mb_s
        case ReservationUnusable(problem):
            return problem is not ReservationProblem.NOT_STARTED
    return False


_PERMANENT = frozenset(
    (
        Reason.DEPENDENCY_FAILED, Reason.NO_QUEUE, Reason.QUEUE_NOT_LEAF, Reason.QUEUE_ACCESS, Reason.EXPIRED,
        Reason.NO_NODES, Reason.SHARE_TOO_LARGE,
    )
)  # fmt: skip
_PERMANENT_FACTS = (VendorMissing, TopologyLabelMissing, MpsOnAmd, NoSuchMode)
# Filters: how long it lasts if no node passes.
_OF_NODES = {
    Reason.NODE_RULES: Lasting.PERMANENT,
    Reason.NODE_TAINTED: Lasting.PERMANENT,
    Reason.DOMAIN_CLOSED: Lasting.PERMANENT,
    Reason.GPU_ISOLATION: Lasting.PERMANENT,
    Reason.PLUGIN: Lasting.REPAIRED,
    Reason.NODE_NOT_READY: Lasting.REPAIRED,
    Reason.NODE_CORDONED: Lasting.REPAIRED,
    Reason.NODE_AVOIDED: Lasting.REPAIRED,
    Reason.GPU_UNHEALTHY: Lasting.REPAIRED,
    Reason.PODS_NOT_NEAR: Lasting.TEMPORARY,
    Reason.PODS_TOO_NEAR: Lasting.TEMPORARY,
    Reason.PODS_UNEVEN: Lasting.TEMPORARY,
    Reason.PORT_TAKEN: Lasting.TEMPORARY,
}
_WHY_NO_ROOM_IS_MADE = frozenset(
    (
        Reason.OVER_FAIR_SHARE, Reason.NOT_ENOUGH_RECLAIMABLE, Reason.NO_WAY_TO_RECLAIM, Reason.NO_WAY_TO_PREEMPT,
        Reason.PATIENT, Reason.HELD_OFF,
    )
)  # fmt: skip
