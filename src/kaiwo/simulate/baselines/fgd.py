"""FGD, fragmentation gradient descent, as published in "Beware of Fragmentation" (USENIX ATC'23)."""

import numpy as np

from kaiwo.model.request import Request
from kaiwo.simulate.typical_requests import FloatArray, TypicalRequests
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import CPU, MILLI
from kaiwo.snapshot.view import View

LEVELS = 100  # scores are whole numbers: much of FGD's quality is that near-equal nodes are equal


class Fgd:
    """Choose the node and device on which a pod adds least to what typical requests cannot use.

    It knows the mix of all requests in advance.
    """

    name, version, weight = "fgd", "1", 1

    def __init__(self, typical: TypicalRequests) -> None:
        self._typical = typical

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        scores = np.zeros(len(nodes), np.int64)
        at, _, found = self._candidates(view, want, nodes)
        np.maximum.at(scores, at, found)
        return scores

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        if want.is_exclusive:
            return np.zeros(len(columns), np.int64)
        _, devices, found = self._candidates(view, want, np.array([node]))
        by_device = dict(zip(devices.tolist(), found.tolist(), strict=True))
        return np.array([-by_device.get(column, -1) for column in columns.tolist()], np.int64)

    def _candidates(self, view: View, want: Request, nodes: Rows) -> tuple[Rows, Rows, IntArray]:
        """Every way to place the pod: positions in `nodes`, the device of a share, and the score."""
        devices, cpu_free = view.gpus[nodes, MILLI], view.free[nodes, CPU]
        models = [view.nodes.nodes[row].gpus[0].model if view.nodes.nodes[row].gpus else "" for row in nodes]
        access = self._typical.access(models)
        before = self._typical.fragments(cpu_free, devices, access)
        if want.is_fraction and want.gpus == 1:
            at, device = (devices >= want.gpu_milli).nonzero()
            after = devices[at]
            after[np.arange(len(at)), device] -= want.gpu_milli
        else:
            at, device = np.arange(len(nodes)), np.zeros(len(nodes), np.intp)
            after = _without_whole(devices, want.gpus)
        left = cpu_free[at] - want.cpu_milli
        gain = before[at] - self._typical.fragments(left, after, access[:, at])
        return at, device, _levels(gain)


def _without_whole(devices: IntArray, count: int) -> IntArray:
    """The first free devices are taken."""
    is_free = devices == 1000
    taken = is_free & (np.cumsum(is_free, axis=1) <= count)
    return np.where(taken, 0, devices)


def _levels(gain: FloatArray) -> IntArray:
    levels: IntArray = (1.0 / (1.0 + np.exp(-gain / 1000)) * LEVELS).astype(np.int64)
    return levels
