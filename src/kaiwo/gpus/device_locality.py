"""Rank the devices of a node by how well they work together: partitions on one IO die, whole GPUs with fast links.

The result is that of an `allocation` plugin: one rank for each device; a pod should take those with the lowest ranks.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TypeAlias

import numpy as np

from kaiwo.gpus.link_bandwidth import link_bandwidths
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import io_dies, partition_index, read_mode
from kaiwo.model.node import DeviceLinks
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.node_table import MILLI
from kaiwo.snapshot.view import View

MAX_SETS = 2_000  # sixteen choose four; beyond that sets grow one GPU at a time
MAX_TABLE = 8  # GPUs of a node whose every set is compared, with every set that it leaves

SetQuality: TypeAlias = tuple[int, int, int]  # MB/s, NUMA nodes (negative), network cards


@lru_cache(maxsize=4096)
def best_set(wiring: DeviceLinks, columns: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Positions in `columns` of the chosen GPUs: the highest predicted bandwidth, on few NUMA nodes, with many network
    cards. Among equal sets, the one that leaves the best sets for later requests."""
    if len(columns) <= MAX_TABLE:
        qualities = _all_qualities(wiring, columns)
        sets = list(combinations(range(len(columns)), count))
        best = max(qualities[_mask(at)] for at in sets)
        equal = [at for at in sets if qualities[_mask(at)] == best]
        later = {at: (_left_for_later(qualities, len(columns), at), -_cut(wiring, columns, at)) for at in equal}
        return max(equal, key=lambda at: (later[at], _first(at)))
    if comb(len(columns), count) <= MAX_SETS:
        return _best_of_many(wiring, columns, count)
    return _grown(wiring, columns, count)


def sets_in_turn(wiring: DeviceLinks, columns: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Positions in `columns` of the sets that one request after another gets, while there are enough."""
    left, found = list(range(len(columns))), []
    while len(left) >= count:
        chosen = best_set(wiring, tuple(columns[at] for at in left), count)
        found.append(tuple(left[at] for at in chosen))
        left = [at for at in left if at not in found[-1]]
    return found


@lru_cache(maxsize=1024)
def _all_qualities(wiring: DeviceLinks, columns: tuple[int, ...]) -> dict[int, SetQuality]:
    """Of every set of these GPUs, by its bits."""
    every: dict[int, SetQuality] = {}
    for size in range(1, len(columns) + 1):
        sets = list(combinations(range(len(columns)), size))
        found = _qualities(wiring, columns, sets)
        every.update((_mask(at), quality) for at, quality in zip(sets, found, strict=True))
    return every


def _qualities(wiring: DeviceLinks, columns: Sequence[int], sets: Sequence[tuple[int, ...]]) -> list[SetQuality]:
    """Of sets of equal size."""
    speeds = link_bandwidths(wiring, [tuple(columns[position] for position in at) for at in sets]).tolist()
    return [
        (
            speed,
            -len({wiring.numa_of(columns[position]) for position in at}),
            len({wiring.nic_of(columns[position]) for position in at} - {-1}),
        )
        for speed, at in zip(speeds, sets, strict=True)
    ]


def _left_for_later(qualities: Mapping[int, SetQuality], count: int, at: Sequence[int]) -> tuple[SetQuality, ...]:
    """The best set of each size that is left, the largest sizes first, in powers of two: what people ask for."""
    left = [position for position in range(count) if position not in at]
    sizes = [1 << bits for bits in range(len(left).bit_length() - 1, 0, -1)]
    return tuple(max(qualities[_mask(other)] for other in combinations(left, size)) for size in sizes)


def _cut(wiring: DeviceLinks, columns: Sequence[int], at: Sequence[int]) -> int:
    """MB/s of the links between a set and the GPUs that it leaves: what later requests lose."""
    left = [column for position, column in enumerate(columns) if position not in at]
    return sum(wiring.speed(columns[position], column) for position in at for column in left)


def _best_of_many(wiring: DeviceLinks, columns: Sequence[int], count: int) -> tuple[int, ...]:
    sets = list(combinations(range(len(columns)), count))
    found = _qualities(wiring, columns, sets)
    best = max(found)
    equal = [at for at, quality in zip(sets, found, strict=True) if quality == best]
    return max(equal, key=lambda at: (-_cut(wiring, columns, at), _first(at)))


def _grown(wiring: DeviceLinks, columns: Sequence[int], count: int) -> tuple[int, ...]:
    """Grow a set from every GPU by the best-linked GPU each time; the best of these sets."""
    sets = []
    for start in range(len(columns)):
        chosen = [start]
        while len(chosen) < count:
            others = (at for at in range(len(columns)) if at not in chosen)
            chosen.append(max(others, key=lambda at: (*_reach(wiring, columns, chosen, at), -at)))
        sets.append(tuple(sorted(chosen)))
    found = _qualities(wiring, columns, sets)
    return max(zip(sets, found, strict=True), key=lambda each: (each[1], _first(each[0])))[0]


def _reach(wiring: DeviceLinks, columns: Sequence[int], chosen: Sequence[int], at: int) -> tuple[int, int]:
    speeds = [wiring.speed(columns[at], columns[other]) for other in chosen]
    return min(speeds), sum(speeds)


def _mask(at: Sequence[int]) -> int:
    return sum(1 << position for position in at)


def _first(at: Sequence[int]) -> tuple[int, ...]:
    """Of equal sets, the one with the first positions counts most."""
    return tuple(-position for position in at)


def nearest_devices(view: View, want: Request, node: int, columns: IntArray) -> IntArray:
    """Rank whole GPUs by their links and partitions by their dies; other devices are equal."""
    if want.is_partition:
        return nearest_partitions(view, want, node, columns)
    if want.is_whole:
        return best_linked(view, want, node, columns)
    return np.zeros(len(columns), np.int64)


def best_linked(view: View, want: Request, node: int, columns: IntArray) -> IntArray:
    """Rank the set with the best links first, then the best of the others; all are equal where links are unknown."""
    wiring = view.nodes.nodes[node].wiring
    if not wiring.is_known or want.gpus >= len(columns):
        return np.zeros(len(columns), np.int64)
    ranks = np.full(len(columns), len(columns), np.int64)
    for rank, chosen in enumerate(sets_in_turn(wiring, columns.tolist(), want.gpus)):
        ranks[list(chosen)] = rank
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
