"""Find the nodes on which evictions could make room, before any victim is tried.

A node is a candidate when what is free there and all that may be stopped there is enough for a pod. If there are many,
the nodes with the first victims in victim order are chosen. If there are too few, room cannot be made.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.make_room.reclaimable import Reclaimable, UnitTable
from kaiwo.decide.make_room.victim_units import UnitLane, VictimUnit, VictimUnits
from kaiwo.model.obstacle import ProtectedByMinRunTime
from kaiwo.model.workload import Pod
from kaiwo.queues.current_shares import fair_shares_of
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.backlog import RoleNeeds
from kaiwo.snapshot.node_table import FREE_GPU
from kaiwo.snapshot.queue_table import GPU

FEWEST_NODES = 16  # or twice as many as there are pods, if that is more: enough for a choice, and few enough to try


class CandidateNodes:
    """All units of a cycle as arrays: one entry a unit, and one entry a pod."""

    def __init__(self, cycle: CycleInput, cycle_state: CycleState, victims: VictimUnits) -> None:
        self._cycle, self._cycle_state, self._working, self._victims = cycle, cycle_state, cycle_state.working, victims
        rows, queues = cycle_state.working.nodes.row, cycle_state.working.queues
        self._units: list[VictimUnit] = []
        queue_of: list[int] = []
        pods: list[tuple[int, int, int]] = []  # unit, node row, milli
        self._pod_list: list[Pod] = []
        self._unit_of_pod: dict[tuple[str, str], int] = {}
        for name in self._most_over_first():
            for unit in victims.units(name):
                number = len(self._units)
                self._units.append(unit)
                queue_of.append(queues.row[name])
                for pod in unit.pods:
                    self._unit_of_pod[pod.workload, pod.name] = number
                    if pod.node in rows:
                        pods.append((number, rows[pod.node], sum(share.milli for share in pod.devices)))
                        self._pod_list.append(pod)
        self._queue: IntArray = np.array(queue_of, np.int64)
        self._alive = np.ones(len(self._units), np.bool_)
        self._pods: IntArray = np.array(pods, np.int64).reshape(-1, 3)
        self._evicted_seen = 0

    def lanes(
        self,
        needs: RoleNeeds,
        queues: BoolArray,
        may_stop: BoolArray,
        is_wide: bool = True,
        nominated_for: str = "",
        area: BoolArray | None = None,
    ) -> dict[str, UnitLane]:
        """The units to try, by queue; empty when no set of them could make room. `area`: on these nodes only."""
        self._drop_evicted()
        chosen = self._alive & queues[self._queue] & may_stop if len(self._queue) else self._alive
        nodes = self._nodes(needs, chosen, is_wide, self._free_for(nominated_for), area)
        if nodes is None:
            return {}
        unit, row, _ = self._pods.T
        found: dict[str, list[VictimUnit]] = {}
        is_there = np.zeros(len(self._units), np.bool_)
        is_there[unit[chosen[unit] & nodes[row]]] = True
        for number in is_there.nonzero()[0].tolist():
            each = self._units[number]
            found.setdefault(each.workload.queue, []).append(each)
        return {name: UnitLane(units) for name, units in sorted(found.items())}

    def domains_with_room(
        self, needs: RoleNeeds, queues: BoolArray, may_stop: BoolArray, domains: IntArray, nominated_for: str = ""
    ) -> list[int]:
        """The domains that would have room if all units there stopped; those first in which the least must stop."""
        self._drop_evicted()
        chosen = self._alive & queues[self._queue] & may_stop if len(self._queue) else self._alive
        free, size = self._free_for(nominated_for), int(domains.max(initial=-1)) + 1
        unit, row, milli = self._pods.T
        total = free.copy()
        np.add.at(total, row[chosen[unit]], milli[chosen[unit]])
        fits, inside = np.ones(size, np.bool_), domains >= 0
        for shape, _, needed in needs:
            want = self._cycle.state.backlog.shapes[shape]
            if needed and want.least_milli:
                may = inside & self._cycle_state.scores.state(shape).allowed
                pods = np.bincount(domains[may], total[may] // want.least_milli, size)
                fits &= pods >= needed
        idle = np.bincount(domains[inside], free[inside], size)
        found = np.flatnonzero(fits)
        ordered: list[int] = found[np.lexsort((found, -idle[found]))].tolist()
        return ordered

    def reclaimable(self, queues: BoolArray, may_stop: BoolArray, nominated_for: str) -> Reclaimable:
        """All units that may stop, for a workload that may hold nominations (else `nominated_for` is empty)."""
        self._drop_evicted()
        stops = self._alive & queues[self._queue] & may_stop if len(self._queue) else self._alive
        own = list(self._cycle.state.nominations.get(nominated_for, {}).values())
        return Reclaimable(self._cycle.state, self._working, self._unit_table, stops, self._victims.evicted, own)

    @cached_property
    def _unit_table(self) -> UnitTable:
        columns = self._working.all_used.shape[1]
        charges = np.array([unit.charge for unit in self._units], np.int64).reshape(-1, columns)
        return UnitTable(self._working.nodes, self._units, self._queue, charges, self._pod_list, self._pods[:, 0])

    @cached_property
    def until_s(self) -> IntArray:
        """Per unit: until when its minimum run time protects it."""
        least_s = self._working.queues.tree.min_runtime_s
        rows = zip(self._units, self._queue.tolist(), strict=True)
        return np.array([0 if unit.is_surplus else unit.since_s + int(least_s[row]) for unit, row in rows], np.int64)

    def protected_by_run_time(self, queues: BoolArray) -> list[ProtectedByMinRunTime]:
        is_young = self.until_s > self._working.now_s
        if not is_young.any():
            return []
        is_young &= self._alive & queues[self._queue]
        milli, table = np.array([unit.charge[GPU] for unit in self._units], np.int64), self._working.queues
        found = []
        for row in np.unique(self._queue[is_young]).tolist():
            protected = int(milli[is_young & (self._queue == row)].sum())
            found.append(ProtectedByMinRunTime(table.names[row], protected, int(table.tree.min_runtime_s[row])))
        return found

    def _free_for(self, nominated_for: str) -> IntArray:
        """The milli-GPU that are free on each node, with what is nominated for this workload already."""
        free: IntArray = np.maximum(self._working.free[:, FREE_GPU], 0)
        for each in self._cycle.state.nominations.get(nominated_for, {}).values():
            if (row := self._working.nodes.row.get(each.node)) is not None:
                free[row] += sum(share.milli for share in each.devices)
        return free

    def _nodes(
        self, needs: RoleNeeds, chosen: BoolArray, is_wide: bool, free: IntArray, area: BoolArray | None
    ) -> BoolArray | None:
        """The candidate nodes of all shapes together; None when there are too few for one of them."""
        working = self._working
        found = np.zeros(len(working.nodes.names), np.bool_)
        for shape, _, needed in needs:
            if not needed:
                continue
            want = self._cycle.state.backlog.shapes[shape]
            largest_mib = self._cycle_state.charges.largest_mib
            milli = want.gpus * want.milli_on(largest_mib) if want.is_memory else want.least_milli
            most = max(FEWEST_NODES, 2 * needed if is_wide else needed + needed // 8)
            rows = self._nodes_for(_NodesWanted(shape, milli, needed, most), chosen, free, area)
            if rows is None:
                return None
            found[rows] = True
        return found

    def _nodes_for(
        self, wanted: "_NodesWanted", chosen: BoolArray, free: IntArray, area: BoolArray | None
    ) -> Rows | None:
        shape, need_milli, needed, most = wanted
        unit, row, milli = self._pods.T
        counts = chosen[unit]
        unit, row, milli = unit[counts], row[counts], milli[counts]
        if not need_milli:
            return np.arange(len(free)) if area is None else np.flatnonzero(area)
        total = free.copy()
        np.add.at(total, row, milli)
        serves = (total >= need_milli) & self._cycle_state.scores.state(shape).allowed
        if area is not None:
            serves &= area
        if int((total[serves] // need_milli).sum()) < needed:
            return None
        if int(serves.sum()) <= most:
            return np.flatnonzero(serves)
        cost = _last_victim(need_milli, free, unit, row, milli)
        return np.argsort(np.where(serves, cost, 1 << 60), kind="stable")[:most]

    def _most_over_first(self) -> list[str]:
        """Queues by how far they exceed their fair share: the first lose work first."""
        shares = fair_shares_of(self._working.view).share
        rows = self._working.queues.row
        names = [name for name in self._victims.queues() if name in rows]
        over = self._working.view.queue_used[:, GPU] - shares[:, GPU]
        return sorted(names, key=lambda name: (-int(over[rows[name]]), name))

    def _drop_evicted(self) -> None:
        evicted = self._victims.evicted
        if len(evicted) != self._evicted_seen:
            self._evicted_seen = len(evicted)
            self._alive[[self._unit_of_pod[key] for key in evicted if key in self._unit_of_pod]] = False


class _NodesWanted(NamedTuple):
    """Nodes for some pods of one shape."""

    shape: int
    need_milli: int
    needed: int  # pods
    most: int  # nodes


def _last_victim(need_milli: int, free: IntArray, unit: IntArray, row: IntArray, milli: IntArray) -> IntArray:
    """Per node: the number of the last unit that must stop, in their order, before a pod fits; -1: none."""
    cost = np.full(len(free), 1 << 60, np.int64)
    cost[free >= need_milli] = -1
    order = np.lexsort((unit, row))
    unit, row, milli = unit[order], row[order], milli[order]
    running = np.cumsum(milli)
    first = np.searchsorted(row, row)
    before = np.where(first > 0, running[first - 1], 0)
    reached = free[row] + running - before >= need_milli
    at = np.flatnonzero(reached)
    at = at[np.append(True, row[at][1:] != row[at][:-1])[: len(at)]]  # the first of each node
    at = at[cost[row[at]] != -1]
    cost[row[at]] = unit[at]
    return cost
