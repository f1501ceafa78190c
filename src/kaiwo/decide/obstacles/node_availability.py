"""What each node could give one pod of a shape, in the shape's own measure: kept, and repaired for touched nodes.

In:    the view, a shape.   Out: per node the free whole devices, or the free share or memory on each device it needs.
An obstacle names the best of them; looking at every device for every shape in every cycle was most of its cost.
"""

from dataclasses import dataclass

import numpy as np

from kaiwo.gpus.device_fit import eligible_devices, pods_per_device
from kaiwo.gpus.isolation_grades import closed_by_tenants
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import MIB, MILLI, SIZE
from kaiwo.snapshot.view import View


@dataclass(frozen=True, slots=True)
class NodeAvailability:
    """As of a version of the nodes."""

    version: int
    now: IntArray  # free devices, milli or MiB
    devices: IntArray  # that would serve it if they were free
    largest_mib: IntArray  # of those devices


class AvailabilityCache:
    """What the nodes have for each shape that was asked about."""

    def __init__(self, state: ClusterState, start: View, view: View) -> None:
        self._shapes, self._start, self._view = state.backlog.shapes, start, view
        self._kept: dict[int, NodeAvailability] = state.caches.setdefault("offers", {})

    def of(self, shape: int) -> NodeAvailability:
        """What every node has for one pod of the shape."""
        want = self._shapes[shape]
        kept = self._kept[shape] = _repaired(self._start, want, self._kept.get(shape) or _unknown(self._view))
        return _repaired(self._view, want, kept)


def availability_in(view: View, want: Request, rows: Rows) -> NodeAvailability:
    """What these nodes have for a request, computed afresh."""
    now, devices, largest = np.zeros((3, len(view.nodes.names)), np.int64)
    now[rows], devices[rows], largest[rows] = _look(view, want, rows)
    return NodeAvailability(view.clock, now, devices, largest)


def _unknown(view: View) -> NodeAvailability:
    nothing = np.zeros(len(view.nodes.names), np.int64)
    return NodeAvailability(-1, nothing, nothing, nothing)


def _repaired(view: View, want: Request, offer: NodeAvailability) -> NodeAvailability:
    touched = (view.changed > offer.version).nonzero()[0]
    if not len(touched):
        return offer
    now, devices, largest = offer.now.copy(), offer.devices.copy(), offer.largest_mib.copy()
    now[touched], devices[touched], largest[touched] = _look(view, want, touched)
    return NodeAvailability(view.clock, now, devices, largest)


def _look(view: View, want: Request, rows: Rows) -> tuple[IntArray, IntArray, IntArray]:
    gpus = view.of(rows)[1]
    able = eligible_devices(view, want, rows)
    milli, mib, size = gpus[:, MILLI], gpus[:, MIB], gpus[:, SIZE]
    devices, largest = able.sum(axis=1), (size * able).max(axis=1, initial=0)
    if want.is_exclusive:
        return pods_per_device(view, want, rows).sum(axis=1), devices, largest
    if want.is_memory:  # the largest request whose milli, rounded down, are still free
        usable = np.minimum(mib, ((milli + 1) * size - 1) // 1000)
    else:  # the largest fraction whose part of the memory, rounded down, is still free
        usable = np.minimum(milli, ((mib + 1) * 1000 - 1) // np.maximum(size, 1))
    if (closed := closed_by_tenants(view, want, rows)) is not None:
        able = able & ~closed
    return _on_each(np.maximum(usable, 0) * able, want.gpus), devices, largest


def _on_each(free: IntArray, devices: int) -> IntArray:
    """What a node has free on each of that many devices: the lowest of its best ones."""
    if not 0 < devices <= free.shape[1]:
        return np.zeros(len(free), np.int64)
    best: IntArray = free.max(axis=1) if devices == 1 else np.sort(free, axis=1)[:, -devices]
    return best
