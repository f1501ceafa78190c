"""What will be free on each node: now, when running work ends, and beside what is promised.

In:    the working copy, the timeline of planned ends.   Out: amounts by node at one moment, or at all of them.
Amounts lie side by side in one row: the columns of `free`, then the milli and the MiB of each device.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.model.planned_start import PlannedStart
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.capacity_timeline import NEVER, CapacityTimeline, ReservedSpan, add_allocation
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import FREE_GPU, MIB, USABLE, NodeTable
from kaiwo.snapshot.working_copy import WorkingCopy


class PlannedUsage(NamedTuple):
    """Space that somebody will have, from when to when."""

    start_s: int
    end_s: int
    rows: Rows  # of nodes, each once
    amounts: IntArray  # by row


class Moments(NamedTuple):
    """Per node the times at which something changes, and what whoever starts then has for the whole of its run."""

    times: IntArray  # node, moment: in order
    amounts: IntArray  # node, moment, column


class Space:
    """One cycle's view of the future, without what is promised."""

    def __init__(self, working: WorkingCopy, timeline: CapacityTimeline) -> None:
        self.now_s, self.nodes = working.now_s, working.nodes
        rows = len(self.nodes.names)
        self.columns = working.free.shape[1]
        self.base: IntArray = np.concatenate([working.free, working.gpus[:, : MIB + 1].reshape(rows, -1)], axis=1)
        self.ends = timeline.expected(self.now_s)
        # Releases of one node lie in its first slots: those that no node uses are left out.
        used = max(1, int((self.ends < NEVER).sum(axis=1).max(initial=0)))
        self.ends = self.ends[:, :used]
        slots = self.ends.shape[1]
        self._is_leaving = timeline.ends[:, :slots] == 0
        gpus = timeline.gpus[:, :slots].reshape(rows, slots, -1)
        self.released: IntArray = np.concatenate([timeline.free[:, :slots], gpus], axis=2)

    def released_by(self, rows: Rows, at_s: int) -> IntArray:
        """What comes free on these nodes until a moment."""
        found: IntArray = (self.released[rows] * (self.ends[rows] <= at_s)[:, :, None]).sum(axis=1)
        return found

    def still_held(self, rows: Rows) -> IntArray:
        """What those who are leaving already hold on these nodes."""
        found: IntArray = (self.released[rows] * self._is_leaving[rows][:, :, None]).sum(axis=1)
        return found

    def fits(self, take: PlannedUsage, others: Sequence[PlannedUsage]) -> bool:
        """The space of a take is there from its start to its end, beside these others."""
        begins = {take.start_s} | {each.start_s for each in others if take.start_s < each.start_s < take.end_s}
        return all(self._is_there(take, at_s, others) for at_s in sorted(begins))

    def _is_there(self, take: PlannedUsage, at_s: int, others: Sequence[PlannedUsage]) -> bool:
        left = self.base[take.rows] + self.released_by(take.rows, at_s) - take.amounts
        for each in others:
            if each.start_s <= at_s < each.end_s:
                left -= on_rows(each, take.rows)
        return not (left[take.amounts > 0] < 0).any()

    def moments(self, takes: Sequence[PlannedUsage], run_s: int, columns: slice = slice(None)) -> Moments:
        """Every time at which a start of so long a run could become possible, or impossible."""
        rows, run_s = len(self.base), run_s or NEVER
        starts, ends, taken = self._by_row(takes, columns)
        released = self.released[:, :, columns]
        too_late = starts - run_s + 1  # from here on a run reaches into the take
        too_late[(too_late <= self.now_s) | (starts >= NEVER)] = NEVER
        times = np.concatenate([np.full((rows, 1), self.now_s), self.ends, starts, ends, too_late], axis=1)
        nothing = np.zeros((rows, 1, released.shape[2]), np.int64)
        changes = np.concatenate([nothing, released, -taken, taken, np.zeros_like(taken)], axis=1)
        every, order = np.arange(rows)[:, None], np.argsort(times, axis=1, kind="stable")
        times = times[every, order]
        amounts = self.base[:, None, columns] + changes[every, order].cumsum(axis=1)
        least = amounts
        for slot in range(starts.shape[1]):
            begin = starts[:, slot : slot + 1]
            there = (times <= begin).sum(axis=1) - 1
            then = amounts[every, there[:, None]]
            reaches = (times < begin) & (times + run_s > begin) & (begin < NEVER)
            least = np.where(reaches[:, :, None], np.minimum(least, then), least)
        return Moments(times, least)

    def _by_row(self, takes: Sequence[PlannedUsage], columns: slice) -> tuple[IntArray, IntArray, IntArray]:
        """Start, end and amounts of the takes, by node and by number on that node."""
        count = np.zeros(len(self.base), np.int64)
        for take in takes:
            count[take.rows] += 1
        most = int(count.max(initial=0))
        starts = np.full((len(count), most), NEVER, np.int64)
        ends, amounts = starts.copy(), np.zeros((len(count), most, self.base[:, columns].shape[1]), np.int64)
        count[:] = 0
        for take in takes:
            slot = count[take.rows]
            starts[take.rows, slot], ends[take.rows, slot] = max(take.start_s, self.now_s), take.end_s
            amounts[take.rows, slot] = take.amounts[:, columns]
            count[take.rows] += 1
        return starts, ends, amounts

    def at(self, moments: Moments, at_s: int) -> tuple[IntArray, IntArray, IntArray]:
        """`free`, and milli and MiB by device, for a start at that time; and since when it has been so."""
        last = (moments.times <= at_s).sum(axis=1) - 1
        every = np.arange(len(last))
        amounts, since_s = moments.amounts[every, last], moments.times[every, last]
        free, gpus = self.split(amounts)
        return free, gpus, since_s

    def split(self, amounts: IntArray) -> tuple[IntArray, IntArray]:
        """Amounts as `free`, and as milli and MiB by device."""
        rows = len(amounts)
        return amounts[:, : self.columns], amounts[:, self.columns :].reshape(rows, 2, -1)


