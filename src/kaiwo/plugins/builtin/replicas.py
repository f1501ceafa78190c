"""Built-in strategies that divide the GPUs of a workload over pods.

`live-room` looks for the division that can start where there is room now: free GPUs of an accepted model with the CPU
and memory that they need, node by node, so fragmentation counts. Nodes that fail often are not relied on. One leaf of
the network is better than several, then fewer pods, then equal ones. Where there is no room, GPUs count as free that
less important work of the same queue holds. Where that does not help either, as few pods as the largest node allows.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.plugins.builtin.steady_nodes import steadiness
from kaiwo.plugins.contract import TOP_SCORE, ReplicaNeed
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.node_table import CPU, MEMORY, MILLI, USABLE
from kaiwo.snapshot.view import View

MAX_PODS = 1_000  # of a division that is tried


class LiveRoom:
    """The division that finds room now, with few pods in few domains of the network."""

    name, version = "live-room", "1"

    def replica_strategy(self, view: View, need: ReplicaNeed) -> IntArray:
        free, domain = _free_gpus(view, need), _domains(view)
        steady = steadiness(view) >= TOP_SCORE if view.node_failures else np.ones(len(free), np.bool_)
        largest = _largest(view, need)
        for room in (free * steady, free, free + _taken_from_others(view, need)):
            if int(room.sum()) >= need.gpus and (found := _best(room, domain, need.gpus, largest)) is not None:
                return np.array(found, np.int64)
        return _equal(need.gpus, -(-need.gpus // largest))


class FewestPods:
    """The fewest pods that may have that many GPUs, as equal as possible."""

    name, version = "fewest-pods", "1"

    def replica_strategy(self, view: View, need: ReplicaNeed) -> IntArray:
        return _equal(need.gpus, -(-need.gpus // need.largest))


class _Division(NamedTuple):
    """The lowest is the best."""

    domains: int
    pods: int
    spread: int  # between the largest and the smallest pod
    shares: tuple[int, ...]


def _best(room: IntArray, domain: IntArray, gpus: int, largest: int) -> tuple[int, ...] | None:
    """The best division that has room, in one domain if that is possible. None: there is none."""
    places = [np.flatnonzero((domain == each) & (room > 0)) for each in np.unique(domain[domain >= 0])]
    everywhere = np.flatnonzero(room > 0)
    found = [division for rows in places for division in _divisions(room[rows], 1, gpus, largest)]
    if not found:
        spanned = max(2, len(np.unique(domain[everywhere]))) if places else 1
        found = list(_divisions(room[everywhere], spanned, gpus, largest))
    return min(found).shares if found else None


def _divisions(room: IntArray, domains: int, gpus: int, largest: int) -> Iterator[_Division]:
    """Those that have room on these nodes: equal pods of each size, and pods as large as the nodes have room."""
    if int(room.sum()) < gpus:
        return
    sizes = np.sort(np.minimum(room, largest))
    for pods in sorted({-(-gpus // size) for size in range(1, min(largest, gpus) + 1)}):
        shares = _equal(gpus, pods)
        if pods <= MAX_PODS and _has_room(room, shares):
            yield _Division(domains, pods, int(shares[0] - shares[-1]), tuple(shares.tolist()))
            break
    filled: list[int] = []
    for size in sizes[::-1].tolist():
        if (left := gpus - sum(filled)) > 0:
            filled.append(min(size, left))
    if sum(filled) == gpus:
        yield _Division(domains, len(filled), filled[0] - filled[-1], tuple(filled))


def _has_room(room: IntArray, shares: IntArray) -> bool:
    """The larger pods first, each on the fullest nodes on which they fit."""
    left = np.sort(room)
    for size, count in _counted(shares):
        fits = left // size
        before = np.cumsum(fits) - fits
        taken = np.clip(count - before, 0, fits)
        if int(taken.sum()) < count:
            return False
        left = np.sort(left - taken * size)
    return True


def _counted(shares: IntArray) -> Iterable[tuple[int, int]]:
    sizes, counts = np.unique(shares, return_counts=True)
    found: list[tuple[int, int]] = list(zip(sizes.tolist(), counts.tolist(), strict=True))
    return reversed(found)


def _equal(gpus: int, pods: int) -> IntArray:
    shares: IntArray = np.full(pods, gpus // pods, np.int64)
    shares[: gpus % pods] += 1
    return shares


def _free_gpus(view: View, need: ReplicaNeed) -> IntArray:
    """By node: free whole GPUs that this work could use, as far as CPU and memory go with them."""
    if not len(view.nodes.names):
        return np.zeros(0, np.int64)
    is_free = _accepted(view, need) & (view.gpus[:, MILLI] >= WHOLE_MILLI)
    if view.reservations is not None:
        is_free &= ~view.reservations.closed((), 0)
    free: IntArray = is_free.sum(axis=1)
    for column, each in ((CPU, need.cpu_milli), (MEMORY, need.memory_mib)):
        if each:
            free = np.minimum(free, np.maximum(view.free[:, column], 0) // each)
    return free


def _taken_from_others(view: View, need: ReplicaNeed) -> IntArray:
    """By node: GPUs that it may take from less important work of its queue."""
    held = np.array([view.gpus_below(row, need.queue, need.priority) for row in range(len(view.nodes.names))], np.int64)
    return held * _accepted(view, need).any(axis=1)


def _accepted(view: View, need: ReplicaNeed) -> BoolArray:
    """By node and device: a working whole GPU of a model that it accepts, on a node that takes work."""
    nodes = view.nodes
    models = [at for at, name in enumerate(nodes.models) if not need.models or name in need.models]
    accepted: BoolArray = (view.gpus[:, USABLE] > 0) & (nodes.gpu_profile == 0) & np.isin(nodes.gpu_model, models)
    return accepted & nodes.schedulable[:, None]


def _largest(view: View, need: ReplicaNeed) -> int:
    """The most GPUs of one pod: those of the largest node with an accepted model."""
    if not len(view.nodes.names):
        return need.largest
    most = int(_accepted(view, need).sum(axis=1).max())
    return min(need.largest, most) if most else need.largest


def _domains(view: View) -> IntArray:
    """By node: its domain on the narrowest level of the network; -1: unknown."""
    for _, table in sorted(view.nodes.topologies.by_name.items()):
        if table.levels:
            return table.levels[-1].domain_of_node
    return np.full(len(view.nodes.names), -1, np.int64)


PLUGINS = (LiveRoom, FewestPods)  # the last one replaces one that misbehaves
