"""How busy GPUs are, as agents measure it.

In:    events.   Out: the load of each GPU, by node and device. Nothing waits for a load, so none is tried again for it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kaiwo.model.events import Event, GpuLoadsMeasured
from kaiwo.snapshot.array_types import IntArray, freeze

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState
    from kaiwo.snapshot.view import View

NOT_MEASURED = -1


def gpu_loads_measured(state: "ClusterState", event: GpuLoadsMeasured) -> None:
    for node, loads in event.loads.items():
        state.gpu_loads.pop(node, None)
        if loads:
            state.gpu_loads[node] = loads
    if not state.nodes_stale:
        rows = [row for node in event.loads if (row := state.nodes.row.get(node)) is not None]
        state.nodes.changed[rows] = state.version  # scores that were kept


def gpu_loads_event(state: "ClusterState") -> Iterable[Event]:
    if state.gpu_loads:
        yield GpuLoadsMeasured(dict(sorted(state.gpu_loads.items())))


def measured_load(view: "View") -> IntArray:
    """By node and device, in thousandths; NOT_MEASURED where nobody measures it."""
    return view.once(_load_table)


def _load_table(view: "View") -> IntArray:
    found: IntArray = np.full((len(view.all_rows), view.nodes.width), NOT_MEASURED, np.int64)
    for node, loads in view.gpu_loads.items():
        row = view.nodes.row.get(node)
        if row is not None:
            for gpu, column in view.nodes.column[row].items():
                found[row, column] = loads.get(gpu, NOT_MEASURED)
    freeze(found)
    return found
