"""Links between the devices of a node, and what a plain calculation says about a set of them."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

from kaiwo.model.node import DeviceLinks

Rows = Sequence[Sequence[int]]


def wired(rows: Rows, numa: Sequence[int] = (), nic: Sequence[int] = (), total: Sequence[int] = ()) -> DeviceLinks:
    names = tuple(f"mlx5_{card}" for card in range(max(nic, default=-1) + 1))
    return DeviceLinks(tuple(map(tuple, rows)), tuple(numa), tuple(nic), names, tuple(total))


def mesh(count: int, mb_s: int) -> list[list[int]]:
    return [[0 if a == b else mb_s for b in range(count)] for a in range(count)]


def hives(size: int, fast: int = 50_000, slow: int = 0) -> DeviceLinks:
    """Two hives of equal size: fast inside, slow between."""
    rows = [[fast if a // size == b // size else slow for b in range(2 * size)] for a in range(2 * size)]
    return wired(rows, [at // size for at in range(2 * size)])


def by_hand(wiring: DeviceLinks, devices: Sequence[int]) -> int:
    """Every part of the set, one after another: what must leave it over what its links carry."""
    k = len(devices)
    if k < 2:
        return 0
    bounds = []
    for count in range(1, k):
        for part in combinations(devices, count):
            rest = [device for device in devices if device not in part]
            carried = sum(wiring.speed(a, b) for a in part for b in rest)
            for side in (part, rest):
                sends = [wiring.total_of(a) or sum(row for b, row in enumerate(wiring.mb_s[a]) if b != a) for a in side]
                carried = min(carried, sum(sends))
            bounds.append(Fraction((k - 1) * carried, count))
    return int(min(bounds))
