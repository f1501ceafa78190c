"""This cycle's working copy: place pods on it, and undo what did not work out.

In:    one Snapshot.   Out: the same arrays with this cycle's placements taken off.
Never: changes the snapshot. Leaving a trial without keep() puts every amount back exactly.
"""

import numpy as np

from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.snapshot.arrays import IntArray, Rows
from kaiwo.snapshot.nodes import CPU, EXTENDED, GPU_LEFT, MEMORY, MIB, MILLI, PODS
from kaiwo.snapshot.queues import Charge
from kaiwo.snapshot.snapshot import Snapshot

# node row, pods, request, device columns, milli and MiB taken of each
_Taken = tuple[int, int, Request, Rows, IntArray, IntArray]


class Working:
    """Free amounts by node and device, and used amounts by queue; also what plugins see (they only read)."""

    def __init__(self, snapshot: Snapshot) -> None:
        picture = snapshot.read()
        nodes, queues = picture.nodes, picture.queues
        self.now_s = snapshot.now_s
        self.nodes, self.queues = nodes, queues
        self.free: IntArray = nodes.free.copy()  # by node: columns CPU, MEMORY, PODS, GPU_LEFT, then extended ones
        self.gpus: IntArray = nodes.gpus.copy()  # by node, column (MILLI, MIB, SIZE, USABLE) and device
        self.changed: IntArray = nodes.changed.copy()
        self.queue_used: IntArray = queues.used.copy()
        self.derived: dict[str, IntArray] = {}  # what plugins work out once a cycle
        self.deserved_rows: list[list[int]] | None = None  # see queues.share
        self.clock = picture.version
        self._gathered: tuple[Rows, int, IntArray, IntArray] | None = None
        self.last_times: tuple[Request, Rows, int, IntArray] | None = None  # see gpus.fit.times_per_device
        self._taken: list[_Taken] = []
        self._charged: list[tuple[int, Charge]] = []

    def of(self, nodes: Rows) -> tuple[IntArray, IntArray]:
        """`free` and `gpus` of these nodes. Everybody who is asked about the same nodes shares one gathering."""
        last = self._gathered
        if last is None or last[0] is not nodes or last[1] != self.clock:
            last = self._gathered = (nodes, self.clock, self.free[nodes], self.gpus[nodes])
        return last[2], last[3]

    def pretending(self, nodes: Rows, free: IntArray, gpus: IntArray) -> "Working":
        """A view in which these nodes look like that; the same node may stand in several rows."""
        other = object.__new__(Working)
        other.__dict__.update(self.__dict__)
        other.last_times, other._gathered = None, (nodes, self.clock, free, gpus)
        return other

    def take(self, row: int, pods: int, ask: Request, columns: Rows, milli: IntArray, mib: IntArray) -> None:
        """Put `pods` equal pods on a node; the columns are those of all of them together, each at most once."""
        self._apply((row, pods, ask, columns, milli, mib), -1)
        self._taken.append((row, pods, ask, columns, milli, mib))

    def give_back(self, kept: Nomination) -> None:
        """Free, inside a trial, the space that is kept for the pod that is about to be placed."""
        row = self.nodes.row.get(kept.node)
        if row is None:
            return
        column = self.nodes.column[row]
        shares = [share for share in kept.devices if share.gpu in column]
        columns = np.array([column[share.gpu] for share in shares], np.intp)
        milli = np.array([-share.milli for share in shares], np.int64)
        mib = np.array([-share.mib for share in shares], np.int64)
        amounts = Request(kept.cpu_milli, kept.memory_mib, extended=kept.extended)
        self.take(row, -1, amounts, columns, milli, mib)

    def charge(self, queue: int, charge: Charge) -> None:
        """Charge a queue and all above it."""
        self._charge(queue, charge, +1)
        self._charged.append((queue, charge))

    def trial(self) -> "Trial":
        """Try something: `with working.trial() as attempt: ...; attempt.keep()`."""
        return Trial(self)

    def mark(self) -> tuple[int, int]:
        """Where we are, for `back_to`."""
        return len(self._taken), len(self._charged)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Undo everything since the mark, last first."""
        taken, charged = mark
        while len(self._taken) > taken:
            self._apply(self._taken.pop(), +1)
        while len(self._charged) > charged:
            queue, charge = self._charged.pop()
            self._charge(queue, charge, -1)

    def _apply(self, taken: _Taken, sign: int) -> None:
        row, pods, ask, columns, milli, mib = taken
        self.clock += 1
        self.changed[row] = self.clock
        free, gpus = self.free[row], self.gpus[row]
        free[PODS] += sign * pods
        if ask.cpu_milli:
            free[CPU] += sign * pods * ask.cpu_milli
        if ask.memory_mib:
            free[MEMORY] += sign * pods * ask.memory_mib
        for name, amount in ask.extended:
            if name in self.nodes.extended_names:  # kept space may name a resource that no node has any more
                free[EXTENDED + self.nodes.extended_names.index(name)] += sign * pods * amount
        if len(columns) == 1:  # indexing by one number is four times as quick as by an array of one
            column = columns[0]
            gpus[MILLI, column] += sign * milli[0]
            gpus[MIB, column] += sign * mib[0]
            free[GPU_LEFT] += sign * milli[0]
        elif len(columns):
            gpus[MILLI, columns] += sign * milli
            gpus[MIB, columns] += sign * mib
            free[GPU_LEFT] += sign * milli.sum()

    def _charge(self, queue: int, charge: Charge, sign: int) -> None:
        for above in self.queues.path[queue]:
            used = self.queue_used[above]
            used[0] += sign * charge[0]
            used[1] += sign * charge[1]
            used[2] += sign * charge[2]


class Trial:
    """Everything placed inside is undone at the end, unless it is kept."""

    __slots__ = ("_kept", "_mark", "_working")

    def __init__(self, working: Working) -> None:
        self._working = working
        self._mark = working.mark()
        self._kept = False

    def keep(self) -> None:
        """Let what was placed stand."""
        self._kept = True

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self._working.back_to(self._mark)
