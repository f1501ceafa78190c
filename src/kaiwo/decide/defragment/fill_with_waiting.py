"""Choose which waiting pods get room by moves, and in which order: the fewest moves for each GPU that is gained first.

In:    a packing table and the waiting pods.   Out: the admissions in order, each with the pods that move for it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from kaiwo.decide.defragment.packing_table import MoveLog, PackingTable, TablePlace
from kaiwo.decide.defragment.room_search import RoomSearch
from kaiwo.model.gpus.gpu import WHOLE_MILLI

MOVES_PER_GPU = 15  # more are not worth a GPU
MOST_MOVES = 8  # for one waiting pod
WASTE_MILLI = 100  # kinds that leave more than this of a GPU unused come last
MAX_TRIES = 6_000  # sets of pods that are tried in vain or not: a count, so that equal inputs give equal plans
DEEP_TRIES = 1_000  # of these, for shares that displace others


class Admission(NamedTuple):
    pod: int
    place: TablePlace
    moves: tuple[tuple[int, TablePlace], ...]  # pods that run, and their new places


class FillLimits(NamedTuple):
    moves: int  # in all
    tries: int = MAX_TRIES


class Payers(Protocol):
    """The queues that pay for waiting pods."""

    def can_pay(self, pod: int) -> bool:
        """Whether the limits leave room for it, after what was charged so far."""

    def charge(self, pod: int) -> None: ...


class FillWithWaiting:
    """Admissions, as long as moves are left. `waiting` is sorted: of one kind, the first is admitted first."""

    def __init__(self, table: PackingTable, waiting: Sequence[int], payers: Payers, limits: FillLimits) -> None:
        self._table, self._payers, self._limits = table, payers, limits
        self._search = RoomSearch(table, np.array(waiting, np.int64))
        self._by_kind: dict[int, list[int]] = {}
        for pod in waiting:
            self._by_kind.setdefault(int(table.kind[pod]), []).append(pod)
        self.admissions: list[Admission] = []
        self.moves_left = limits.moves
        self.is_cut_short = False

    def run(self) -> list[Admission]:
        tidy = [kind for kind in self._by_kind if self._waste(kind) <= WASTE_MILLI]
        self._pass(tidy)
        self._search.goes_deep, deep_until = True, self._search.tries + DEEP_TRIES
        self._pass([kind for kind in tidy if self._gain(kind)], deep_until)
        self._search.goes_deep = False
        self._pass(list(self._by_kind))
        return self.admissions

    def _pass(self, kinds: list[int], until: int = 1 << 60) -> None:
        """Moves for each GPU that is gained, from few to many."""
        gains = {self._gain(kind) for kind in kinds}
        levels = sorted(
            {
                (moves * WHOLE_MILLI / max(gain, 1), moves, gain)
                for gain in gains
                for moves in range(MOST_MOVES + 1)
                if not moves or (moves * WHOLE_MILLI <= MOVES_PER_GPU * gain)
            }
        )
        for _, limit, gain in levels:
            same = [kind for kind in kinds if self._gain(kind) == gain]
            for kind in sorted(same, key=lambda each: self._table.kinds[each]):
                while self._by_kind[kind] and self._search.tries < until and self._admit(kind, limit):
                    self._admit_what_fits(kinds)

    def _admit_what_fits(self, kinds: list[int]) -> None:
        for kind in sorted(kinds, key=lambda each: (-self._gain(each), self._table.kinds[each])):
            while self._by_kind[kind] and self._table.fits(kind).any() and self._admit(kind, 0):
                pass

    def _admit(self, kind: int, limit: int) -> bool:
        if self._search.tries >= self._limits.tries:
            self.is_cut_short = True
            return False
        pod = next((each for each in self._by_kind[kind] if self._payers.can_pay(each)), None)
        if pod is None:
            return False
        log = MoveLog(self._table)
        found = self._search.find(kind, min(limit, self.moves_left), log)
        if found is None:
            return False
        self._by_kind[kind].remove(pod)
        self._payers.charge(pod)
        moves = tuple((each, TablePlace(int(self._table.row[each]), self._table.columns[each])) for each in log.moved())
        self._search.put(log, pod, found.place)
        self.moves_left -= len(moves)
        self.admissions.append(Admission(pod, found.place, moves))
        return True

    def _gain(self, kind: int) -> int:
        return self._table.kinds[kind].gain_milli

    def _waste(self, kind: int) -> int:
        """What stays unused of a GPU that such a share is on, whatever comes beside it."""
        want = self._table.kinds[kind]
        if want.gpus != 1 or want.milli >= WHOLE_MILLI:
            return 0
        rest = WHOLE_MILLI - want.milli
        return rest - self._search.usable_milli(rest)
