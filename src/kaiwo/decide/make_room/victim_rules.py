"""The rules about victims: which may be stopped for a preemptor, and whether all of them may be stopped together."""

import numpy as np

from kaiwo.decide.make_room.victim_units import VictimUnit
from kaiwo.queues.reclaim_rules import QueueShares, ReclaimCheck, ReclaimRequest, entitled, refusal_to_reclaim
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.queue_table import ResourceVector

MAX_MOVED = 64


class VictimRule:
    """What protects running work from one preemptor. This base rule protects nothing."""

    def may_remove(self, unit: VictimUnit) -> bool:
        """Whether this unit may be removed next, after those removed so far."""
        return True

    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        """Whether exactly these may be stopped, for a preemptor whose queue is charged this much."""
        return True


class ReclaimRule(VictimRule):
    """Fair shares: see `queues.reclaim_rules`."""

    def __init__(self, shares: QueueShares, request: ReclaimRequest) -> None:
        self._shares, self._request = shares, request
        self._check = ReclaimCheck(shares, request)

    def may_remove(self, unit: VictimUnit) -> bool:
        return self._check.take_from(self._queue_of(unit), list(unit.charge)) is None

    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        shares, request = self._shares, self._request._replace(need=_at_least(self._request.need, paid))
        if (request.need > self._request.need).any():
            shares = self._owed()
            if refusal_to_reclaim(shares, request) is not None:
                return False
        check = ReclaimCheck(shares, request)
        for unit in stopped:
            if check.take_from(self._queue_of(unit), list(unit.charge)) is not None:
                return False
        return check.check_all() is None

    def _owed(self) -> QueueShares:
        """The shares, with its quota as its fair share if larger: the actual charge was not part of its demand."""
        fair, row = self._shares.fair.copy(), self._request.queue
        fair[row] = entitled(self._shares, row)
        return self._shares._replace(fair=fair)

    def _queue_of(self, unit: VictimUnit) -> int:
        return self._shares.queues.row[unit.workload.queue]


class MoveRule(ReclaimRule):
    """Work that may not be stopped may be moved: only a few units, since each needs another place."""

    def __init__(self, shares: QueueShares, request: ReclaimRequest) -> None:
        super().__init__(shares, request)
        self._left = MAX_MOVED

    def may_remove(self, unit: VictimUnit) -> bool:
        self._left -= 1
        return self._left >= 0


class PreemptRule(VictimRule):
    """A queue must not grow over its share by preemption: another queue would just reclaim that again."""

    def __init__(self, shares: QueueShares, queue: int, need: IntArray) -> None:
        path = np.array(shares.queues.path[queue], np.intp)
        used = shares.used[path]
        self._need, self._left = need, np.maximum(used, entitled(shares, path)) - used

    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        given = np.sum([unit.charge for unit in stopped], axis=0, dtype=np.int64)
        return bool((_at_least(self._need, paid) - self._left <= given).all())


class OnlyMoves(VictimRule):
    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        return not stopped


def _at_least(need: IntArray, paid: ResourceVector) -> IntArray:
    """The need, raised to the actual charge. A GPU model counts only where it is asked for by name."""
    raised = need.copy()
    raised[: len(paid)] = np.maximum(raised[: len(paid)], paid)
    return raised
