"""Every device of the cluster as columns: where and what it is, and what of it is free.

In:    the table of nodes.   Out: columns of equal length, in the order of node names and of the devices on a node.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.node_table import MIB, MILLI, SIZE, USABLE, NodeTable


@dataclass(frozen=True, slots=True)
class Devices:
    """One place in each column for each device."""

    nodes: NDArray[Any]  # names
    ids: list[str]  # unique on their node
    models: NDArray[Any]  # names
    free_milli: IntArray  # of the physical GPU
    free_mib: IntArray
    size_mib: IntArray
    usable: IntArray  # 1: works

    def __len__(self) -> int:
        return len(self.ids)


def list_devices(table: NodeTable) -> Devices:
    """All of them at once. Node and device are two columns: 80,000 joined names alone would take 12 ms."""
    there, gpus = table.gpu_model >= 0, table.gpus
    return Devices(
        np.array(table.names, dtype=object).repeat(there.sum(axis=1)),
        list(chain.from_iterable(table.column)),
        np.array([*table.models, ""], dtype=object)[table.gpu_model[there]],
        gpus[:, MILLI][there],
        gpus[:, MIB][there],
        gpus[:, SIZE][there],
        gpus[:, USABLE][there],
    )
