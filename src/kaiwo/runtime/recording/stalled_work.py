"""Watch the scheduler from outside: is there work and no cycle that ends, or work that nothing keeps waiting?

In:    the live loop, at each sample.   Out: how long nothing was decided, and how many workloads wait for no reason.
The watch reads what the loop keeps, never asks its thread: a thread that hangs must not stop the one who tells of it.
"""

import time

import numpy as np

from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import MILLI, USABLE

PATIENT_S = 30.0  # a class that just arrived has no obstacle yet


class StalledWork:
    def __init__(self, live: LiveLoop) -> None:
        self._live = live
        self._cycles = -1
        self._ended_at = time.monotonic()  # when the last cycle ended, or there was last nothing to do
        self._since: dict[tuple[tuple[str, str], str], float] = {}  # by class and first workload: without an obstacle

    def stalled_s(self, cycles: int) -> int:
        """For how long there has been work to look at, and no cycle has ended. `cycles`: that ended since the start."""
        now = time.monotonic()
        backlog = self._live.state.backlog
        is_busy = self._live.busy_since is not None
        has_work = bool(backlog.by_key) and bool(backlog.to_try or backlog.try_all or backlog.pending_actions)
        if cycles != self._cycles or not (has_work or is_busy):
            self._cycles, self._ended_at = cycles, now
        return int(now - self._ended_at)

    def eligible(self) -> int:
        """Workloads in classes whose first one has waited for half a minute, and of which no obstacle is known."""
        now, planned = time.monotonic(), self._live.state.planned_starts
        since, count = {}, 0
        for key, found in list(self._live.state.backlog.by_key.items()):
            if found.obstacles or not len(found.waiters):
                continue
            first = found.waiters.name_at(0)
            if first in planned:
                continue
            since[key, first] = self._since.get((key, first), now)
            if now - since[key, first] >= PATIENT_S:
                count += len(found.waiters)
        self._since = since
        return count


def idle_gpu_milli(state: ClusterState) -> int:
    """Free parts of devices that work, on nodes that take work."""
    nodes = state.nodes
    free = np.where(nodes.gpus[:, USABLE] > 0, nodes.gpus[:, MILLI], 0)
    return int(free[nodes.schedulable].sum())
