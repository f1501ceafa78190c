"""Prefer nodes whose GPUs are less busy, as agents measure them.

What is allocated counts as much (`spread`): work that has just started is not measured yet.
"""

import numpy as np

from kaiwo.model.request import Request
from kaiwo.plugins.contract import TOP_SCORE
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.learned.gpu_loads import measured_load
from kaiwo.snapshot.node_table import MILLI, USABLE
from kaiwo.snapshot.view import View

_STRATEGIES = ("", "load-balanced")  # of queues and workloads; empty: the policy says `spread`


class MeasuredLoad:
    """Where work is spread, prefer the nodes whose GPUs are least busy; one that nobody measures is as busy as full."""

    name, version, weight, placement = "measured-load", "1", 10, "spread"

    def applies(self, want: Request) -> bool:
        return want.gpus > 0 and want.strategy in _STRATEGIES

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        if not view.gpu_loads:
            return np.zeros(len(nodes), np.int64)
        gpus = view.of(nodes).gpus
        size, works = view.nodes.device_milli[nodes], gpus[:, USABLE] > 0
        busy = busy_milli(measured_load(view)[nodes], size, gpus[:, MILLI]) * works
        total = (size * works).sum(axis=1)
        scores: IntArray = TOP_SCORE - np.minimum(TOP_SCORE, TOP_SCORE * busy.sum(axis=1) // np.maximum(total, 1))
        return scores


def busy_milli(load: IntArray, size: IntArray, free: IntArray) -> IntArray:
    """Of each device: the measured part of it; where nobody measures it, the part that is allocated."""
    found: IntArray = np.where(load >= 0, load * size // 1000, size - free)
    return found


PLUGINS = (MeasuredLoad,)
