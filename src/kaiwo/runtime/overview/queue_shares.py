"""How the queues stand, for people: every term of every share, and which queue is next.

In:    the live picture.   Out: one standing a queue, parents before children.
Never: works anything out twice for one revision, or on the event loop what a thread can do: there only what moves is
copied, which takes 1.6 ms with 1,000 queues and 1,000 nodes.
"""

import asyncio
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from kaiwo.decide.placement.queue_limits import least_charge
from kaiwo.decide.turn_order import is_planned
from kaiwo.model.queue import Queue, ReclaimStrategy, SharePolicy
from kaiwo.queues.current_shares import current_shares, fair_shares_of, queue_demand_of
from kaiwo.queues.queue_order import queue_keys
from kaiwo.queues.share_breakdown import ShareBreakdown, share_breakdown
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.gpu_model_usage import usage_by_model
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.queue_table import NO_PARENT, QueueTable, ResourceVector
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy


class Source(Protocol):
    """What this uses of the loop."""

    state: ClusterState
    revision: int


class Head(NamedTuple):
    """The workload of a queue that is tried first."""

    workload: str
    need: ResourceVector
    since_s: int


class Turn(msgspec.Struct, frozen=True):
    """Where a queue stands among those siblings in which somebody waits; the least keys go first."""

    place: int  # 1: it is next
    of: int
    head: Head
    keys: tuple[int, ...]  # see queues.order.queue_keys


class QueueStanding(msgspec.Struct, frozen=True):
    """One queue with all below it."""

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
    turn: Turn | None  # None: nobody waits in it who could start now


class Standings:
    """Read `queues` and `table` after `fresh`."""

    def __init__(self, live: Source) -> None:
        self.queues: list[QueueStanding] = []
        self.table = QueueTable()
        self._live = live
        self._revision = -1
        self._objects: list[Queue] = []
        self._empty = QueueTable()
        self._lock = asyncio.Lock()

    async def fresh(self) -> None:
        """As the picture has them now."""
        async with self._lock:
            revision = self._live.revision
            if revision != self._revision:
                view, heads = self._look(self._live.state)
                self.queues = await asyncio.to_thread(_work_out, view, heads)
                self.table, self._revision = view.queues, revision

    def _look(self, state: ClusterState) -> tuple[View, dict[int, Head]]:
        """Copies of what moves, and what hangs on nodes and lines."""
        view = WorkingCopy(Snapshot(state, 0)).view.with_queues(self._table(state))
        queue_demand_of(view)
        return view, _heads(state, view)

    def _table(self, state: ClusterState) -> QueueTable:
        """The picture's own table may be older than its queues until the next cycle."""
        objects = list(state.queue_objects.values())
        if objects != self._objects:
            self._objects, self._empty = objects, QueueTable(state.queue_objects)
            _ = self._empty.tree  # worked out once for all copies
        table = self._empty.copy()
        table.set_used(table.sum_up_tree(state.used), table.sum_up_tree(state.non_preemptible))
        table.count_models(usage_by_model(state))
        return table


def _heads(state: ClusterState, view: View) -> dict[int, Head]:
    """By row of a leaf, who is tried first in it: nobody who could never start, or waits for a planned start."""
    largest_mib = int(view.gpus[:, SIZE][view.gpus[:, USABLE] > 0].max(initial=0))
    heads: dict[int, Head] = {}
    for queue, classes in state.backlog.by_queue.items():
        row = view.queues.row.get(queue)
        able = [found for found in classes.values() if _has_a_turn(state, found)]
        if row is None or not able or not view.queues.is_leaf[row]:
            continue
        first = min(able, key=lambda each: each.waiters.at(0))
        name = first.waiters.at(0)[1]
        need = least_charge(state, first.needs, lambda _: largest_mib)
        heads[row] = Head(name, need, state.workloads[name].submitted_s)
    return heads


def _has_a_turn(state: ClusterState, found: WaitingClass) -> bool:
    return found.key not in state.backlog.impossible and not is_planned(state.planned_starts, found)


def _work_out(view: View, heads: dict[int, Head]) -> list[QueueStanding]:
    table, tree = view.queues, view.queues.tree
    shares, wants, turns = fair_shares_of(view), queue_demand_of(view), _turns(view, heads)
    used, fixed = table.all_used.tolist(), table.all_non_preemptible.tolist()
    min_runtime_s = tree.min_runtime_s.tolist()
    return [
        QueueStanding(
            table.queues[row],
            row,
            len(table.path[row]) - 1,
            table.is_leaf[row],
            tree.policy[row],
            tree.reclaim_strategy[row],
            min_runtime_s[row],
            tuple(used[row]),
            tuple(fixed[row]),
            share_breakdown(table, wants, shares, row),
            turns.get(row),
        )
        for row in _tree_order(table)
    ]


def _turns(view: View, heads: dict[int, Head]) -> dict[int, Turn]:
    """By row. From the leaves up: the first child speaks for its parent."""
    now, totals, tree = current_shares(view), queue_demand_of(view).totals, view.queues.tree
    heads, turns = dict(heads), {}
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
                turns[row] = Turn(place, len(children), heads[row], tuple(key))
    return turns


def _tree_order(table: QueueTable) -> list[int]:
    """A queue's place in the tree is the names from its root down to it."""
    return sorted(range(len(table.names)), key=lambda at: [table.names[above] for above in reversed(table.path[at])])
