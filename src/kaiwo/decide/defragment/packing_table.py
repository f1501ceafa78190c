"""Running and waiting pods as arrays, on nodes with free amounts: try where pods could be, and undo it.

In:    the working copy, and the pods that may move or wait.   Out: where a kind of pod fits, now or once others left.
Only plain requests are in the table: CPU, memory, and whole GPUs or one share. All else stays where it is.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.snapshot.array_types import BoolArray, IntArray

Columns: TypeAlias = tuple[int, ...]  # devices of a node
NOT_PLACED = -1


class PodKind(NamedTuple):
    """Pods that need the same of a node, and may use the same nodes."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int  # of each GPU; 0: it needs none
    may_use: int  # which set of nodes

    @property
    def gain_milli(self) -> int:
        return self.gpus * self.milli


class TablePlace(NamedTuple):
    row: int
    columns: Columns


class TablePod(NamedTuple):
    kind: PodKind
    place: TablePlace | None  # None: it waits
    may_move: bool
    lost_gpu_s: int


class PackingTable:
    def __init__(
        self,
        free: tuple[IntArray, IntArray, IntArray, IntArray],
        pods: Sequence[TablePod],
        node_sets: Sequence[BoolArray],
    ) -> None:
        self.cpu, self.memory, self.slots, self.gpu = (each.astype(np.int64) for each in free)
        self.kinds = sorted({pod.kind for pod in pods})
        number = {kind: at for at, kind in enumerate(self.kinds)}
        self.accepts = [node_sets[kind.may_use] for kind in self.kinds]
        self.kind = np.array([number[pod.kind] for pod in pods], np.int64)
        self.kind_gain = np.array([kind.gain_milli for kind in self.kinds], np.int64)
        self.pod_cpu = np.array([pod.kind.cpu_milli for pod in pods], np.int64)
        self.pod_memory = np.array([pod.kind.memory_mib for pod in pods], np.int64)
        self.pod_gpus = np.array([pod.kind.gpus for pod in pods], np.int64)
        self.pod_milli = np.array([pod.kind.milli for pod in pods], np.int64)
        self.lost = np.array([pod.lost_gpu_s for pod in pods], np.int64)
        self.may_move = np.array([pod.may_move for pod in pods], np.bool_)
        self.row = np.array([pod.place.row if pod.place else NOT_PLACED for pod in pods], np.int64)
        self.columns: list[Columns] = [pod.place.columns if pod.place else () for pod in pods]
        self.column = np.array([each[0] if each else 0 for each in self.columns], np.int64)
        self.on_node: list[set[int]] = [set() for _ in self.cpu]
        for at in self.movable().tolist():
            self.on_node[self.row[at]].add(at)
        self.version = 0  # changes with every pod that is put or taken
        self._pairs: tuple[int, IntArray, IntArray, IntArray] | None = None

    def movable(self) -> IntArray:
        return np.flatnonzero(self.may_move & (self.row >= 0))

    def pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        """All pods that may move and use a GPU; and all pairs of them on one node, as two arrays."""
        if self._pairs is None or self._pairs[0] != self.version:
            single = np.flatnonzero(self.may_move & (self.row >= 0) & (self.pod_gpus > 0))
            single = single[np.argsort(self.row[single], kind="stable")]
            rows, first, second = self.row[single], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
            for apart in range(1, len(single)):
                same = np.flatnonzero(rows[apart:] == rows[:-apart])
                if not len(same):
                    break
                first.append(single[same])
                second.append(single[same + apart])
            self._pairs = self.version, single, np.concatenate(first), np.concatenate(second)
        return self._pairs[1:]

    def put(self, pod: int, place: TablePlace) -> None:
        self._change(pod, place, -1)
        self.row[pod], self.columns[pod] = place.row, place.columns
        self.column[pod] = place.columns[0] if place.columns else 0
        if self.may_move[pod]:
            self.on_node[place.row].add(pod)

    def take(self, pod: int) -> TablePlace:
        place = TablePlace(int(self.row[pod]), self.columns[pod])
        self._change(pod, place, +1)
        self.row[pod] = NOT_PLACED
        self.on_node[place.row].discard(pod)
        return place

    def _change(self, pod: int, place: TablePlace, sign: int) -> None:
        kind = self.kinds[self.kind[pod]]
        self.version += 1
        self.cpu[place.row] += sign * kind.cpu_milli
        self.memory[place.row] += sign * kind.memory_mib
        self.slots[place.row] += sign
        for column in place.columns:
            self.gpu[place.row, column] += sign * kind.milli

    def has_gpus(self, kind: int) -> BoolArray:
        """By node: its GPUs alone would do."""
        want = self.kinds[kind]
        allowed: BoolArray = self.accepts[kind] & (self.slots > 0)
        if want.gpus == 1:
            allowed &= self.gpu.max(axis=1, initial=0) >= want.milli
        elif want.gpus:
            allowed &= (self.gpu >= WHOLE_MILLI).sum(axis=1) >= want.gpus
        return allowed

    def fits(self, kind: int) -> BoolArray:
        want = self.kinds[kind]
        return self.has_gpus(kind) & (self.cpu >= want.cpu_milli) & (self.memory >= want.memory_mib)

    def has_gpus_without(self, kind: int, first: IntArray, second: IntArray | None = None) -> BoolArray:
        """By pod, or pair of pods on one node: without them, the GPUs of their node would do."""
        want, row = self.kinds[kind], self.row[first]
        fits: BoolArray
        if want.gpus <= 1:
            best = self._freed(first)
            if second is not None:
                best = np.where(
                    self._share_device(first, second),
                    best + self.pod_milli[second],
                    np.maximum(best, self._freed(second)),
                )
            fits = np.maximum(self.gpu.max(axis=1)[row], best) >= want.milli
            return fits
        whole = (self.gpu >= WHOLE_MILLI).sum(axis=1)[row] + self._freed_whole(first)
        if second is not None:
            together = self._freed(first) + self.pod_milli[second] >= WHOLE_MILLI
            more = np.where(self._share_device(first, second), together, self._freed_whole(second))
            whole = whole + more
        fits = whole >= want.gpus
        return fits

    def _freed(self, pods: IntArray) -> IntArray:
        """What is free on the device of each pod once it left."""
        one: IntArray = self.gpu[self.row[pods], self.column[pods]] + self.pod_milli[pods]
        return np.where(self.pod_gpus[pods] == 0, 0, np.where(self.pod_gpus[pods] == 1, one, WHOLE_MILLI))

    def _freed_whole(self, pods: IntArray) -> IntArray:
        one = (self._freed(pods) >= WHOLE_MILLI).astype(np.int64)
        return np.where(self.pod_gpus[pods] <= 1, one, self.pod_gpus[pods])

    def _share_device(self, first: IntArray, second: IntArray) -> BoolArray:
        single = (self.pod_gpus[first] == 1) & (self.pod_gpus[second] == 1)
        shared: BoolArray = single & (self.column[first] == self.column[second])
        return shared


