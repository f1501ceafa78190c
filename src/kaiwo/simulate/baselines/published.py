"""The other baselines of "Beware of Fragmentation" (USENIX ATC'23): best-fit, dot-product, packing, clustering, random.

Scores are whole numbers from 0 to 100, as published.
"""

import numpy as np

from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import CPU, FREE_GPU, MILLI
from kaiwo.snapshot.view import View

MOST_CPU_MILLI, MOST_GPU_MILLI = 128_000, 8_000  # of a node: amounts are compared as parts of these
TOP, WHOLE = 100, 1000


class FullestDevice:
    """Every one of these policies puts a share on the device with the least left, and whole GPUs on the first."""

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        left: IntArray = view.gpus[node, MILLI, columns]
        return left


class PublishedBestFit(FullestDevice):
    """Prefer the node that is left with the least, CPU and GPUs counted alike."""

    name, version, weight = "best-fit", "1", 1

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        free = view.of(nodes).free
        cpu = (free[:, CPU].astype(np.float64) - want.cpu_milli) / MOST_CPU_MILLI * 0.5
        left = cpu + (free[:, FREE_GPU].astype(np.float64) - _gpu_milli(want)) / MOST_GPU_MILLI * 0.5
        return _whole((1.0 - left) * TOP)


class DotProduct(FullestDevice):
    """Prefer the node whose free amounts point least in the direction of the request (Tetris, SIGCOMM'14)."""

    name, version, weight = "dot-product", "1", 1

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        free = view.of(nodes).free
        product = free[:, CPU] / MOST_CPU_MILLI * (want.cpu_milli / MOST_CPU_MILLI)
        product = product + free[:, FREE_GPU] / MOST_GPU_MILLI * (_gpu_milli(want) / MOST_GPU_MILLI)
        return _whole(TOP * (1.0 - product / 2))


class GpuPacking(FullestDevice):
    """Prefer shared devices, then free devices of used nodes, then the smallest unused node."""

    name, version, weight = "gpu-packing", "1", 1

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        if not want.gpus:
            return np.zeros(len(nodes), np.int64)
        left = view.of(nodes).gpus[:, MILLI]
        there = view.nodes.device_milli[nodes] > 0
        is_free = there & (left == WHOLE)
        free, total = is_free.sum(axis=1), there.sum(axis=1)
        if want.is_fraction:
            fits = there & (left >= want.gpu_milli)
            tightest = np.where(fits, left, WHOLE + 1).min(axis=1)
            new = (tightest == WHOLE).astype(np.int64)
        else:
            tightest, new = np.full(len(nodes), WHOLE), np.full(len(nodes), want.gpus)
        on_shared = np.maximum(TOP - tightest * TOP // WHOLE // 10, TOP // 2)
        on_used = np.where(new > 0, np.maximum(TOP // 2 - new, TOP // 3), on_shared)
        score: IntArray = np.where(free == total, np.maximum(TOP // 3 - free, free), on_used)
        return np.clip(score, 0, TOP)


class GpuClustering(FullestDevice):
    """Prefer nodes that run only pods with as many GPUs, then nodes that run some, then unused nodes."""

    name, version, weight = "gpu-clustering", "1", 1

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        if not want.gpus:
            return np.zeros(len(nodes), np.int64)
        free = view.of(nodes).free[:, FREE_GPU]
        filled = TOP // 4 * (MOST_GPU_MILLI - free) // MOST_GPU_MILLI
        own = "share" if want.is_fraction else str(want.gpus)
        quarter = [_quarter(kinds_on(view, row), own) for row in nodes.tolist()]
        return np.clip(filled + TOP // 4 * np.array(quarter, np.int64), 0, TOP)


def _quarter(kinds: frozenset[str], own: str) -> int:
    if own in kinds:
        return 3 if len(kinds) == 1 else 2
    return 0 if kinds else 1


def kinds_on(view: View, row: int) -> frozenset[str]:
    """The kinds of GPU pods on a node: `share`, or how many GPUs each has."""
    held = [each.devices for each in view.held_on(row) if each.devices]
    return frozenset("share" if each[0].milli < WHOLE else str(len(each)) for each in held)


class RandomNode(FullestDevice):
    """Any node that fits, and any of its devices. The draw follows from the seed and the time alone."""

    name, version, weight = "random", "1", 1

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        drawn: IntArray = np.random.default_rng((self._seed, view.now_s)).permutation(len(view.nodes.names))[nodes]
        return drawn * 1000 // max(1, len(view.nodes.names) - 1)

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        drawn: IntArray = np.random.default_rng((self._seed, view.now_s, node)).permutation(len(columns))
        return drawn


class RoundRobinNodes:
    """The first release's way: the nodes in turn, and the first device that fits."""

    name, version, weight = "seed", "1", 1

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        """The turn moves on by one node with every arrival."""
        size = len(view.nodes.names)
        distance = (nodes.astype(np.int64) - view.now_s) % size
        return 1000 - distance * 1000 // size

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return np.zeros(len(columns), np.int64)


def _gpu_milli(want: Request) -> int:
    return want.gpus * want.gpu_milli


def _whole(score: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> IntArray:
    cut: IntArray = np.clip(score, 0, TOP).astype(np.int64)
    return cut
