"""How many pods of one shape fit on each node: the law of capacity, which no plugin can bend.

In:    the view, a request, rows of nodes.   Out: pods per node; 0 where it does not fit.
"""

import numpy as np

from kaiwo.gpus.device_fit import devices_of_reservation, pods_by_devices, pods_per_device
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import CPU, EXTENDED, MEMORY, PODS
from kaiwo.snapshot.view import View


def pods_that_fit(view: View, want: Request, nodes: Rows) -> IntArray:
    """The scarcest resource decides."""
    free, _ = view.of(nodes)
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
    """What is free of an extended resource; 0 where no node knows it."""
    if name not in view.nodes.extended_names:
        return np.zeros(len(nodes), np.int64)
    free: IntArray = view.of(nodes)[0][:, EXTENDED + view.nodes.extended_names.index(name)]
    return free
