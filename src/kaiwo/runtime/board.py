"""What there is to see, kept ready: the workloads as rows, the sums of the nodes, the devices with their tenants.

In:    the live picture and the cluster's records.   Out: rows, sums and positions; `api` makes the JSON.
Never: changes the picture, or keeps the event loop for more than milliseconds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np

from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.runtime.rows import CPU, GPU, HOLDS, MEMORY, STATE, STATES, WAITS, WorkloadRows
from kaiwo.snapshot.arrays import BoolArray, Rows
from kaiwo.snapshot.nodes import CPU as NODE_CPU
from kaiwo.snapshot.nodes import MEMORY as NODE_MEMORY
from kaiwo.snapshot.nodes import MILLI, PODS, USABLE
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import Charge, QueueTable

T = TypeVar("T")
STILL_FRESH_S = 0.1


class Live(Protocol):
    """What the board and the API use of the loop."""

    picture: Picture
    cluster: Any  # Cluster and Work
    policy: Policy
    journal: Any
    last_cycle: Any
    ready: bool
    revision: int

    def changed(self, after: int) -> Awaitable[int]:
        """Wait until the revision is above this."""

    def ask(self, question: Callable[[Picture], T]) -> Awaitable[T]:
        """Run this in a worker thread while the picture stands still."""


class Sums(msgspec.Struct, frozen=True):
    """The cluster in sums: all there is, and what is held of it."""

    nodes: int
    nodes_used: int
    nodes_out: int
    gpus: int
    gpus_used: int
    gpu_used_milli: int
    cpu_milli: int
    cpu_used_milli: int
    memory_mib: int
    memory_used_mib: int


class QueueSums(msgspec.Struct, frozen=True):
    """What one queue and those below it use and wait for."""

    queue: Queue
    depth: int
    is_leaf: bool
    used: Charge
    wanted: Charge
    running: int
    waiting: int


class Board:
    """One for the process; `fresh` before the rows are read, and read them before the next await."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.rows = WorkloadRows()
        self._lock = asyncio.Lock()
        self._revision = -1
        self._checked_at = 0.0

    def touch(self) -> None:
        """Somebody just changed something: the next look must see it."""
        self._revision = -1

    async def fresh(self) -> WorkloadRows:
        """The rows as the cluster has them now."""
        picture = self.live.picture
        if len(picture.node_objects) != len(picture.nodes.names):  # nodes came or went, and no cycle looked yet
            await self.live.ask(Picture.tidy)
        async with self._lock:
            if self._revision == self.live.revision and time.monotonic() - self._checked_at < STILL_FRESH_S:
                return self.rows
            revision, records = self.live.revision, self.live.cluster.records()
            moved = self.rows.moved(records)
            if self.rows.is_far(records, moved):
                self.rows = await asyncio.to_thread(_updated, self.rows, records)
            else:
                self.rows.apply(records, self.rows.compare(records, moved))
            self._weigh_memory_requests()
            self._revision, self._checked_at = revision, time.monotonic()
        return self.rows

    def _weigh_memory_requests(self) -> None:
        """A memory request counts by the share that its memory is of the device it was given."""
        rows, pods = self.rows, self.live.picture.pods
        for name in rows.by_memory.intersection(pods) if rows.by_memory else ():
            at = rows.find(name)
            given = sum(share.milli for pod in pods[name].values() for share in pod.devices)
            if at is not None and given > rows.table[GPU, at]:
                rows.table[GPU, at] = given

    def count_states(self) -> dict[str, int]:
        """How many workloads are in each state; read after `fresh`."""
        counts = np.bincount(self.rows.table[STATE], minlength=len(STATES)).tolist()
        return {state.value: count for state, count in zip(STATES, counts, strict=True)}

    def sum_nodes(self) -> Sums:
        """All nodes together."""
        table = self.live.picture.nodes
        pods = np.array([node.pods for node in table.nodes], np.int64)
        held = (WHOLE_MILLI - table.gpus[:, MILLI])[table.gpu_model >= 0]
        _, cpu_milli, memory_mib = table.totals().tolist()
        return Sums(
            nodes=len(table.names),
            nodes_used=int(np.count_nonzero(table.free[:, PODS] < pods)),
            nodes_out=int(np.count_nonzero(~table.open)),
            gpus=len(held),
            gpus_used=int(np.count_nonzero(held)),
            gpu_used_milli=int(held.sum()),
            cpu_milli=cpu_milli,
            cpu_used_milli=cpu_milli - int(table.free[:, NODE_CPU].sum()),
            memory_mib=memory_mib,
            memory_used_mib=memory_mib - int(table.free[:, NODE_MEMORY].sum()),
        )

    def sum_queues(self) -> list[QueueSums]:
        """Every queue, parents before children, siblings in the order of names; read after `fresh`."""
        picture, rows = self.live.picture, self.rows
        table = QueueTable(picture.queue_objects, picture.used)
        size = len(table.names)
        wanted = np.zeros((size, 3), np.int64)
        counts = np.zeros((size, 2), np.int64)
        (running,) = rows.sum_by_queue(HOLDS)
        waiting, *amounts = rows.sum_by_queue(WAITS, (GPU, CPU, MEMORY))
        for code, name in enumerate(rows.queues.names):
            at = table.row.get(name)
            for above in table.path[at] if at is not None else ():
                wanted[above] += [amount[code] for amount in amounts]
                counts[above] += (running[code], waiting[code])
        return [
            QueueSums(
                table.queues[at],
                len(table.path[at]) - 1,
                table.is_leaf[at],
                _charge(table.used[at].tolist()),
                _charge(wanted[at].tolist()),
                int(counts[at, 0]),
                int(counts[at, 1]),
            )
            for at in _tree_order(table)
        ]

    def find_gpus(self, node: str = "", model: str = "", free: bool | None = None) -> Rows:
        """Devices as row times width plus column, ascending; `free`: nothing on it and open for work, or the rest."""
        table = self.live.picture.nodes
        mask: BoolArray = table.gpu_model >= 0
        if node:
            chosen = np.zeros(len(table.names), np.bool_)
            if node in table.row:
                chosen[table.row[node]] = True
            mask &= chosen[:, None]
        if model:
            mask &= table.gpu_model == (table.models.index(model) if model in table.models else -2)
        if free is not None:
            idle = (table.gpus[:, MILLI] == WHOLE_MILLI) & (table.gpus[:, USABLE] > 0) & table.open[:, None]
            mask &= idle if free else ~idle
        return np.flatnonzero(mask)


def _updated(rows: WorkloadRows, records: Any) -> WorkloadRows:
    """In a thread, on a copy: a start with 100,000 workloads takes most of a second."""
    fresh = rows.copy()
    fresh.apply(records, fresh.compare(records))
    return fresh


def _charge(amounts: list[int]) -> Charge:
    return (amounts[0], amounts[1], amounts[2])


def _tree_order(table: QueueTable) -> list[int]:
    """A queue's place in the tree is the names from its root down to it."""
    return sorted(range(len(table.names)), key=lambda at: [table.names[above] for above in reversed(table.path[at])])
