"""The fair share of each queue with its terms, and which queue is next, for the API and status reports.

Recomputed once a revision, in a thread: the event loop only copies what changes (1.6 ms with 1,000 queues and nodes).
"""

import asyncio
from typing import NamedTuple

import msgspec
import numpy as np

from kaiwo.decide.placement.queue_limits import least_charge
from kaiwo.decide.turn_order import is_planned
from kaiwo.model.queue import Queue, ReclaimStrategy, SharePolicy
from kaiwo.queues.current_shares import current_shares, fair_shares_of, queue_demand_of
from kaiwo.queues.fair_share import ShareBreakdown, share_breakdown
from kaiwo.queues.queue_order import queue_keys
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.gpu_model_usage import usage_by_model
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.queue_table import NO_PARENT, EditableQueueTable, QueueTable, ResourceVector
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy


class FirstWorkload(NamedTuple):
    workload: str
    need: ResourceVector
    since_s: int


class QueuePosition(msgspec.Struct, frozen=True):
    """A queue's position among the siblings that have waiting work; the least keys go first."""

    place: int  # 1: it is next
    of: int
    first: FirstWorkload
    keys: tuple[int, ...]  # see queues.queue_order.queue_keys


class QueueShareRow(msgspec.Struct, frozen=True):
    queue: Queue
    row: int
    depth: int
    is_leaf: bool
    policy: SharePolicy  # among the queues right below it; its own or that of a queue above
    reclaim_strategy: ReclaimStrategy
    min_runtime_s: int
    used: ResourceVector
    fixed: ResourceVector  # the part of it that may not be preempted
    terms: tuple[ShareBreakdown, ...]  # GPU, CPU, memory
    position: QueuePosition | None  # None: no workload in it could start now


class QueueShareTable:
    """Read `queues` and `table` after `fresh`."""

    def __init__(self, live: LiveLoop) -> None:
        self.queues: list[QueueShareRow] = []
        self.table: QueueTable = EditableQueueTable()
        self._live = live
        self._revision = -1
        self._objects: list[Queue] = []
        self._empty = EditableQueueTable()
        self._lock = asyncio.Lock()

    async def fresh(self) -> None:
        async with self._lock:
            revision = self._live.revision
            if revision != self._revision:
                state = self._live.state
                view = WorkingCopy(Snapshot(state, 0)).view.with_queues(self._table(state))
                queue_demand_of(view)  # computed here, since it reads the live nodes and backlog
                first = _first_workloads(state, view)
                self.queues = await asyncio.to_thread(_share_rows, view, first)
                self.table, self._revision = view.queues, revision

    def _table(self, state: ClusterState) -> EditableQueueTable:
        """The state's own table may be older than its queues until the next cycle."""
        objects = list(state.queue_objects.values())
        if objects != self._objects:
            self._objects, self._empty = objects, EditableQueueTable(state.queue_objects)
            _ = self._empty.tree  # computed once for all copies
        table = self._empty.copy()
        table.set_used(table.sum_up_tree(state.used), table.sum_up_tree(state.non_preemptible))
        table.count_models(usage_by_model(state))
        return table


def _first_workloads(state: ClusterState, view: View) -> dict[int, FirstWorkload]:
    """The workload tried first in each leaf, by row. Impossible ones and those with a planned start do not count."""
    largest_mib = int(view.gpus[:, SIZE][view.gpus[:, USABLE] > 0].max(initial=0))
    heads: dict[int, FirstWorkload] = {}
    for queue, classes in state.backlog.by_queue.items():
        row = view.queues.row.get(queue)
        able = [
            found
            for found in classes.values()
            if found.key not in state.backlog.impossible and not is_planned(state.planned_starts, found)
        ]
        if row is None or not able or not view.queues.is_leaf[row]:
            continue
        first = min(able, key=lambda each: each.waiters.at(0))
        name = first.waiters.name_at(0)
        need = least_charge(state, first.needs, lambda _: largest_mib)
        heads[row] = FirstWorkload(name, need, state.workloads[name].submitted_s)
    return heads


def _share_rows(view: View, first: dict[int, FirstWorkload]) -> list[QueueShareRow]:
    table, tree = view.queues, view.queues.tree
    shares, demand, positions = fair_shares_of(view), queue_demand_of(view), _positions(view, first)
    used, fixed = table.all_used.tolist(), table.all_non_preemptible.tolist()
    min_runtime_s = tree.min_runtime_s.tolist()

    def path_of(row: int) -> list[str]:
        return [table.names[above] for above in reversed(table.path[row])]

    return [
        QueueShareRow(
            table.queues[row],
            row,
            len(table.path[row]) - 1,
            table.is_leaf[row],
            tree.policy[row],
            tree.reclaim_strategy[row],
            min_runtime_s[row],
            tuple(used[row]),
            tuple(fixed[row]),
            share_breakdown(table, demand, shares, row),
            positions.get(row),
        )
        for row in sorted(range(len(table.names)), key=path_of)
    ]


def _positions(view: View, heads: dict[int, FirstWorkload]) -> dict[int, QueuePosition]:
    """The positions by row, from the leaves up: a parent has the first workload of its first child."""
    now, totals, tree = current_shares(view), queue_demand_of(view).totals, view.queues.tree
    heads, positions = dict(heads), {}
    for level in reversed(tree.levels):
        rows = [row for row in level.tolist() if row in heads]
        need = np.array([heads[row].need for row in rows], np.int64).reshape(len(rows), 3)
        since_s = np.array([heads[row].since_s for row in rows], np.int64)
        siblings: dict[int, list[tuple[list[int], int]]] = {}
        keys = queue_keys(now, totals, np.array(rows, np.intp), need, since_s).tolist()
        for key, row in zip(keys, rows, strict=True):
            siblings.setdefault(int(tree.parent[row]), []).append((key, row))
        for parent, children in siblings.items():
            children.sort()
            if parent != NO_PARENT:
                heads[parent] = heads[children[0][1]]
            for place, (key, row) in enumerate(children, 1):
                positions[row] = QueuePosition(place, len(children), heads[row], tuple(key))
    return positions
