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


def extended_free(view: View, name: str, nodes: Rows) -> IntArray:
    """0 where no node knows the resource."""
    if name not in view.nodes.extended_names:
        return np.zeros(len(nodes), np.int64)
    free: IntArray = view.of(nodes).free[:, EXTENDED + view.nodes.extended_names.index(name)]
    return free


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