class MoveLog:
    """Where pods were before: undo puts all of them back, whatever came in between."""

    def __init__(self, table: PackingTable) -> None:
        self._table = table
        self.before: dict[int, TablePlace | None] = {}

    def take(self, pod: int) -> TablePlace:
        place = self._table.take(pod)
        self.before.setdefault(pod, place)
        return place

    def put(self, pod: int, place: TablePlace) -> None:
        self.before.setdefault(pod, None)
        self._table.put(pod, place)

    def move(self, pod: int, place: TablePlace) -> None:
        self.take(pod)
        self.put(pod, place)

    def savepoint(self) -> dict[int, TablePlace]:
        """Where the pods of this log are now."""
        return {pod: TablePlace(int(self._table.row[pod]), self._table.columns[pod]) for pod in self.before}

    def rollback(self, savepoint: dict[int, TablePlace]) -> None:
        table = self._table
        for pod in self.before:
            if table.row[pod] >= 0:
                table.take(pod)
        for pod, before in self.before.items():
            place = savepoint.get(pod, before)
            if place is not None and place.row >= 0:
                table.put(pod, place)
        self.before = {pod: self.before[pod] for pod in savepoint}

    def undo(self) -> None:
        self.rollback({})

    def moved(self) -> Iterable[int]:
        """Pods that ran before and are elsewhere now."""
        table = self._table
        for pod in sorted(self.before):
            before = self.before[pod]
            if before is not None and before != TablePlace(int(table.row[pod]), table.columns[pod]):
                yield pod
