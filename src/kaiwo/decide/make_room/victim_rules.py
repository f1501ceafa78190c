"""Which victims may be stopped for a preemptor, and whether all of them may be stopped together.

In:    the queue shares, the reclaim request, victim units.   Out: yes or no.
"""

import numpy as np

from kaiwo.decide.make_room.victim_units import VictimUnit
from kaiwo.queues.reclaim_rules import QueueShares, ReclaimCheck, ReclaimRequest, entitled, refusal_to_reclaim
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.queue_table import ResourceVector

MOST_MOVED = 64


class ReclaimRule:
    """Fair shares: see `queues.reclaim_rules`."""

    def __init__(self, now: QueueShares, request: ReclaimRequest) -> None:
        self._now, self._request = now, request
        self._exchange = ReclaimCheck(now, request)

    def may_remove(self, unit: VictimUnit) -> bool:
        return self._exchange.take_from(self._queue_of(unit), list(unit.charge)) is None

    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        now, request = self._now, self._request._replace(need=_at_least(self._request.need, paid))
        if (request.need > self._request.need).any():
            now = self._owed()
            if refusal_to_reclaim(now, request) is not None:
                return False
        exchange = ReclaimCheck(now, request)
        for unit in stopped:
            if exchange.take_from(self._queue_of(unit), list(unit.charge)) is not None:
                return False
        return exchange.check_all() is None

    def _owed(self) -> QueueShares:
        """What it pays was not part of its demand, and so perhaps not of its share; it is owed its quota anyway."""
        fair, row = self._now.fair.copy(), self._request.queue
        fair[row] = entitled(self._now, row)
        return self._now._replace(fair=fair)

    def _queue_of(self, unit: VictimUnit) -> int:
        return self._now.queues.row[unit.workload.queue]


class MoveRule(ReclaimRule):
    """Work that may not be stopped may be moved: a few units, since each needs another place."""

    def __init__(self, now: QueueShares, request: ReclaimRequest) -> None:
        super().__init__(now, request)
        self._left = MOST_MOVED

    def may_remove(self, unit: VictimUnit) -> bool:
        self._left -= 1
        return self._left >= 0


class _AnyRule:
    """Every unit that is offered may be stopped."""

    def may_remove(self, unit: VictimUnit) -> bool:
        return True

    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        return True


class PreemptRule(_AnyRule):
    """A queue does not grow over its share by preemption: another queue would reclaim what it gained, and so on."""

    def __init__(self, now: QueueShares, queue: int, need: IntArray) -> None:
        path = np.array(now.queues.path[queue], np.intp)
        used = now.used[path]
        self._need, self._left = need, np.maximum(used, entitled(now, path)) - used

    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        given = np.sum([unit.charge for unit in stopped], axis=0, dtype=np.int64)
        return bool((_at_least(self._need, paid) - self._left <= given).all())


class OnlyMoves(_AnyRule):
    """Every unit finds another place."""

    def may_stop(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        return not stopped


def _at_least(need: IntArray, paid: ResourceVector) -> IntArray:
    """The need, raised to what is really paid. By GPU model only those count that are asked for by name."""
    raised = need.copy()
    raised[: len(paid)] = np.maximum(raised[: len(paid)], paid)
    return raised
