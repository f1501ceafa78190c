"""What pods hold on their nodes, or what is kept for them, as arrays: how the nodes would look if some of them went.

In:    pods, and the nodes.   Out: amounts by pod and by device; sums over those of them that go.
"""

from collections.abc import Sequence

import numpy as np

from kaiwo.snapshot.arrays import BoolArray, IntArray, Rows
from kaiwo.snapshot.nodes import CPU, EXTENDED, MEMORY, MIB, MILLI, PODS, Held, NodeTable


class Holdings:
    """One row a pod, and one row a device of a pod; pods on nodes that are not there hold nothing."""

    def __init__(self, nodes: NodeTable, pods: Sequence[Held]) -> None:
        self._nodes = nodes
        there = [(number, nodes.row[pod.node], pod) for number, pod in enumerate(pods) if pod.node in nodes.row]
        self.number: Rows = np.array([number for number, _, _ in there], np.intp)  # its place among the pods
        self.row: Rows = np.array([row for _, row, _ in there], np.intp)
        self.amounts: IntArray = np.zeros((len(there), nodes.free.shape[1]), np.int64)  # columns as of `free`
        self.amounts[:, PODS] = 1
        self.amounts[:, CPU] = [pod.cpu_milli for _, _, pod in there]
        self.amounts[:, MEMORY] = [pod.memory_mib for _, _, pod in there]
        shares: list[tuple[int, int, int, int]] = []
        for at, (_, row, pod) in enumerate(there):
            for name, amount in pod.extended:
                if name in nodes.extended_names:
                    self.amounts[at, EXTENDED + nodes.extended_names.index(name)] += amount
            column = nodes.column[row]
            shares += [(at, column[each.gpu], each.milli, each.mib) for each in pod.devices if each.gpu in column]
        self.pod, self.column, self.milli, self.mib = np.array(shares, np.int64).reshape(-1, 4).T

    def give_back(self, goes: BoolArray, free: IntArray, gpus: IntArray) -> None:
        """Add what these pods hold to what is free on the nodes and on their devices."""
        np.add.at(free, self.row[goes], self.amounts[goes])
        here = goes[self.pod]
        at = (self.row[self.pod[here]], self.column[here])
        np.add.at(gpus[:, MILLI], at, self.milli[here])
        np.add.at(gpus[:, MIB], at, self.mib[here])

    def milli_on(self, devices: BoolArray) -> IntArray:
        """By pod: what it holds of these devices."""
        found = np.zeros(len(self.row), np.int64)
        np.add.at(found, self.pod, self.milli * devices[self.row[self.pod], self.column])
        return found
