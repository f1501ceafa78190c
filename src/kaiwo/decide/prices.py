"""What it costs others when a waiting workload takes their places: how many units lose theirs.

In:    the units that gave up their places for a claim.   Out: a price a node, and the cheapest devices of one.
"""

import numpy as np

from kaiwo.decide.victims import Unit
from kaiwo.model.request import Request
from kaiwo.snapshot.arrays import IntArray
from kaiwo.snapshot.nodes import NodeTable


class TakenPlaces:
    """Who was where."""

    def __init__(self, nodes: NodeTable, taken: list[Unit]) -> None:
        self._nodes = nodes
        self._units: dict[int, list[list[int]]] = {}  # by node: the devices of each unit there, in the order of taking
        self._prices: dict[Request, IntArray] = {}
        for unit in taken:
            self._note(unit)

    def of_nodes(self, want: Request) -> IntArray:
        """How many units must go from each node so that one such pod fits."""
        prices = self._prices.get(want)
        if prices is None:
            prices = self._prices[want] = np.zeros(len(self._nodes.names), np.int64)
            for row, units in self._units.items():
                if want.gpus:
                    taken = {column for unit in units for column in unit}
                    free = len(self._nodes.column[row]) - len(taken)  # at most: others may hold some of them
                    prices[row] = len(_cheapest(units, want.gpus - max(0, min(free, want.gpus))))
                else:
                    prices[row] = len(units)
        return prices

    def cheapest_first(self, row: int, columns: IntArray, want: Request) -> IntArray:
        """Devices that nobody had, then those of as few units as will do."""
        units = self._units.get(row)
        if not units:
            return columns
        taken = {column for unit in units for column in unit}
        ordered = [column for column in columns.tolist() if column not in taken]
        for unit in _cheapest(units, want.gpus - len(ordered)):
            ordered.extend(column for column in unit if column not in ordered)
        known = set(columns.tolist())
        ordered.extend(column for column in columns.tolist() if column not in ordered)
        return np.array([column for column in ordered if column in known], columns.dtype)

    def _note(self, unit: Unit) -> None:
        by_row: dict[int, list[int]] = {}
        for pod in unit.pods:
            row = self._nodes.row.get(pod.node)
            if row is not None:
                found = by_row.setdefault(row, [])
                found.extend(self._nodes.column[row][s.gpu] for s in pod.devices if s.gpu in self._nodes.column[row])
        for row, devices in by_row.items():
            self._units.setdefault(row, []).append(devices)


def _cheapest(units: list[list[int]], need: int) -> list[list[int]]:
    """As few units as give so many devices: the smallest that is enough alone, else the largest and again."""
    left, chosen = [unit for unit in units if unit], []
    while need > 0 and left:
        enough = [unit for unit in left if len(unit) >= need]
        best = min(enough, key=len) if enough else max(left, key=len)
        left.remove(best)
        chosen.append(best)
        need -= len(best)
    return chosen
