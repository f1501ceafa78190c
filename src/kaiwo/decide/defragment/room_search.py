"""Find the few pods that must move so that one waiting pod fits, without a solver.

In:    a packing table, and a number of moves.   Out: a place, and the log of moves that freed it; or None, with
       nothing changed.
Ways, by the number of moves: it fits; pods without GPUs leave a node that lacks CPU or memory; pods with heavy CPU
change places with light ones elsewhere; one or two pods leave the GPUs, each settled in the same ways.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.decide.defragment.packing_table import MoveLog, PackingTable, TablePlace
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.snapshot.array_types import IntArray

MOST_RELIEF = 4  # moves that may free CPU and memory on one node
NEVER = 99
TRIES, SETTLE_TRIES, CARRY_TRIES, DISPLACE_TRIES, PARTNERS = 20, 3, 12, 4, 10
CPU_OF_GPU = 9_000  # what a GPU needs to be of use, in thousandths


class Found(NamedTuple):
    moves: int
    place: TablePlace


class RoomSearch:
    def __init__(self, table: PackingTable, waiting: IntArray, goes_deep: bool = False) -> None:
        self.table = table
        self.goes_deep = goes_deep  # shares may also displace smaller ones: slow, so it comes last
        self.tries = 0
        self._value = _values([int(each) for each in table.pod_milli[waiting]])
        light = table.movable()[table.pod_gpus[table.movable()] == 1]
        self._light_cpu = int(table.pod_cpu[light].min(initial=0))
        self._light_memory = int(table.pod_memory[light].min(initial=0))
        nodes = len(table.cpu)
        self._relief_cpu = np.zeros((MOST_RELIEF + 1, nodes), np.int64)  # by number of moves
        self._relief_memory = np.zeros((MOST_RELIEF + 1, nodes), np.int64)
        self._idle: list[list[int]] = [[] for _ in range(nodes)]  # pods without GPUs, the heaviest first
        self._heavy: list[list[int]] = [[] for _ in range(nodes)]  # with one GPU, likewise
        self._costs: tuple[int, IntArray] | None = None
        self.refresh(range(nodes))

    def find(self, kind: int, limit: int, log: MoveLog) -> Found | None:
        """Room for a pod of this kind with at most so many moves."""
        none: frozenset[int] = frozenset()
        found = self._settle(kind, min(limit, 1), none, log)
        if found is None and limit > 1:
            found = self._settle(kind, limit, none, log)
        if found is not None or limit <= 0:
            return found
        for pods in self._victims(kind, limit):
            self.tries += 1
            found = self._without(kind, pods, limit, none, log)
            if found is not None:
                return found
        return None

    def usable_milli(self, free_milli: int) -> int:
        """How much of a free part of a GPU the waiting pods could use."""
        return int(self._value[free_milli])

    def refresh(self, rows: "set[int] | range") -> None:
        """What moves could free on these nodes."""
        table = self.table
        for row in rows:
            pods = sorted(table.on_node[row], key=lambda pod: (-table.pod_cpu[pod], pod))
            idle = self._idle[row] = [pod for pod in pods if not table.pod_gpus[pod]][:MOST_RELIEF]
            heavy = [pod for pod in pods if table.pod_gpus[pod] == 1 and table.pod_cpu[pod] > self._light_cpu]
            self._heavy[row] = heavy = heavy[:2]
            alone = [(int(table.pod_cpu[pod]), int(table.pod_memory[pod])) for pod in idle]
            swaps = [
                (int(table.pod_cpu[pod]) - self._light_cpu, int(table.pod_memory[pod]) - self._light_memory)
                for pod in heavy
            ]
            for moves in range(1, MOST_RELIEF + 1):
                best = (0, 0)
                for count in range(min(len(swaps), moves // 2) + 1):
                    used = alone[: moves - 2 * count] + swaps[:count]
                    best = max(best, (sum(each[0] for each in used), sum(each[1] for each in used)))
                self._relief_cpu[moves, row], self._relief_memory[moves, row] = best

    def put(self, log: MoveLog, pod: int, place: TablePlace) -> None:
        log.put(pod, place)
        self.refresh({place.row})

    def undo(self, log: MoveLog, savepoint: dict[int, TablePlace]) -> None:
        table = self.table
        rows = {int(table.row[pod]) for pod in log.before if table.row[pod] >= 0}
        rows |= {place.row for place in log.before.values() if place is not None}
        log.rollback(savepoint)
        self.refresh(rows)

    def _relief_moves(self, kind: int, cpu: IntArray, memory: IntArray, row: IntArray) -> IntArray:
        """How many moves free the CPU and memory that a kind needs, by node; `cpu` and `memory` are free there."""
        want, moves = self.table.kinds[kind], np.full(len(row), NEVER)
        for count in range(MOST_RELIEF, -1, -1):
            has_cpu = cpu + self._relief_cpu[count, row] >= want.cpu_milli
            has_memory = memory + self._relief_memory[count, row] >= want.memory_mib
            moves = np.where(has_cpu & has_memory, count, moves)
        return moves

    def _moves_by_node(self, kind: int) -> IntArray:
        table = self.table
        moves = self._relief_moves(kind, table.cpu, table.memory, np.arange(len(table.cpu)))
        return np.where(table.has_gpus(kind), moves, NEVER)

    def _kind_costs(self) -> IntArray:
        """By kind: the least number of moves with which a pod of it changes its place."""
        if self._costs is None or self._costs[0] != self.table.version:
            table, found = self.table, []
            for number, kind in enumerate(table.kinds):
                if not kind.gpus:
                    found.append(1 if table.fits(number).any() else NEVER)
                    continue
                cost = min(NEVER, 1 + int(self._moves_by_node(number).min(initial=NEVER)))
                may_displace = self.goes_deep and kind.gpus == 1 and kind.milli < WHOLE_MILLI
                found.append(min(cost, 3) if may_displace else cost)
            self._costs = table.version, np.array(found, np.int64)
        return self._costs[1]

    def _victims(self, kind: int, limit: int) -> list[tuple[int, ...]]:
        """Pods and pairs on one node that could make room: the fewest moves first, then the least GPUs stopped."""
        table, costs, want = self.table, self._kind_costs(), self.table.kinds[kind]
        single, first, second = table.pairs()
        found = []
        for one, other in ((single, None), (first, second)):
            cost, size, lost = costs[table.kind[one]], table.kind_gain[table.kind[one]], table.lost[one]
            if other is not None:
                cost, size = cost + costs[table.kind[other]], size + table.kind_gain[table.kind[other]]
                lost = lost + table.lost[other]
            keep = (cost <= limit) & (size < want.gain_milli) & table.accepts[kind][table.row[one]]
            one, other = one[keep], None if other is None else other[keep]
            fits = table.has_gpus_without(kind, one, other)
            one, other = one[fits], None if other is None else other[fits]
            cost, size, lost = cost[keep][fits], size[keep][fits], lost[keep][fits]
            row = table.row[one]
            cpu, memory = table.cpu[row] + table.pod_cpu[one], table.memory[row] + table.pod_memory[one]
            if other is not None:
                cpu, memory = cpu + table.pod_cpu[other], memory + table.pod_memory[other]
            cost = cost + self._relief_moves(kind, cpu, memory, row)
            near = cost <= limit
            pair = np.full(len(one), -1) if other is None else other
            found.append(np.stack((cost[near], size[near], lost[near], row[near], one[near], pair[near])))
        cost, size, lost, row, one, pair = np.concatenate(found, axis=1)
        chosen: dict[tuple[int, int, int], tuple[int, ...]] = {}
        for at in np.lexsort((pair, one, lost, size, cost)).tolist():
            pods = (int(one[at]),) if pair[at] < 0 else (int(one[at]), int(pair[at]))
            kinds = [int(table.kind[pod]) for pod in pods]
            chosen.setdefault((int(row[at]), kinds[0], kinds[-1] if len(kinds) > 1 else -1), pods)
            if len(chosen) >= TRIES:
                break
        return list(chosen.values())

    def _without(
        self,
        kind: int,
        pods: tuple[int, ...],
        limit: int,
        closed: frozenset[int],
        log: MoveLog,
        displaced: bool = False,
    ) -> Found | None:
        """Settle these pods of one node elsewhere, and the kind on their node."""
        table, savepoint = self.table, log.savepoint()
        row, left = int(table.row[pods[0]]), limit - len(pods)
        ordered = sorted(pods, key=lambda pod: (-table.kind_gain[table.kind[pod]], pod))
        for pod in ordered:
            log.take(pod)
        self.refresh({row})
        for pod in ordered:
            settle = self._settle_plainly if displaced else self._settle
            found = settle(int(table.kind[pod]), left, closed | {row}, log)
            if found is None:
                self.undo(log, savepoint)
                return None
            left -= found.moves
            self.put(log, pod, found.place)
        relief = self._relieve(kind, row, closed, log, left)
        place = self.place(kind, closed, row) if relief is not None else None
        if place is None or relief is None:
            self.undo(log, savepoint)
            return None
        return Found(limit - left + relief, place)

    def _settle(self, kind: int, limit: int, closed: frozenset[int], log: MoveLog) -> Found | None:
        found = self._settle_plainly(kind, limit, closed, log)
        if found is None:
            found = self._carry(kind, limit, closed, log)
        if found is None and self.goes_deep:
            found = self._displace(kind, limit, closed, log)
        return found

    def _settle_plainly(self, kind: int, limit: int, closed: frozenset[int], log: MoveLog) -> Found | None:
        """A place for the kind, where at most CPU and memory must be freed."""
        place = self.place(kind, closed)
        if place is not None:
            return Found(0, place)
        if limit <= 0:
            return None
        table, want = self.table, self.table.kinds[kind]
        moves = self._moves_by_node(kind)
        moves[list(closed)] = NEVER
        rows = np.flatnonzero(moves <= limit)
        loss = left = np.zeros(len(rows), np.int64)
        if want.gpus == 1 and len(rows):
            free = table.gpu[rows]
            after = self._value[np.maximum(free - want.milli, 0)]
            loss = np.where(free >= want.milli, self._value[free] - after, 10**6).min(axis=1)
            left = np.where(free >= want.milli, free - want.milli, 10**6).min(axis=1)
        for row in rows[np.lexsort((rows, left, loss, moves[rows]))[:SETTLE_TRIES]].tolist():
            savepoint = log.savepoint()
            relief = self._relieve(kind, row, closed, log, limit)
            place = self.place(kind, closed, row) if relief is not None else None
            if place is not None and relief is not None:
                return Found(relief, place)
            self.undo(log, savepoint)
        return None

    def _relieve(self, kind: int, row: int, closed: frozenset[int], log: MoveLog, limit: int) -> int | None:
        """Free CPU and memory on a node. Pods without GPUs leave it; else heavy ones change places with light ones."""
        table, want, moves = self.table, self.table.kinds[kind], 0
        while table.cpu[row] < want.cpu_milli or table.memory[row] < want.memory_mib:
            if moves >= limit:
                return None
            idle, heavy, more = self._idle[row], self._heavy[row], 0
            enough = [
                pod
                for pod in idle
                if table.cpu[row] + table.pod_cpu[pod] >= want.cpu_milli
                and table.memory[row] + table.pod_memory[pod] >= want.memory_mib
            ]
            two = int(table.cpu[row]) + sum(int(table.pod_cpu[pod]) for pod in idle[:2])
            if enough or (idle and (limit - moves < 2 or not heavy or two >= want.cpu_milli)):
                pod = enough[-1] if enough else idle[0]
                place = self.place(int(table.kind[pod]), closed | {row})
                if place is not None:
                    log.move(pod, place)
                    self.refresh({row, place.row})
                    more = 1
            if not more and limit - moves >= 2:
                more = 2 if any(self._swap(pod, closed | {row}, log) for pod in heavy) else 0
            if not more:
                return None
            moves += more
        return moves

    def _swap(self, pod: int, closed: frozenset[int], log: MoveLog) -> bool:
        """Let a pod change places with one that needs less CPU, on a node with CPU to spare; no room is lost by it."""
        table, milli, home = self.table, int(self.table.pod_milli[pod]), int(self.table.row[pod])
        others = np.flatnonzero(
            table.may_move & (table.row >= 0) & (table.pod_gpus == 1) & (table.pod_cpu < table.pod_cpu[pod])
        )
        row = table.row[others]
        free, own_free = table.gpu[row, table.column[others]], int(table.gpu[home, table.column[pod]])
        other_milli = table.pod_milli[others]
        fits = (free + other_milli >= milli) & (other_milli <= milli) & (row != home)
        lost = (
            self._value[free] + self._value[own_free] - self._value[np.clip(free + other_milli - milli, 0, WHOLE_MILLI)]
        )
        fits &= lost <= self._value[np.clip(own_free + milli - other_milli, 0, WHOLE_MILLI)]
        fits &= self._spare_cpu(row) + table.pod_cpu[others] >= table.pod_cpu[pod]
        fits &= table.memory[row] + table.pod_memory[others] >= table.pod_memory[pod]
        fits &= table.memory[home] + table.pod_memory[pod] >= table.pod_memory[others]
        fits &= table.accepts[table.kind[pod]][row]
        if closed:
            fits &= ~np.isin(row, list(closed))
        chosen = others[fits]
        chosen = chosen[np.lexsort((chosen, table.lost[chosen], table.pod_cpu[chosen]))][:PARTNERS]
        other = next((each for each in chosen.tolist() if table.accepts[table.kind[each]][home]), None)
        if other is None:
            return False
        self._exchange(pod, other, log)
        return True

    def _exchange(self, pod: int, other: int, log: MoveLog) -> None:
        mine, theirs = log.take(pod), log.take(other)
        log.put(pod, theirs)
        log.put(other, mine)
        self.refresh({mine.row, theirs.row})

    def _carry(self, kind: int, limit: int, closed: frozenset[int], log: MoveLog) -> Found | None:
        """Bring a hole to where there is CPU: the pod beside it changes places with a light pod on such a node."""
        table, want = self.table, self.table.kinds[kind]
        if want.gpus != 1 or want.milli >= WHOLE_MILLI or limit < 2:
            return None
        single = np.flatnonzero(table.may_move & (table.row >= 0) & (table.pod_gpus == 1))
        holes = single[(table.gpu[table.row[single], table.column[single]] >= want.milli)]
        holes = holes[(table.pod_milli[holes] < WHOLE_MILLI) & ~np.isin(table.row[holes], list(closed))]
        others = single[(table.pod_milli[single] >= WHOLE_MILLI // 2) & ~np.isin(table.row[single], list(closed))]
        row, other_milli = table.row[others], table.pod_milli[others]
        free, spare = table.gpu[row, table.column[others]], self._spare_cpu(row)
        seen: set[tuple[int, ...]] = set()
        for pod in holes[np.lexsort((holes, table.gpu[table.row[holes], table.column[holes]]))].tolist():
            home = int(table.row[pod])
            hole, milli = int(table.gpu[home, table.column[pod]]), int(table.pod_milli[pod])
            key = (int(table.kind[pod]), hole, int(table.cpu[home]), int(table.memory[home]))
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > CARRY_TRIES:
                return None
            fits = (other_milli <= milli + hole) & (free + other_milli >= milli + want.milli) & (row != home)
            fits &= spare + table.pod_cpu[others] >= table.pod_cpu[pod] + want.cpu_milli
            fits &= table.memory[row] + table.pod_memory[others] >= table.pod_memory[pod] + want.memory_mib
            fits &= table.cpu[home] + table.pod_cpu[pod] >= table.pod_cpu[others]
            fits &= table.memory[home] + table.pod_memory[pod] >= table.pod_memory[others]
            fits &= table.accepts[table.kind[pod]][row] & table.accepts[kind][row] & (table.slots[row] > 0)
            chosen = others[fits]
            kept = self._value[np.clip(milli + hole - table.pod_milli[chosen], 0, WHOLE_MILLI)]
            for other in chosen[np.lexsort((chosen, table.pod_cpu[chosen], -kept))][:PARTNERS].tolist():
                if table.accepts[table.kind[other]][home]:
                    target = int(table.row[other])
                    self._exchange(pod, other, log)
                    place = self.place(kind, closed, target)
                    assert place is not None
                    return Found(2, place)
        return None

    def _displace(self, kind: int, limit: int, closed: frozenset[int], log: MoveLog) -> Found | None:
        """A share takes the place of a smaller one, which is settled elsewhere."""
        table, want = self.table, self.table.kinds[kind]
        if want.gpus != 1 or want.milli >= WHOLE_MILLI or limit < 1:
            return None
        costs = self._kind_costs()
        pods = np.flatnonzero(
            table.may_move & (table.row >= 0) & (table.pod_gpus == 1) & (table.pod_milli < want.milli)
        )
        pods = pods[table.accepts[kind][table.row[pods]] & ~np.isin(table.row[pods], list(closed))]
        pods = pods[table.has_gpus_without(kind, pods)]
        row = table.row[pods]
        cpu, memory = table.cpu[row] + table.pod_cpu[pods], table.memory[row] + table.pod_memory[pods]
        cost = costs[table.kind[pods]] + self._relief_moves(kind, cpu, memory, row)
        pods, cost = pods[cost <= limit], cost[cost <= limit]
        seen: set[tuple[int, int]] = set()
        for pod in pods[np.lexsort((pods, table.pod_milli[pods], cost))].tolist():
            key = int(table.row[pod]), int(table.kind[pod])
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > DISPLACE_TRIES:
                return None
            self.tries += 1
            found = self._without(kind, (pod,), limit, closed, log, displaced=True)
            if found is not None:
                return found
        return None

    def _spare_cpu(self, row: IntArray) -> IntArray:
        """CPU that the free GPUs of these nodes do not need."""
        table = self.table
        spare: IntArray = table.cpu[row] - self._value[table.gpu[row]].sum(axis=1) * CPU_OF_GPU // WHOLE_MILLI
        return spare

    def place(self, kind: int, closed: frozenset[int], only: int | None = None) -> TablePlace | None:
        """Where a pod of this kind takes the least of what waiting pods could use."""
        table, want = self.table, self.table.kinds[kind]
        fits = table.fits(kind)
        if only is not None:
            fits[:only] = fits[only + 1 :] = False
        fits[list(closed)] = False
        rows = np.flatnonzero(fits)
        if not len(rows):
            return None
        cpu, free = table.cpu[rows], table.gpu[rows]
        value = self._value[free].sum(axis=1)
        before = np.minimum(value, cpu * WHOLE_MILLI // CPU_OF_GPU)
        left = (cpu - want.cpu_milli) * WHOLE_MILLI // CPU_OF_GPU
        if not want.gpus:
            loss = before - np.minimum(value, left)
            return TablePlace(int(rows[np.lexsort((rows, cpu, loss))[0]]), ())
        if want.gpus == 1:
            fitting = free >= want.milli
            after = value[:, None] - self._value[free] + self._value[np.maximum(free - want.milli, 0)]
            loss = np.where(fitting, before[:, None] - np.minimum(after, left[:, None]), 10**9)
            rest = np.where(fitting, free - want.milli, 10**6)
            width = free.shape[1]
            best = int(np.lexsort((np.repeat(cpu, width), rest.ravel(), loss.ravel()))[0])
            return TablePlace(int(rows[best // width]), (best % width,))
        whole = (free >= WHOLE_MILLI).sum(axis=1)
        row = int(rows[np.lexsort((rows, cpu, whole))[0]])
        return TablePlace(row, tuple(np.flatnonzero(table.gpu[row] >= WHOLE_MILLI)[: want.gpus].tolist()))


def _values(sizes: list[int]) -> IntArray:
    """By free part of a GPU: how much of it the waiting sizes could use."""
    kinds, best = sorted({size for size in sizes if size}), [0] * (WHOLE_MILLI + 1)
    for free in range(WHOLE_MILLI + 1):
        best[free] = max((size + best[free - size] for size in kinds if size <= free), default=0)
    return np.array(best, np.int64)
