"""What is reclaimable for one preemptor: an upper bound on what any search could free.

Any pod of elastic work could be the surplus: the search offers the last ones of a role, but others would serve as well.
So where some of a workload's pods may stop, each of them counts on its node.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kaiwo.decide.make_room.victim_units import VictimUnit
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Workload, role_of
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU, EXTENDED, MEMORY, MIB, MILLI, PODS, SIZE, USABLE, Allocation, NodeTable
from kaiwo.snapshot.queue_table import GPU, INFINITE
from kaiwo.snapshot.working_copy import WorkingCopy


class Holdings:
    """What pods or nominations hold, as arrays: one row per pod, one per device of a pod. Lost nodes are left out."""

    def __init__(self, nodes: NodeTable, pods: Sequence[Allocation]) -> None:
        self._nodes = nodes
        there = [(number, nodes.row[pod.node], pod) for number, pod in enumerate(pods) if pod.node in nodes.row]
        self.number: Rows = np.array([number for number, _, _ in there], np.intp)  # its position among the pods
        self.row: Rows = np.array([row for _, row, _ in there], np.intp)
        self.amounts: IntArray = np.zeros((len(there), nodes.free.shape[1]), np.int64)  # columns as of `free`
        self.amounts[:, PODS] = 1
        self.amounts[:, CPU] = [pod.cpu_milli for _, _, pod in there]
        self.amounts[:, MEMORY] = [pod.memory_mib for _, _, pod in there]
        shares: list[tuple[int, int, int, int]] = []
        for at, (_, row, pod) in enumerate(there):
            for name, amount in pod.extended:
                if name in nodes.extended_names:
                    self.amounts[at, EXTENDED + nodes.extended_names.index(name)] += amount
            column = nodes.column[row]
            shares += [(at, column[each.gpu], each.milli, each.mib) for each in pod.devices if each.gpu in column]
        self.pod, self.column, self.milli, self.mib = np.array(shares, np.int64).reshape(-1, 4).T

    def give_back(self, stops: BoolArray, free: IntArray, gpus: IntArray) -> None:
        """Add what these pods hold to what is free on their nodes and devices."""
        np.add.at(free, self.row[stops], self.amounts[stops])
        here = stops[self.pod]
        at = (self.row[self.pod[here]], self.column[here])
        np.add.at(gpus[:, MILLI], at, self.milli[here])
        np.add.at(gpus[:, MIB], at, self.mib[here])

    def milli_on(self, devices: BoolArray) -> IntArray:
        """By pod: what it holds of these devices."""
        found = np.zeros(len(self.row), np.int64)
        np.add.at(found, self.pod, self.milli * devices[self.row[self.pod], self.column])
        return found


class Amounts(NamedTuple):
    total: int = 0
    smallest: int = 0  # of those that hold any
    largest: int = 0


@dataclass(frozen=True)
class UnitTable:
    nodes: NodeTable
    units: Sequence[VictimUnit]
    queue: IntArray  # of each unit
    charges: IntArray  # of each unit, by resource
    pods: Sequence[Pod]
    unit: IntArray  # of each pod

    @cached_property
    def holdings(self) -> Holdings:
        """Computed when first needed: it takes 15 ms for 8,000 pods, and most searches end without it."""
        return Holdings(self.nodes, self.pods)

    @cached_property
    def is_surplus(self) -> BoolArray:
        """By unit; computed once per cycle."""
        return np.array([unit.is_surplus for unit in self.units], np.bool_)


class _Part(NamedTuple):
    holdings: Holdings
    stops: BoolArray  # by row of the holdings
    queue: IntArray  # the same
    pods: Sequence[Pod]  # by number of the holdings


class Reclaimable:
    """The units that may stop (`stops`), with other pods instead of them where a workload is elastic."""

    def __init__(
        self,
        state: ClusterState,
        working: WorkingCopy,
        table: UnitTable,
        stops: BoolArray,
        evicted: Container[tuple[str, str]],
        own: Sequence[Nomination],
    ) -> None:
        self._state, self._working, self._table, self._stops, self._evicted = state, working, table, stops, evicted
        self.own = Holdings(working.nodes, own)  # what is nominated for the preemptor already

    def amounts(self, resource: int) -> dict[int, Amounts]:
        """By queue, what its units hold of a resource that queues pay for."""
        charge, queue = self._table.charges[self._stops, resource], self._table.queue[self._stops]
        charge, queue = charge[charge > 0], queue[charge > 0]
        rows, at = np.unique(queue, return_inverse=True)
        total, least, most = np.zeros(len(rows), np.int64), np.full(len(rows), INFINITE), np.zeros(len(rows), np.int64)
        np.add.at(total, at, charge)
        np.minimum.at(least, at, charge)
        np.maximum.at(most, at, charge)
        each = zip(rows.tolist(), total.tolist(), least.tolist(), most.tolist(), strict=True)
        found = {row: Amounts(*amounts) for row, *amounts in each}
        for row, more, largest in self._substitutes if resource == GPU else ():
            known = found.get(row, Amounts())
            found[row] = Amounts(known.total + more, 0, max(known.largest, largest))
        return found

    @cached_property
    def moves_milli(self) -> int:
        """The most that comes free when work moves to devices of which it is a smaller part."""
        nodes, gpus = self._working.nodes, self._working.gpus
        is_usable = gpus[:, USABLE] > 0
        sizes, parts = gpus[:, SIZE][is_usable], nodes.device_milli[is_usable & (nodes.gpu_profile > 0)]
        if not len(parts) and sizes.min(initial=1 << 60) >= sizes.max(initial=0):
            return 0
        largest_mib, least_part, gained = int(sizes.max(initial=1)), int(parts.min(initial=WHOLE_MILLI)), 0
        for pod, want, milli in self._stoppable_pods():
            if want.charge_depends_on_device:
                of_one = want.milli_on(largest_mib) if want.is_memory else least_part
                gained += max(0, milli - len(pod.devices) * of_one)
        return gained

    def on_devices(self, devices: BoolArray) -> dict[int, int]:
        """By queue: the milli of these devices that its work holds."""
        return self._by_queue([part.holdings.milli_on(devices) for part in self._parts])

    def on_nodes(self, nodes: BoolArray, column: int) -> dict[int, int]:
        """By queue: what its work holds of a node's resource on these nodes."""
        return self._by_queue([part.holdings.amounts[:, column] * nodes[part.holdings.row] for part in self._parts])

    def could_leave(self, devices: BoolArray) -> int:
        """The milli-GPU of these devices held by work that could use other devices, or that may shrink."""
        nodes, gpus = self._working.nodes, self._working.gpus
        models = {nodes.models[at] for at in np.unique(nodes.gpu_model[~devices & (gpus[:, USABLE] > 0)]).tolist()}
        found = 0
        for pod, want, _ in self._stoppable_pods():
            if want.charge_depends_on_device or (models.intersection(want.gpu_models) if want.gpu_models else models):
                row = nodes.row[pod.node]
                columns = [(nodes.column[row].get(share.gpu), share.milli) for share in pod.devices]
                found += sum(milli for column, milli in columns if column is not None and devices[row, column])
        return found

    @cached_property
    def amounts_if_all_stopped(self) -> tuple[IntArray, IntArray]:
        """`free` and `gpus` of all nodes as they would be if everything stopped."""
        free, gpus = self._working.free.copy(), self._working.gpus.copy()
        for part in self._parts:
            part.holdings.give_back(part.stops, free, gpus)
        self.own.give_back(np.ones(len(self.own.row), np.bool_), free, gpus)
        return free, gpus

    def _by_queue(self, amounts: list[IntArray]) -> dict[int, int]:
        found = np.zeros(len(self._working.queues.names), np.int64)
        for part, amount in zip(self._parts, amounts, strict=True):
            np.add.at(found, part.queue[part.stops], amount[part.stops])
        return {row: int(found[row]) for row in found.nonzero()[0].tolist()}

    def _stoppable_pods(self) -> Iterator[tuple[Pod, Request, int]]:
        """Every pod on a node that may stop, its request, and the milli that its queue pays for it."""
        workloads = self._state.workloads
        for part in self._parts:
            for number in part.holdings.number[part.stops].tolist():
                pod = part.pods[number]
                want = role_of(workloads[pod.workload], pod.name).request
                yield pod, want, _milli(pod)

    @cached_property
    def _parts(self) -> list[_Part]:
        """The pods of the units; all running pods of elastic work that stops in part."""
        table, stops = self._table, self._stops.copy()
        elastic = [each for each in self._elastic if len(self._stopping[each[0].name]) < len(each[1])]
        names = {workload.name for workload, _ in elastic}
        if names:
            stops &= np.array([unit.workload.name not in names for unit in table.units], np.bool_)
        unit = table.unit[table.holdings.number]
        found = [_Part(table.holdings, stops[unit], table.queue[unit], table.pods)]
        if names:
            pods = [pod for _, running in elastic for pod in running]
            holdings = Holdings(self._working.nodes, pods)
            rows = [self._row_of(workload) for workload, running in elastic for _ in running]
            queue = np.array(rows, np.int64)[holdings.number]
            found.append(_Part(holdings, np.ones(len(queue), np.bool_), queue, pods))
        return found

    @cached_property
    def _elastic(self) -> list[tuple[Workload, list[Pod]]]:
        numbers = (self._stops & self._table.is_surplus).nonzero()[0].tolist()
        units = [self._table.units[number] for number in numbers]
        workloads = {unit.workload.name: unit.workload for unit in units}
        return [(workload, self._running(name)) for name, workload in workloads.items()]

    def _running(self, name: str) -> list[Pod]:
        pods = self._state.pods[name].values()
        return [pod for pod in pods if pod.phase is Phase.RUNNING and (name, pod.name) not in self._evicted]

    @cached_property
    def _stopping(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {workload.name: [] for workload, _ in self._elastic}
        for number in self._stops.nonzero()[0].tolist() if found else ():
            unit = self._table.units[number]
            if unit.workload.name in found:
                found[unit.workload.name] += unit.pods
        return found

    @cached_property
    def _substitutes(self) -> list[tuple[int, int, int]]:
        """For elastic work whose pods hold unequal parts of GPUs: its queue, how much more its largest pods hold than
        those of the units, and the most that one unit could hold."""
        found = []
        for workload, running in self._elastic:
            milli = [_milli(pod) for pod in running]
            if len(set(milli)) > 1:
                stopping = self._stopping[workload.name]
                most = sum(sorted(milli)[-len(stopping) :])
                found.append((self._row_of(workload), most - sum(map(_milli, stopping)), sum(milli)))
        return found

    def _row_of(self, workload: Workload) -> int:
        return self._working.queues.row[workload.queue]


def _milli(pod: Pod) -> int:
    return sum(share.charge_milli for share in pod.devices)
