"""What each node could give one pod, as far as obstacles name it: computed once, then updated for nodes that changed.

Most requests that wait differ only in amounts that do not matter here: 51 shapes needed 3 such tables.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from kaiwo.gpus.device_fit import eligible_devices, is_share_bounded, pods_per_device
from kaiwo.gpus.share_rules import closed_devices
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import MIB, MILLI, SIZE
from kaiwo.snapshot.view import View

MAX_KEPT = 256  # tables that outlive a cycle: 6 MB at 1,000 nodes


@dataclass(frozen=True)
class NodeAvailability:
    """What each node could give one pod of a kind, as of a version of the nodes."""

    version: int
    now: IntArray  # free devices, milli or MiB: whatever the kind is measured in
    devices: IntArray  # that would serve it if they were free
    largest_mib: IntArray  # of those devices

    @cached_property
    def most_now(self) -> int:
        """Of one node; the same below."""
        return int(self.now.max(initial=0))

    @cached_property
    def most_devices(self) -> int:
        return int(self.devices.max(initial=0))

    @cached_property
    def most_mib(self) -> int:
        return int(self.largest_mib.max(initial=0))


class AvailabilityCache:
    def __init__(self, state: ClusterState, start: View, view: View) -> None:
        self._shapes, self._start, self._view = state.backlog.shapes, start, view
        self._kept: dict[Request, NodeAvailability] = state.caches.setdefault("offers", {})
        self._now: dict[Request, NodeAvailability] = {}

    def of(self, shape: int) -> NodeAvailability:
        kind = self._kind(self._shapes[shape])
        now = self._now.get(kind)
        if now is None or now.version < self._view.clock:
            now = self._now[kind] = _repaired(self._view, kind, now or self._at_start(kind))
        return now

    def _at_start(self, kind: Request) -> NodeAvailability:
        if len(self._kept) >= MAX_KEPT and kind not in self._kept:
            self._kept.clear()
        kept = self._kept[kind] = _repaired(self._start, kind, self._kept.get(kind) or _unknown(self._start))
        return kept

    def _kind(self, want: Request) -> Request:
        """A request that stands for all to which every node could give the same.

        The amount of a share matters only where nodes or queues bound it, where tenants demand that it has limits, or
        where a fraction is asked for beside memory.
        """
        bare = replace(
            want, cpu_milli=0, memory_mib=0, extended=(), tolerations=(), avoid_nodes=(), node_choices=(), prefers=(),
            neighbours=None, share_with=(), threads_milli=0,
        )  # fmt: skip
        if want.is_exclusive:
            return replace(bare, gpus=1)
        has_demanding_tenants = self._start.tenants.demanding or self._view.tenants.demanding
        if not want.gpus or has_demanding_tenants or is_share_bounded(self._view, want):
            return bare
        if want.is_memory:
            return bare if want.fraction_milli else replace(bare, gpu_mib=1)
        return replace(bare, gpu_milli=1)


def availability_in(view: View, want: Request, rows: Rows) -> NodeAvailability:
    """Computed afresh, for these nodes."""
    now, devices, largest = np.zeros((3, len(view.nodes.names)), np.int64)
    now[rows], devices[rows], largest[rows] = _availability(view, want, rows)
    return NodeAvailability(view.clock, now, devices, largest)


def among(view: View, offer: NodeAvailability, rows: Rows) -> NodeAvailability:
    """The same of these nodes alone."""
    if rows is view.all_rows:
        return offer
    return NodeAvailability(offer.version, offer.now[rows], offer.devices[rows], offer.largest_mib[rows])


def fraction_alone(want: Request) -> Request:
    return replace(want, gpu_mib=0)


def _unknown(view: View) -> NodeAvailability:
    nothing = np.zeros(len(view.nodes.names), np.int64)
    return NodeAvailability(-1, nothing, nothing, nothing)


def _repaired(view: View, want: Request, offer: NodeAvailability) -> NodeAvailability:
    touched = view.touched_since(offer.version)
    if not len(touched):
        return offer
    now, devices, largest = offer.now.copy(), offer.devices.copy(), offer.largest_mib.copy()
    now[touched], devices[touched], largest[touched] = _availability(view, want, touched)
    return NodeAvailability(view.clock, now, devices, largest)


def _availability(view: View, want: Request, rows: Rows) -> tuple[IntArray, IntArray, IntArray]:
    gpus = view.of(rows).gpus
    able = eligible_devices(view, want, rows)
    milli, mib, size = gpus[:, MILLI], gpus[:, MIB], gpus[:, SIZE]
    devices, largest = able.sum(axis=1), (size * able).max(axis=1, initial=0)
    if want.is_exclusive:
        return pods_per_device(view, want, rows).sum(axis=1), devices, largest
    if want.is_memory:  # the largest request whose milli, rounded down, are still free
        usable = np.minimum(mib, ((milli + 1) * size - 1) // WHOLE_MILLI)
        if want.fraction_milli:  # memory counts only where the fraction is free, too
            usable = usable * (pods_per_device(view, fraction_alone(want), rows) > 0)
    else:  # the largest fraction whose part of the memory, rounded down, is still free
        usable = np.minimum(milli, ((mib + 1) * WHOLE_MILLI - 1) // np.maximum(size, 1))
    if (closed := closed_devices(view, want, rows)) is not None:
        able = able & ~closed
    return _on_each(np.maximum(usable, 0) * able, want.gpus), devices, largest


def _on_each(free: IntArray, devices: int) -> IntArray:
    """What a node has free on each of that many devices: the least of its best ones."""
    if not 0 < devices <= free.shape[1]:
        return np.zeros(len(free), np.int64)
    best: IntArray = free.max(axis=1) if devices == 1 else np.sort(free, axis=1)[:, -devices]
    return best
