"""Choose the set of GPUs of one node whose slowest link is the fastest.

In:    how the GPUs of a node are wired, which of them are free, how many are wanted.   Out: positions among the free.
A collective runs at the pace of its slowest link, so that counts first; then all links together, then few NUMA nodes,
then network cards nearby; then what the rest is still good for. Ties fall to positions.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb

from kaiwo.model.wiring import Wiring

MOST_SETS = 13_000  # sixteen choose eight; beyond that sets grow one GPU at a time


def best_set(wiring: Wiring, columns: Sequence[int], count: int) -> list[int]:
    """Positions in `columns` of the chosen GPUs."""
    if comb(len(columns), count) <= MOST_SETS:
        chosen = max(combinations(range(len(columns)), count), key=lambda at: _quality(wiring, columns, at))
        return list(chosen)
    return _grown(wiring, columns, count)


def slowest_link(wiring: Wiring, columns: Sequence[int]) -> int:
    """MB/s of the slowest link of a set; 0 where two are not linked."""
    return min((wiring.speed(a, b) for a, b in combinations(columns, 2)), default=0)


def _quality(
    wiring: Wiring, columns: Sequence[int], at: Sequence[int]
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


def _grown(wiring: Wiring, columns: Sequence[int], count: int) -> list[int]:
    """From every GPU the set that grows by its best neighbour; the best of those."""
    sets = []
    for start in range(len(columns)):
        chosen = [start]
        while len(chosen) < count:
            others = (at for at in range(len(columns)) if at not in chosen)
            chosen.append(max(others, key=lambda at: (*_reach(wiring, columns, chosen, at), -at)))
        sets.append(sorted(chosen))
    return max(sets, key=lambda at: _quality(wiring, columns, at))


def _reach(wiring: Wiring, columns: Sequence[int], chosen: Sequence[int], at: int) -> tuple[int, int]:
    speeds = [wiring.speed(columns[at], columns[other]) for other in chosen]
    return min(speeds), sum(speeds)
