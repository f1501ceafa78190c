"""Keep an overview of the cluster ready for the API: workloads as rows, totals of nodes and queues, and GPUs.

The event loop is never held for more than a few milliseconds.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec
import numpy as np

from kaiwo.clusters.protocol import RecordChanges
from kaiwo.runtime.forecasting.forward_worker import ForwardWorker
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.overview.queue_shares import QueueShareRow, QueueShareTable
from kaiwo.runtime.overview.workload_table import HOLDS, MANY, STATES, WAITS, WorkloadRows
from kaiwo.snapshot.array_types import BoolArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU as NODE_CPU
from kaiwo.snapshot.node_table import MEMORY as NODE_MEMORY
from kaiwo.snapshot.node_table import MILLI, PODS, USABLE

STILL_FRESH_S = 0.1
LONG_S, REST_FACTOR = 0.02, 6  # after an update that took long, rows may be as old as six of them take


class ClusterTotals(msgspec.Struct, frozen=True):
    nodes: int
    nodes_used: int
    nodes_out: int
    gpus: int
    gpus_used: int
    gpu_milli: int
    gpu_used_milli: int
    cpu_milli: int
    cpu_used_milli: int
    memory_mib: int
    memory_used_mib: int


class QueueTotals(msgspec.Struct, frozen=True):
    shares: QueueShareRow
    running: int  # workloads of this queue and those below it
    waiting: int


class ClusterOverview:
    """Call `fresh` before you read the rows, and read them before the next await."""

    def __init__(self, live: LiveLoop) -> None:
        self.live = live
        self.rows = WorkloadRows()
        self.queue_shares = QueueShareTable(live)
        self.forward = ForwardWorker(live)
        self._lock = asyncio.Lock()
        self.shown_revision = -1  # the loop's revision that the rows show
        self._version = -1  # the version of the last record changes that the rows show
        self._checked_at = 0.0
        self._rest_s = 0.0  # how old the rows may get after a large update
        self._changes = self._changes_shown = 0  # made through the API, and those of them that the rows show

    def mark_changed(self) -> None:
        """Something was just changed through the API: the next reader must see it."""
        self._changes += 1

    async def fresh(self) -> WorkloadRows:
        state = self.live.state
        if len(state.node_objects) != len(state.nodes.names):  # nodes came or went since the last cycle
            await self.live.ask(ClusterState.refresh_tables)
        if self._is_fresh_enough(self._lock.locked()):
            return self.rows
        async with self._lock:
            if self._is_fresh_enough(False):
                return self.rows
            changes_shown, revision = self._changes, self.live.revision
            changes = self.live.cluster.records_since(self._version)
            if changes.is_all or len(changes.records) + len(changes.gone) > MANY:
                self.rows, took_s = await asyncio.to_thread(_timed, _updated, self.rows, changes)
                self._rest_s = REST_FACTOR * took_s if took_s > LONG_S else 0.0
            else:
                self.rows.apply(changes.records, changes.gone)
                self._rest_s = 0.0
            self._measure_memory_requests()
            self._changes_shown, self.shown_revision, self._version = changes_shown, revision, changes.version
            self._checked_at = time.monotonic()
        return self.rows

    async def fresh_queues(self) -> None:
        await self.fresh()
        await self.queue_shares.fresh()

    def _is_fresh_enough(self, is_updating: bool) -> bool:
        """True if a reader need not wait: only the first one, and one after a change, wait for a large update."""
        if self._changes != self._changes_shown or self._version < 0:
            return False
        is_new = self.shown_revision != self.live.revision
        return is_updating or time.monotonic() - self._checked_at < (self._rest_s if is_new else STILL_FRESH_S)

    def _measure_memory_requests(self) -> None:
        pods = self.live.state.pods
        for name in [name for name in self.rows.unmeasured if name in pods]:
            self.rows.set_gpu_milli(name, sum(share.milli for pod in pods[name].values() for share in pod.devices))

    def count_states(self) -> dict[str, int]:
        return {state.value: self.rows.counts.in_state(code) for code, state in enumerate(STATES)}

    def sum_nodes(self) -> ClusterTotals:
        table = self.live.state.nodes
        pods = np.array([node.pods for node in table.nodes], np.int64)
        held = (table.device_milli - table.gpus[:, MILLI])[table.gpu_model >= 0]
        _, cpu_milli, memory_mib = table.totals().tolist()
        return ClusterTotals(
            nodes=len(table.names),
            nodes_used=int(np.count_nonzero(table.free[:, PODS] < pods)),
            nodes_out=int(np.count_nonzero(~table.schedulable)),
            gpus=len(held),
            gpus_used=int(np.count_nonzero(held)),
            gpu_milli=int(table.device_milli.sum()),
            gpu_used_milli=int(held.sum()),
            cpu_milli=cpu_milli,
            cpu_used_milli=cpu_milli - int(table.free[:, NODE_CPU].sum()),
            memory_mib=memory_mib,
            memory_used_mib=memory_mib - int(table.free[:, NODE_MEMORY].sum()),
        )

    def sum_queues(self) -> list[QueueTotals]:
        """Every queue, parents before children, siblings in the order of names; read after `fresh_queues`."""
        table = self.queue_shares.table
        running, waiting = self.rows.counts.by_queue(HOLDS), self.rows.counts.by_queue(WAITS)
        all_running, all_waiting = [0] * len(table.names), [0] * len(table.names)
        for code, name in enumerate(self.rows.queues.names):
            at = table.row.get(name)
            for above in table.path[at] if at is not None else ():
                all_running[above] += running.get(code, 0)
                all_waiting[above] += waiting.get(code, 0)
        queues = self.queue_shares.queues
        return [QueueTotals(each, all_running[each.row], all_waiting[each.row]) for each in queues]

    def queues_below(self, name: str) -> set[str]:
        below = {name}
        queues = self.live.state.queue_objects.values()
        while more := {queue.name for queue in queues if queue.parent in below} - below:
            below |= more
        return below

    def find_gpus(self, node: str = "", model: str = "", free: bool | None = None) -> Rows:
        """Devices as row times width plus column, ascending. `free`: only idle and usable ones, or only the rest."""
        table = self.live.state.nodes
        mask: BoolArray = table.gpu_model >= 0
        if node:
            chosen = np.zeros(len(table.names), np.bool_)
            if node in table.row:
                chosen[table.row[node]] = True
            mask &= chosen[:, None]
        if model:
            mask &= table.gpu_model == (table.models.index(model) if model in table.models else -2)
        if free is not None:
            idle = (table.gpus[:, MILLI] == table.device_milli) & (table.gpus[:, USABLE] > 0)
            idle &= table.schedulable[:, None]
            mask &= idle if free else ~idle
        return np.flatnonzero(mask)


def _timed(
    update: Callable[[WorkloadRows, RecordChanges], WorkloadRows], rows: WorkloadRows, changes: RecordChanges
) -> tuple[WorkloadRows, float]:
    """The updated rows and the processor time that they took: on a busy machine a small update may wait for long."""
    began = time.thread_time()
    return update(rows, changes), time.thread_time() - began


def _updated(rows: WorkloadRows, changes: RecordChanges) -> WorkloadRows:
    """The updated rows. Runs in a thread, on a copy: a start with 100,000 workloads takes most of a second."""
    fresh = WorkloadRows() if changes.is_all else rows.copy()
    fresh.apply(changes.records, changes.gone)
    return fresh
