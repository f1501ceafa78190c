"""How many pods of one shape fit on each node, as it is or under a capacity mask.

No plugin can override it.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.gpus.device_fit import devices_of_reservation, pods_by_devices, pods_per_device
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import CPU, EXTENDED, MEMORY, MIB, PODS
from kaiwo.snapshot.view import View


def pods_that_fit(view: View, want: Request, nodes: Rows) -> IntArray:
    free = view.of(nodes).free
    slots = free[:, PODS]
    if want.gpus:
        slots = np.minimum(slots, pods_by_devices(pods_per_device(view, want, nodes), want.gpus))
    if want.cpu_milli:
        slots = np.minimum(slots, free[:, CPU] // want.cpu_milli)
    if want.memory_mib:
        slots = np.minimum(slots, free[:, MEMORY] // want.memory_mib)
    for name, amount in want.extended:
        if amount:
            slots = np.minimum(slots, extended_free(view, name, nodes) // amount)
    if view.reservations is not None:
        slots = slots * ~view.reservations.closed_nodes(want.passes, want.holds_s)[nodes]
    if want.reservation and not want.gpus:
        slots = slots * devices_of_reservation(view, want, nodes).any(axis=1)
    fitting: IntArray = np.maximum(slots, 0)
    return fitting


class MostFree(NamedTuple):
    """The most that one of some nodes has free, and one of their devices."""

    cpu_milli: int
    memory_mib: int
    pods: int
    device_milli: int
    device_mib: int


def most_free(view: View, nodes: Rows) -> MostFree:
    """Computed once for all who ask about the same array of nodes."""
    known = view.own(_KnownMostFree)
    if known.clock != view.clock:
        known.clock, known.by_nodes = view.clock, {}
    _, most = known.by_nodes.get(id(nodes), (None, None))
    if most is None:
        free, gpus = view.of(nodes)
        by_node = free[:, : PODS + 1].max(axis=0, initial=0).tolist()  # CPU, MEMORY, PODS
        by_device = gpus[:, : MIB + 1].max(axis=(0, 2), initial=0).tolist()  # MILLI, MIB
        most = MostFree(*by_node, *by_device)
        known.by_nodes[id(nodes)] = (nodes, most)
    return most


def may_fit(view: View, want: Request, nodes: Rows) -> bool:
    """A necessary condition for one pod on one of these nodes."""
    most = most_free(view, nodes)
    if most.pods < 1 or most.cpu_milli < want.cpu_milli or most.memory_mib < want.memory_mib:
        return False
    if not want.gpus or want.partition:
        return True
    return most.device_mib >= want.gpu_mib if want.gpu_mib else most.device_milli >= want.gpu_milli


class _KnownMostFree:
    """What `most_free` knows of one view."""

    __slots__ = ("by_nodes", "clock")

    def __init__(self) -> None:
        self.clock = -1
        self.by_nodes: dict[int, tuple[Rows, MostFree]] = {}  # by id of the array, which is held so that it stays


def extended_free(view: View, name: str, nodes: Rows) -> IntArray:
    """0 where no node knows the resource."""
    if name not in view.nodes.extended_names:
        return np.zeros(len(nodes), np.int64)
    free: IntArray = view.of(nodes).free[:, EXTENDED + view.nodes.extended_names.index(name)]
    return free


def left_in_pool(view: View, name: str) -> int:
    """What is left of a resource that is counted over all nodes together. Every node offers the whole pool."""
    nodes = view.nodes
    if name not in nodes.extended_names:
        return 0
    offered = nodes.once(
        ("offered", name), lambda: np.array([node.extended.get(name, 0) for node in nodes.nodes], np.int64)
    )
    used = int((offered - view.free[:, EXTENDED + nodes.extended_names.index(name)]).sum())
    return max(0, view.pools[name] - used)


def pods_in_pools(view: View, want: Request, most: int) -> int:
    """How many of `most` such pods the pools allow."""
    if view.pools:
        for name, amount in want.extended:
            if amount and name in view.pools:
                most = min(most, left_in_pool(view, name) // amount)
    return most


class CapacityMask(NamedTuple):
    """What is not free on some nodes for work that would still run when a planned start begins."""

    key: tuple[int, ...]  # the planned starts that it protects: equal keys are equal masks
    rows: Rows  # in order
    free: IntArray  # by row: 0 or less
    gpus: IntArray  # by row, (MILLI, MIB) and device: 0 or less

    def over(self, view: View, nodes: Rows) -> View:
        at = np.minimum(np.searchsorted(self.rows, nodes), len(self.rows) - 1)
        is_masked = self.rows[at] == nodes
        free, gpus = view.free[nodes], view.gpus[nodes]
        free[is_masked] += self.free[at[is_masked]]
        gpus[is_masked, : MIB + 1] += self.gpus[at[is_masked]]
        return view.with_amounts(nodes, free, gpus)
