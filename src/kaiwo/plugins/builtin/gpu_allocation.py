"""Built-in strategies that choose the devices of a node for a pod."""

import numpy as np

from kaiwo.gpus.device_locality import nearest_devices
from kaiwo.model.request import Request
from kaiwo.plugins.builtin.request_mix import is_priced, share_losses
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.learned.gpu_loads import measured_load
from kaiwo.snapshot.node_table import MIB, MILLI, PODS, SIZE
from kaiwo.snapshot.view import View


class FirstFit:
    """The first device that fits."""

    name, version, fills = "first-fit", "1", True

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return np.zeros(len(columns), np.int64)


class BestFit:
    """The device with the least left: compute first, then memory."""

    name, version, fills = "best-fit", "1", True

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return _left(view, node, columns)


class WorstFit:
    """The device with the most left: compute first, then memory."""

    name, version = "worst-fit", "1"

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return -_left(view, node, columns)


class RoundRobin:
    """The devices in turn: the next after as many as the node has pods."""

    name, version = "round-robin", "1"

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        """The turn follows from the state of the node, so it survives a restart."""
        turn = view.nodes.nodes[node].pods - int(view.free[node, PODS])
        return (columns - turn) % max(1, len(view.nodes.nodes[node].gpus))


class LoadBalanced:
    """The device of which the smallest part is in use: what is measured, and what is allocated, count alike.

    Allocated is compute or memory, whichever is more. Where nobody measures a device, what is allocated counts twice.
    """

    name, version = "load-balanced", "2"

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        size = np.maximum(view.gpus[node, SIZE, columns], 1)
        by_memory = 1000 - 1000 * view.gpus[node, MIB, columns] // size
        granted: IntArray = np.maximum(1000 - view.gpus[node, MILLI, columns], by_memory)
        if not view.gpu_loads:
            return granted
        load = measured_load(view)[node, columns]
        found: IntArray = granted + np.where(load >= 0, load, granted)
        return found


class FragmentationAware:
    """The device where a share takes least of what the mix of requests could use, once a mix was learned.

    Until then, a shared device before a whole one; among shared ones, the one with the least usable part left.

    The partitions of one pod share an IO die where possible; whole GPUs of one pod are those with the best links.
    """

    name, version, fills = "fragmentation-aware", "1", True

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        """Stranded amounts count: compute without memory, or memory without compute, is useless."""
        if want.is_exclusive:
            return nearest_devices(view, want, node, columns)
        if want.is_fraction and is_priced(view, want):
            return share_losses(view, want, node, columns)
        milli, mib, size, _ = view.gpus[node][:, columns]
        usable = np.minimum(milli, 1000 * mib // np.maximum(size, 1))
        rank: IntArray = usable * 1001 + (milli - usable)
        return rank


def _left(view: View, node: int, columns: IntArray) -> IntArray:
    size = np.maximum(view.gpus[node, SIZE, columns], 1)
    left: IntArray = view.gpus[node, MILLI, columns] * 1_000_000 + 1_000_000 * view.gpus[node, MIB, columns] // size
    return left


PLUGINS = (FragmentationAware, FirstFit, BestFit, WorstFit, RoundRobin, LoadBalanced)
