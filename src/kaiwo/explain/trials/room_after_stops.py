"""The nodes of running workloads as they would be without each of them, all examined in one pass over arrays."""

from functools import cached_property

import numpy as np

from kaiwo.decide.placement.node_fit import pods_that_fit
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.node_table import CPU, EXTENDED, MEMORY, MIB, MILLI, PODS, Allocation
from kaiwo.snapshot.view import NO_TENANTS, View

WorkloadOnNode = tuple[str, int]  # a running workload, and a row of a node on which it holds something


class RoomAfterStops:
    """For each of some running workloads: what its nodes would have room for if it alone were stopped."""

    def __init__(self, view: View, running: dict[str, list[Allocation]]) -> None:
        row_of = view.nodes.row
        places = {(name, each.node) for name, held in running.items() for each in held}
        pairs = sorted((name, row_of[node]) for name, node in places if node in row_of)
        self.names = sorted(running)
        at = {name: index for index, name in enumerate(self.names)}
        self._rows = np.array([row for _, row in pairs], np.intp)
        self._owner = np.array([at[name] for name, _ in pairs], np.intp)
        free, self._gpus = _given_back(view, running, pairs, self._rows)
        # A tenant that excludes others from its device may be gone by then.
        self._after = view.with_amounts(self._rows, free, self._gpus, NO_TENANTS)

    def more_pods(self, want: Request, may: BoolArray, now: IntArray) -> IntArray:
        """By workload: how many more pods would fit. `may`: the nodes that they may use; `now`: how many fit there."""
        gain = pods_that_fit(self._after, want, self._rows) * may[self._rows] - now[self._rows]
        return np.bincount(self._owner, gain, len(self.names)).astype(np.int64)

    @cached_property
    def milli(self) -> IntArray:
        """By workload: the free milli-GPU of its nodes."""
        return np.bincount(self._owner, self._gpus[:, MILLI].clip(0).sum(axis=1), len(self.names)).astype(np.int64)


def _given_back(
    view: View, running: dict[str, list[Allocation]], pairs: list[WorkloadOnNode], rows: IntArray
) -> tuple[IntArray, IntArray]:
    """`free` and `gpus` of each pair's node, as they would be without that workload."""
    free, gpus = view.free[rows], view.gpus[rows]
    at = {pair: index for index, pair in enumerate(pairs)}
    extended = {name: EXTENDED + index for index, name in enumerate(view.nodes.extended_names)}
    for name, held in running.items():
        for each in held:
            row = view.nodes.row.get(each.node)
            if row is None:
                continue
            index, columns = at[(name, row)], view.nodes.column[row]
            free[index, CPU] += each.cpu_milli
            free[index, MEMORY] += each.memory_mib
            free[index, PODS] += 1
            for resource, amount in each.extended:
                if resource in extended:
                    free[index, extended[resource]] += amount
            for share in each.devices:
                if (column := columns.get(share.gpu)) is not None:
                    gpus[index, MILLI, column] += share.milli
                    gpus[index, MIB, column] += share.mib
    return free, gpus
