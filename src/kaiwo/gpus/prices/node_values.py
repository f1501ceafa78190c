"""What nodes are worth as they are: computed once for all requests that are scored, and again where a node changed.

In:    a view, and the values of slots.   Out: by node, all that does not depend on a request.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.gpus.prices.slot_values import SlotValues
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import CPU, MILLI, USABLE
from kaiwo.snapshot.view import View


class NodeValues(NamedTuple):
    """By node."""

    cpu: IntArray  # free milli-CPU
    model: IntArray  # of the first GPU
    whole: IntArray  # how many devices are wholly free
    total: IntArray  # the value of the node, as far as its CPU allows
    devices: IntArray  # then by device: what is free of it, if it works
    gpus: IntArray  # by price of a CPU, then by node: the value of the free GPUs


def node_values(view: View, slots: SlotValues, nodes: Rows) -> NodeValues:
    if view.has_own_amounts:  # for just these nodes
        return _computed(view, slots, nodes)
    known = view.own(_KnownValues)
    if known.slots is not slots:
        known.start(view, slots)
    stale = nodes[view.changed[nodes] > known.as_of[nodes]]
    if len(stale):
        known.write(stale, view.changed[stale], _computed(view, slots, stale))
    return known.values if nodes is view.all_rows else known.of(nodes)


def free_milli(gpus: IntArray) -> IntArray:
    """By node and device: the free milli of devices that work."""
    found: IntArray = np.where(gpus[:, USABLE] > 0, gpus[:, MILLI], 0)
    return found


def _computed(view: View, slots: SlotValues, nodes: Rows) -> NodeValues:
    free, gpus = view.of(nodes)
    cpu, model, devices = free[:, CPU], view.nodes.gpu_model[nodes, 0], free_milli(gpus)
    whole, value = (devices >= WHOLE_MILLI).sum(axis=1), slots.of_gpus(model, devices)
    return NodeValues(cpu, model, whole, slots.with_cpu(cpu, value), devices, value)


class _KnownValues:
    """Of all nodes of one view, each as of its last change when it was asked for."""

    __slots__ = ("as_of", "slots", "values")
    as_of: IntArray
    values: NodeValues

    def __init__(self) -> None:
        self.slots: SlotValues | None = None

    def start(self, view: View, slots: SlotValues) -> None:
        count = len(view.all_rows)
        cpu, model, whole, total = np.empty((4, count), np.int64)
        devices, gpus = (
            np.empty((count, view.nodes.width), np.int64),
            np.empty((len(slots.cpu_prices), count), np.int64),
        )
        self.slots, self.as_of = slots, np.full(count, -1, np.int64)
        self.values = NodeValues(cpu, model, whole, total, devices, gpus)

    def write(self, nodes: Rows, as_of: IntArray, fresh: NodeValues) -> None:
        self.as_of[nodes] = as_of
        for known, now in zip(self.values[:5], fresh[:5], strict=True):
            known[nodes] = now
        self.values.gpus[:, nodes] = fresh.gpus

    def of(self, nodes: Rows) -> NodeValues:
        cpu, model, whole, total, devices, gpus = self.values
        by_node = (cpu[nodes], model[nodes], whole[nodes], total[nodes])
        return NodeValues(*by_node, devices[nodes], gpus.take(nodes, axis=1))
