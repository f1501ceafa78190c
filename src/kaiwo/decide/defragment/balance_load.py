"""Plan moves that even out the load of the nodes: pods leave the fullest nodes for the emptiest that have room.

In:    a packing table.   Out: moves, in order, until the highest load less the mean is half of what it was.
The load of a node is the part of its GPUs that is in use. A pod moves only to a node that is then less full than
its own was, so the highest load never rises. A node that one pod fills alone does not count: it would fill any other.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.decide.defragment.packing_table import PackingTable, TablePlace
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.snapshot.array_types import BoolArray, IntArray

PPM = 1_000_000
TARGET_PERCENT = 50  # of the gap before


class EvenedLoad(NamedTuple):
    moves: list[tuple[int, TablePlace]]
    gap_ppm: tuple[int, int]  # the highest load less the mean, before and after


def balance_load(table: PackingTable, total_milli: IntArray, free_milli: IntArray, most_moves: int) -> EvenedLoad:
    """`total_milli`: of all usable GPUs of each node. `free_milli`: of these, what is free."""
    used = np.where(total_milli > 0, total_milli - free_milli, 0)
    counts = (total_milli > 0) & ~_is_filled_by_one(table, used, total_milli)
    if not counts.any():
        return EvenedLoad([], (0, 0))
    load = _load(used, total_milli)
    before = gap = _gap(load, counts)
    moves: list[tuple[int, TablePlace]] = []
    moved: set[int] = set()
    while len(moves) < most_moves and gap * 100 > before * TARGET_PERCENT:
        fullest = int(np.where(counts, load, -1).argmax())
        target = int(load[fullest]) - gap + before * TARGET_PERCENT // 100
        found = _best_move(table, fullest, load, (used, total_milli), target, moved)
        if found is None:
            break  # as long as this node stays as it is, no other move helps
        pod, place = found
        gain = int(table.pod_gpus[pod] * table.pod_milli[pod])
        table.take(pod)
        table.put(pod, place)
        moves.append(found)
        moved.add(pod)
        used[fullest] -= gain
        used[place.row] += gain
        load[[fullest, place.row]] = _load(used[[fullest, place.row]], total_milli[[fullest, place.row]])
        gap = _gap(load, counts)
    return EvenedLoad(moves, (before, gap))


def _is_filled_by_one(table: PackingTable, used: IntArray, total: IntArray) -> BoolArray:
    """Nodes with one pod that would load no other node less: its load is not uneven, but what the pod asks for."""
    found = np.zeros(len(total), np.bool_)
    pods = table.movable()[table.pod_gpus[table.movable()] > 0]
    gains = table.pod_gpus[pods] * table.pod_milli[pods]
    widest = np.array([int(total[accepts].max(initial=0)) for accepts in table.accepts], np.int64)
    rows = table.row[pods]
    alone = (gains == used[rows]) & (total[rows] >= widest[table.kind[pods]])
    found[rows[alone]] = True
    return found


def _gap(load: IntArray, counts: BoolArray) -> int:
    return int(load[counts].max()) - int(load[counts].mean())


def _load(used: IntArray, total: IntArray) -> IntArray:
    return used * PPM // np.maximum(total, 1)


def _best_move(
    table: PackingTable, row: int, load: IntArray, amounts: tuple[IntArray, IntArray], target: int, moved: set[int]
) -> tuple[int, TablePlace] | None:
    """The pod of a node whose move brings it nearest to the target, with the least work lost; and where it goes."""
    used, total = amounts
    pods = [pod for pod in table.on_node[row] if pod not in moved and table.pod_gpus[pod]]
    gains = {pod: int(table.pod_gpus[pod] * table.pod_milli[pod]) for pod in pods}
    excess = int(used[row]) - target * int(total[row]) // PPM

    def order(pod: int) -> tuple[bool, int, int, int]:
        # One that is enough alone comes first: two moves cost more than one.
        return gains[pod] < excess, abs(excess - gains[pod]), int(table.lost[pod]), pod

    for pod in sorted(pods, key=order):
        kind = int(table.kind[pod])
        fits: BoolArray = table.fits(kind)
        fits[row] = False
        after = _load(used + gains[pod], total)
        fits &= (total > 0) & (after < load[row])
        if fits.any():
            rows = np.flatnonzero(fits)
            best = int(rows[np.lexsort((rows, after[rows]))[0]])
            return pod, TablePlace(best, _columns(table, kind, best))
    return None


def _columns(table: PackingTable, kind: int, row: int) -> tuple[int, ...]:
    want, free = table.kinds[kind], table.gpu[row]
    if want.gpus == 1:
        fitting = np.flatnonzero(free >= want.milli)
        return (int(fitting[free[fitting].argmin()]),)
    return tuple(np.flatnonzero(free >= WHOLE_MILLI)[: want.gpus].tolist())
