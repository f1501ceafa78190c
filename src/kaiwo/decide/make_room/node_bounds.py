"""Prove that no set of victims can help where the sums are enough: no node would have room, whatever stops there.

In:    all that is reclaimable, the pods that are needed.   Out: an obstacle with the numbers; None: no proof.
Each kind of pod is looked at as if it were alone. A node gives what is free there and all that may be stopped or moved
away from there.
"""

import numpy as np

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.reclaim_bounds import NeededPods
from kaiwo.decide.make_room.reclaimable import Reclaimable
from kaiwo.decide.obstacles.node_availability import availability_in
from kaiwo.decide.obstacles.shortages import short_of
from kaiwo.decide.placement.node_fit import pods_that_fit
from kaiwo.model.obstacle import NodeBound, Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import Rows
from kaiwo.snapshot.view import NO_TENANTS, View

_COUNTED = (
    Reason.NOT_ENOUGH_MEMORY, Reason.NOT_ENOUGH_FREE_GPU_MEMORY, Reason.NOT_ENOUGH_FREE_GPU_SHARE,
    Reason.NOT_ENOUGH_FREE_GPUS, Reason.NOT_ENOUGH_CPU, Reason.NOT_ENOUGH_PODS, Reason.NOT_ENOUGH_EXTENDED,
)  # fmt: skip


def node_bounds(state: CycleState, reclaimable: Reclaimable, wants: list[NeededPods], queue: str) -> Obstacle | None:
    """The first kind of pod for which there would be too little room."""
    free, gpus = reclaimable.emptied
    for shape, want, needed in wants:
        rows = np.flatnonzero(state.scores.state(shape).allowed)
        # A tenant that keeps others off its device may be gone.
        after = state.working.view.with_amounts(rows, free[rows], gpus[rows], NO_TENANTS)
        room = int(pods_that_fit(after, want, rows).sum())
        if len(rows) and room < needed:
            return _in_numbers(after, want, rows, (needed, room), queue)
    return None


def _in_numbers(after: View, want: Request, rows: Rows, pods: tuple[int, int], queue: str) -> Obstacle:
    """What no node could have; or how many of the pods would find room."""
    needed, room = pods
    if not room:
        for each in short_of(after, want, rows, availability_in(after, want, rows)):
            if each.reason in _COUNTED and each.have < each.need:
                extended = each.subject if each.reason is Reason.NOT_ENOUGH_EXTENDED else ""
                facts = NodeBound(each.reason, extended)
                return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, each.need, each.have, each.unit, queue, facts)
    return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, needed, room, "pods", queue, NodeBound())
