"""Number the pods of a gang so that neighbouring ranks are near each other: same node, same leaf, same spine.

In:    the pods of a gang with their places, and the ranks that some of them have.   Out: a rank for each pod.
Never: changes a rank that a pod has: a program that runs cannot be numbered anew.

Domains lie inside each other, so an order that visits every domain only once, on every level, has the least total
distance between neighbours, as a chain and as a ring. Of these orders, the one is taken that begins with the first pod
by name. Pods on one node follow the order of their GPUs: so ranks that are one node apart use the same rails.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, islice, pairwise, permutations
from typing import NamedTuple, TypeAlias

from kaiwo.model.workload import NO_RANK

MAX_EXACT = 5  # replaced pods whose every order is compared: 120 of them

Order: TypeAlias = tuple[int, int]


class RankedPod(NamedTuple):
    """A pod of a gang, where it runs, and the rank that it has."""

    name: str
    order: Order  # the numbers of its role and of the pod in it
    path: tuple[int, ...]  # its domain on each level, the widest first, and its node
    device: int = 0  # the position of its first GPU in the node
    leads: bool = False  # the others connect to it: it comes first
    rank: int = NO_RANK


def rank_order(pods: Sequence[RankedPod]) -> dict[str, int]:
    """A rank for each pod, by name. Pods without a rank get the smallest ones that are not taken."""
    taken = {pod.rank: pod for pod in pods if pod.rank != NO_RANK}
    new = [pod for pod in pods if pod.rank == NO_RANK]
    if not taken:
        return {pod.name: rank for rank, pod in enumerate(_fresh_order(new))}
    free = list(islice((rank for rank in count() if rank not in taken), len(new)))
    filled = {pod.name: rank for rank, pod in zip(free, _best_filling(new, free, taken), strict=True)}
    return {pod.name: filled.get(pod.name, pod.rank) for pod in pods}


def distance(one: RankedPod, other: RankedPod) -> int:
    """How many levels up their nearest common domain is; 0: they are on one node."""
    same = next((at for at, (a, b) in enumerate(zip(one.path, other.path, strict=True)) if a != b), len(one.path))
    return len(one.path) - same


def total_distance(pods: Iterable[RankedPod]) -> int:
    """The distances of all neighbours in this order."""
    return sum(distance(one, other) for one, other in pairwise(pods))


def by_name(pods: Iterable[RankedPod]) -> list[RankedPod]:
    """The order that nobody has to compute: by role and index, those that lead first."""
    return sorted(pods, key=lambda pod: (not pod.leads, pod.order))


def _fresh_order(pods: Sequence[RankedPod]) -> list[RankedPod]:
    leaders = _visit([pod for pod in pods if pod.leads], None)
    found = leaders + _visit([pod for pod in pods if not pod.leads], leaders[-1] if leaders else None)
    if len(leaders) < 2:
        return found
    # The way from the last of several leaders to the others may cost more than it saved among the leaders.
    return min((found, by_name(pods)), key=total_distance)


def _visit(pods: Sequence[RankedPod], after: RankedPod | None) -> list[RankedPod]:
    """Every domain once, on every level; first those that `after` is in, then in the order of their first pods."""
    first: dict[tuple[int, ...], Order] = {}
    for pod in pods:
        for depth in range(1, len(pod.path) + 1):
            prefix = pod.path[:depth]
            first[prefix] = min(first.get(prefix, pod.order), pod.order)
    near = {after.path[:depth] for depth in range(1, len(after.path) + 1)} if after is not None else set()

    def key(pod: RankedPod) -> tuple[tuple[tuple[bool, Order], ...], int, Order]:
        prefixes = [pod.path[:depth] for depth in range(1, len(pod.path) + 1)]
        return tuple((prefix not in near, first[prefix]) for prefix in prefixes), pod.device, pod.order

    return sorted(pods, key=key)


def _best_filling(new: Sequence[RankedPod], free: Sequence[int], taken: Mapping[int, RankedPod]) -> list[RankedPod]:
    """The new pods in the order of the free ranks, with the least distance to the pods that stay and to each other."""
    leaders = by_name(pod for pod in new if pod.leads)
    others = by_name(pod for pod in new if not pod.leads)

    def cost(order: Sequence[RankedPod]) -> int:
        filled = dict(taken) | dict(zip(free, order, strict=True))
        pairs = {(low, low + 1) for rank in free for low in (rank - 1, rank)}
        return sum(distance(filled[low], filled[high]) for low, high in pairs if low in filled and high in filled)

    if len(others) <= MAX_EXACT:
        return min(([*leaders, *order] for order in permutations(others)), key=cost)
    grown, left = list(leaders), list(others)
    filled = dict(taken) | dict(zip(free, leaders, strict=False))
    for rank in free[len(leaders) :]:
        beside = [filled[near] for near in (rank - 1, rank + 1) if near in filled]
        nearest = min(left, key=lambda pod: (sum(distance(pod, other) for other in beside), pod.order))
        left.remove(nearest)
        grown.append(nearest)
        filled[rank] = nearest
    return min((grown, [*leaders, *others]), key=cost)