GPUS = slice(FREE_GPU, FREE_GPU + 1)


def take_of(promise: PlannedStart, state: ClusterState, at_s: int) -> PlannedUsage | None:
    """The space of a promise if it starts then; None when a node or a device of it is gone or broken."""
    kept = state.caches.setdefault("takes", {})
    redefined = int(state.nodes.node_changed.max(initial=-1))
    known = kept.get(promise.workload)
    if known is None or known[0] is not promise.places or known[1] != redefined:
        known = kept[promise.workload] = (promise.places, redefined, _amounts_by_row(promise, state.nodes))
    if known[2] is None:
        return None
    return PlannedUsage(at_s, at_s + promise.run_s if promise.run_s else NEVER, *known[2])


def _amounts_by_row(promise: PlannedStart, nodes: NodeTable) -> tuple[Rows, IntArray] | None:
    by_row: dict[int, IntArray] = {}
    width = nodes.free.shape[1]
    for place in promise.places:
        row = nodes.row.get(place.node)
        if row is None or not all(_works(nodes, row, share.gpu) for share in place.devices):
            return None
        if row not in by_row:
            by_row[row] = np.zeros(width + 2 * nodes.width, np.int64)
        amounts = by_row[row]
        add_allocation(nodes, row, place, amounts[:width], amounts[width:].reshape(2, -1))
    rows = sorted(by_row)
    return np.array(rows, np.intp), np.array([by_row[row] for row in rows], np.int64)


def takes_of_spans(spans: Sequence[ReservedSpan], passes: tuple[str, ...], nodes: NodeTable) -> list[PlannedUsage]:
    """The devices of reservations that such work may not use, as space that somebody else will have."""
    found = []
    width = nodes.free.shape[1]
    for span in spans:
        if span.reservation in passes or not len(span.rows):
            continue
        rows, at = np.unique(span.rows, return_inverse=True)
        amounts = np.zeros((len(rows), width + 2 * nodes.width), np.int64)
        parts = nodes.device_milli[span.rows, span.columns]
        amounts[at, width + span.columns] = parts
        np.add.at(amounts[:, FREE_GPU], at, parts)
        found.append(PlannedUsage(span.from_s, min(span.until_s, NEVER), rows, amounts))
    return found


def _works(nodes: NodeTable, row: int, gpu: str) -> bool:
    column = nodes.column[row].get(gpu)
    return column is not None and bool(nodes.gpus[row, USABLE, column])


def on_rows(take: PlannedUsage, rows: Rows) -> IntArray:
    """What a take has on these nodes; both are in order."""
    found = np.zeros((len(rows), take.amounts.shape[1]), np.int64)
    at = np.searchsorted(take.rows, rows)
    at = np.minimum(at, len(take.rows) - 1)
    is_same = take.rows[at] == rows
    found[is_same] = take.amounts[at[is_same]]
    return found
