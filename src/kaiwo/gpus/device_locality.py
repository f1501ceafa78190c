"""Rank the devices of a node by how well they work together: partitions on one IO die, whole GPUs with fast links.

The result is that of an `allocation` plugin: one rank for each device; a pod should take those with the lowest ranks.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np

from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import io_dies, partition_index, read_mode
from kaiwo.model.node import DeviceLinks
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.node_table import MILLI
from kaiwo.snapshot.view import View

MAX_SETS = 13_000  # sixteen choose eight; beyond that sets grow one GPU at a time


def best_set(wiring: DeviceLinks, columns: Sequence[int], count: int) -> list[int]:
    """Positions in `columns` of the chosen GPUs."""
    if comb(len(columns), count) <= MAX_SETS:
        chosen = max(combinations(range(len(columns)), count), key=lambda at: _quality(wiring, columns, at))
        return list(chosen)
    return _grown(wiring, columns, count)


def slowest_link(wiring: DeviceLinks, columns: Sequence[int]) -> int:
    """MB/s of the slowest link of a set; 0 where two are not linked."""
    return min((wiring.speed(a, b) for a, b in combinations(columns, 2)), default=0)


def _quality(
    wiring: DeviceLinks, columns: Sequence[int], at: Sequence[int]
) -> tuple[int, int, int, int, int, tuple[int, ...]]:
    chosen = [columns[position] for position in at]
    left = [column for position, column in enumerate(columns) if position not in at]
    return (
        slowest_link(wiring, chosen),
        sum(wiring.speed(a, b) for a, b in combinations(chosen, 2)),
        -len({wiring.numa_of(column) for column in chosen}),
        len({wiring.nic_of(column) for column in chosen} - {-1}),
        slowest_link(wiring, left),
        tuple(-position for position in at),
    )


def _grown(wiring: DeviceLinks, columns: Sequence[int], count: int) -> list[int]:
    """Grow a set from every GPU by the best-linked GPU each time; the best of these sets."""
    sets = []
    for start in range(len(columns)):
        chosen = [start]
        while len(chosen) < count:
            others = (at for at in range(len(columns)) if at not in chosen)
            chosen.append(max(others, key=lambda at: (*_reach(wiring, columns, chosen, at), -at)))
        sets.append(sorted(chosen))
    return max(sets, key=lambda at: _quality(wiring, columns, at))


def _reach(wiring: DeviceLinks, columns: Sequence[int], chosen: Sequence[int], at: int) -> tuple[int, int]:
    speeds = [wiring.speed(columns[at], columns[other]) for other in chosen]
    return min(speeds), sum(speeds)


def nearest_devices(view: View, want: Request, node: int, columns: IntArray) -> IntArray:
    """Rank whole GPUs by their links and partitions by their dies; other devices are equal."""
    if want.is_partition:
        return nearest_partitions(view, want, node, columns)
    if want.is_whole and want.gpus > 1:
        return best_linked(view, want, node, columns)
    return np.zeros(len(columns), np.int64)


def best_linked(view: View, want: Request, node: int, columns: IntArray) -> IntArray:
    """Rank the set with the best links first; all are equal where links are unknown."""
    wiring = view.nodes.nodes[node].wiring
    ranks = np.ones(len(columns), np.int64)
    if not wiring.is_known or want.gpus >= len(columns):
        return ranks
    ranks[best_set(wiring, columns.tolist(), want.gpus)] = 0
    return ranks


def nearest_partitions(view: View, want: Request, node: int, columns: IntArray) -> IntArray:
    """Prefer one GPU to two, and whole dies; a single partition goes to a die that is partly used."""
    gpus, free = view.nodes.nodes[node].gpus, view.gpus[node, MILLI]
    dies: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))  # by GPU and die: positions
    for at, column in enumerate(columns.tolist()):
        dies[gpus[column].parent][_die(gpus[column])].append(at)
    used = {gpu.parent for column, gpu in enumerate(gpus) if free[column] < gpu.milli}
    enough = [name for name in dies if _count(dies[name]) >= want.gpus]
    # Prefer a partly used GPU with just enough free partitions; if none has enough, the one with the most.
    order = sorted(enough, key=lambda name: (name not in used, _count(dies[name]), name))
    order += sorted((name for name in dies if name not in enough), key=lambda name: (-_count(dies[name]), name))
    ranks = np.zeros(len(columns), np.int64)
    rank, left = 0, want.gpus
    for name in order:
        for at in _by_die(dies[name], left):
            ranks[at] = rank
            rank += 1
        left -= min(left, _count(dies[name]))
    return ranks


def _by_die(dies: dict[int, list[int]], wanted: int) -> list[int]:
    """Whole dies while whole dies are needed, then partly used ones, to keep the others whole."""
    rest, order = dict(dies), list[int]()
    while rest:
        order += rest.pop(_next_die(rest, wanted - len(order)))
    return order


def _next_die(rest: dict[int, list[int]], left: int) -> int:
    sizes = {die: len(positions) for die, positions in rest.items()}
    if left >= max(sizes.values()):
        return min(sizes, key=lambda die: (-sizes[die], die))
    return min(sizes, key=lambda die: (sizes[die] < left, sizes[die], die))


def _count(dies: dict[int, list[int]]) -> int:
    return sum(len(positions) for positions in dies.values())


def _die(gpu: Gpu) -> int:
    found = io_dies(gpu.model, read_mode(gpu.profile).compute, partition_index(gpu.id))
    return found[0] if found else 0
