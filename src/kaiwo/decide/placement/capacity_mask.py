"""A capacity mask: what is not free on some nodes for work that would still run when a planned start begins.

In:    the view, rows of nodes.   Out: the view with less on these nodes.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import MIB
from kaiwo.snapshot.view import View


class CapacityMask(NamedTuple):
    """Amounts to take off what is free."""

    key: tuple[int, ...]  # the planned starts that it protects: equal keys are equal masks
    rows: Rows  # in order
    free: IntArray  # by row: 0 or less
    gpus: IntArray  # by row, (MILLI, MIB) and device: 0 or less

    def over(self, view: View, nodes: Rows) -> View:
        """The view as these nodes look under the mask."""
        at = np.minimum(np.searchsorted(self.rows, nodes), len(self.rows) - 1)
        is_masked = self.rows[at] == nodes
        free, gpus = view.free[nodes], view.gpus[nodes]
        free[is_masked] += self.free[at[is_masked]]
        gpus[is_masked, : MIB + 1] += self.gpus[at[is_masked]]
        return view.with_amounts(nodes, free, gpus)
