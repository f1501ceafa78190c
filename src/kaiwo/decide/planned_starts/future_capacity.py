"""Future capacity: what is free on each node now and when running work ends, less planned starts and reservations.

Amounts lie side by side in one row: the columns of `free`, then the milli and the MiB of each device.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.placement.queue_limits import QueueCharge
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.model.reservation import NEVER_S
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Workload
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.capacity_timeline import CapacityTimeline, ReservedSpan, add_allocation
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import FREE_GPU, MIB, USABLE, NodeTable
from kaiwo.snapshot.working_copy import WorkingCopy

GPUS = slice(FREE_GPU, FREE_GPU + 1)


class PlannedUsage(NamedTuple):
    """Space that a planned start or a reservation will use, and when."""

    start_s: int
    end_s: int
    rows: Rows  # of nodes, each once
    amounts: IntArray  # by row


class Moments(NamedTuple):
    """Per node: the times at which something changes, and what a start at each would have for its whole run."""

    times: IntArray  # node, moment: in order
    amounts: IntArray  # node, moment, column


class FutureCapacity:
    """The capacity to come, without planned starts."""

    def __init__(self, working: WorkingCopy, timeline: CapacityTimeline) -> None:
        self.now_s, self.nodes = working.now_s, working.nodes
        rows = len(self.nodes.names)
        self.columns = working.free.shape[1]
        devices = 2 * working.gpus.shape[2]  # milli and MiB of each; there may be no node
        self.base: IntArray = np.concatenate([working.free, working.gpus[:, : MIB + 1].reshape(rows, devices)], axis=1)
        self.ends = timeline.expected(self.now_s)
        # Releases of one node lie in its first slots: those that no node uses are left out.
        used = max(1, int((self.ends < NEVER_S).sum(axis=1).max(initial=0)))
        self.ends = self.ends[:, :used]
        slots = self.ends.shape[1]
        self._is_leaving = timeline.ends[:, :slots] == 0
        gpus = timeline.gpus[:, :slots].reshape(rows, slots, devices)
        self.released: IntArray = np.concatenate([timeline.free[:, :slots], gpus], axis=2)

    def released_by(self, rows: Rows, at_s: int) -> IntArray:
        found: IntArray = (self.released[rows] * (self.ends[rows] <= at_s)[:, :, None]).sum(axis=1)
        return found

    def still_held(self, rows: Rows) -> IntArray:
        """What pods that are being stopped hold on these nodes."""
        found: IntArray = (self.released[rows] * self._is_leaving[rows][:, :, None]).sum(axis=1)
        return found

    def fits(self, usage: PlannedUsage, others: Sequence[PlannedUsage]) -> bool:
        """The space is free from start to end, alongside these others."""
        begins = {usage.start_s} | {each.start_s for each in others if usage.start_s < each.start_s < usage.end_s}
        return all(self._fits_at(usage, at_s, others) for at_s in sorted(begins))

    def _fits_at(self, usage: PlannedUsage, at_s: int, others: Sequence[PlannedUsage]) -> bool:
        left = self.base[usage.rows] + self.released_by(usage.rows, at_s) - usage.amounts
        for each in others:
            if each.start_s <= at_s < each.end_s:
                left -= on_rows(each, usage.rows)
        return not (left[usage.amounts > 0] < 0).any()

    def moments(self, usages: Sequence[PlannedUsage], run_s: int, columns: slice = slice(None)) -> Moments:
        """Every time at which a run this long could become possible, or impossible."""
        rows, run_s = len(self.base), run_s or NEVER_S
        starts, ends, taken = self._by_row(usages, columns)
        released = self.released[:, :, columns]
        too_late = starts - run_s + 1  # from here on a run reaches into the planned usage
        too_late[(too_late <= self.now_s) | (starts >= NEVER_S)] = NEVER_S
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
            reaches = (times < begin) & (times + run_s > begin) & (begin < NEVER_S)
            least = np.where(reaches[:, :, None], np.minimum(least, then), least)
        return Moments(times, least)

    def _by_row(self, usages: Sequence[PlannedUsage], columns: slice) -> tuple[IntArray, IntArray, IntArray]:
        """Start, end and amounts of planned usages, by node and position on that node."""
        count = np.zeros(len(self.base), np.int64)
        for usage in usages:
            count[usage.rows] += 1
        most = int(count.max(initial=0))
        starts = np.full((len(count), most), NEVER_S, np.int64)
        ends, amounts = starts.copy(), np.zeros((len(count), most, self.base[:, columns].shape[1]), np.int64)
        count[:] = 0
        for usage in usages:
            slot = count[usage.rows]
            starts[usage.rows, slot], ends[usage.rows, slot] = max(usage.start_s, self.now_s), usage.end_s
            amounts[usage.rows, slot] = usage.amounts[:, columns]
            count[usage.rows] += 1
        return starts, ends, amounts

    def amounts_at(self, moments: Moments, at_s: int) -> tuple[IntArray, IntArray, IntArray]:
        """`free`, and milli and MiB by device, for a start at that time; and since when they have been so."""
        last = (moments.times <= at_s).sum(axis=1) - 1
        every = np.arange(len(last))
        return *self.split(moments.amounts[every, last]), moments.times[every, last]

    def split(self, amounts: IntArray) -> tuple[IntArray, IntArray]:
        return amounts[:, : self.columns], amounts[:, self.columns :].reshape(len(amounts), 2, -1)


class _KnownAmounts(NamedTuple):
    places: tuple[PlannedPod, ...]
    redefined: int  # the version at which a node itself last changed
    by_row: tuple[Rows, IntArray] | None  # the rows of its nodes, and the amounts on each


def usage_of(planned: PlannedStart, state: ClusterState, at_s: int) -> PlannedUsage | None:
    """The space of a planned start that begins then; None when a node or device of it is gone or broken."""
    kept: dict[str, _KnownAmounts] = state.caches.setdefault("planned-usage", {})
    redefined = int(state.nodes.node_changed.max(initial=-1))
    known = kept.get(planned.workload)
    if known is None or known.places is not planned.places or known.redefined != redefined:
        known = _KnownAmounts(planned.places, redefined, _amounts_by_row(planned, state.nodes))
        kept[planned.workload] = known
    if known.by_row is None:
        return None
    rows, amounts = known.by_row
    return PlannedUsage(at_s, at_s + planned.run_s if planned.run_s else NEVER_S, rows, amounts)


def _amounts_by_row(planned: PlannedStart, nodes: NodeTable) -> tuple[Rows, IntArray] | None:
    by_row: dict[int, IntArray] = {}
    width = nodes.free.shape[1]
    for place in planned.places:
        row = nodes.row.get(place.node)
        if row is None or not all(_works(nodes, row, share.gpu) for share in place.devices):
            return None
        if row not in by_row:
            by_row[row] = np.zeros(width + 2 * nodes.width, np.int64)
        amounts = by_row[row]
        add_allocation(nodes, row, place, amounts[:width], amounts[width:].reshape(2, -1))
    rows = sorted(by_row)
    return np.array(rows, np.intp), np.array([by_row[row] for row in rows], np.int64)


def amounts_to_drain(planned: PlannedStart, state: ClusterState, usage: PlannedUsage) -> IntArray:
    """What the pods on its devices hold on its nodes, which comes free before it starts there.

    The devices themselves count as taken, whoever holds them: nobody else may have them when their pods are stopped.
    """
    nodes, found = state.nodes, np.zeros_like(usage.amounts)
    width, gpus = nodes.free.shape[1], dict[str, set[str]]()
    for place in planned.places:
        gpus.setdefault(place.node, set()).update(share.gpu for share in place.devices)
    for amounts, row in zip(found, usage.rows.tolist(), strict=True):
        wanted = gpus[nodes.names[row]]
        for held in state.allocations_on.get(nodes.names[row], {}).values():
            is_ours = isinstance(held, Pod) and held.phase in ACTIVE_PHASES and held.workload in state.workloads
            if is_ours and not wanted.isdisjoint(share.gpu for share in held.devices):
                add_allocation(nodes, row, held, amounts[:width], np.zeros((2, nodes.width), np.int64))
    return found


def reserved_for_others(cycle: CycleInput, spans: Sequence[ReservedSpan], workload: Workload) -> list[PlannedUsage]:
    """The devices of reservations that a workload may not use."""
    if not spans:
        return []
    state, nodes = cycle.state, cycle.state.nodes
    passes = state.reservations.access_of(workload, state.queue_objects).passes
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
        found.append(PlannedUsage(span.from_s, min(span.until_s, NEVER_S), rows, amounts))
    return found


def usages_of(cycle: CycleInput, planned: Iterable[PlannedStart]) -> list[PlannedUsage]:
    """Their space, from their start or from now; a planned start whose place is gone uses nothing."""
    found = [usage_of(each, cycle.state, max(each.start_s, cycle.now_s)) for each in planned]
    return [usage for usage in found if usage is not None]


def charge_of_start(cycle: CycleInput, cycle_state: CycleState, planned: PlannedStart) -> QueueCharge:
    """What its queue pays, from start to end."""
    found = cycle.state.backlog.class_of(planned.workload)
    end_s = planned.start_s + planned.run_s if planned.run_s else NEVER_S
    return cycle_state.charges.queue_charge(found)._replace(start_s=planned.start_s, end_s=end_s)


def _works(nodes: NodeTable, row: int, gpu: str) -> bool:
    column = nodes.column[row].get(gpu)
    return column is not None and bool(nodes.gpus[row, USABLE, column])


def on_rows(usage: PlannedUsage, rows: Rows) -> IntArray:
    """What a planned usage has on these nodes; both are sorted."""
    found = np.zeros((len(rows), usage.amounts.shape[1]), np.int64)
    at = np.minimum(np.searchsorted(usage.rows, rows), len(usage.rows) - 1)
    is_same = usage.rows[at] == rows
    found[is_same] = usage.amounts[at[is_same]]
    return found
