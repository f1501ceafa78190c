"""All that may be taken for one claim: more than any search could have.

In:    the units of running work that may go.   Out: sums by queue, and the nodes as they would be without all of it.
Of elastic work whichever pods are spared: the search offers the last ones of a role, and others would do as well. So
where some of a workload's pods may go, each of them counts on its node.

Also: What pods hold on their nodes, or what is kept for them, as arrays: how the nodes would look if some of them went.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.victim_units import VictimUnit
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Workload, role_of
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.node_table import CPU, EXTENDED, MEMORY, MIB, MILLI, PODS, SIZE, USABLE, Allocation, NodeTable
from kaiwo.snapshot.queue_table import ENDLESS, GPU


class Holdings:
    """One row a pod, and one row a device of a pod; pods on nodes that are not there hold nothing."""

    def __init__(self, nodes: NodeTable, pods: Sequence[Allocation]) -> None:
        self._nodes = nodes
        there = [(number, nodes.row[pod.node], pod) for number, pod in enumerate(pods) if pod.node in nodes.row]
        self.number: Rows = np.array([number for number, _, _ in there], np.intp)  # its place among the pods
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

    def give_back(self, goes: BoolArray, free: IntArray, gpus: IntArray) -> None:
        """Add what these pods hold to what is free on the nodes and on their devices."""
        np.add.at(free, self.row[goes], self.amounts[goes])
        here = goes[self.pod]
        at = (self.row[self.pod[here]], self.column[here])
        np.add.at(gpus[:, MILLI], at, self.milli[here])
        np.add.at(gpus[:, MIB], at, self.mib[here])

    def milli_on(self, devices: BoolArray) -> IntArray:
        """By pod: what it holds of these devices."""
        found = np.zeros(len(self.row), np.int64)
        np.add.at(found, self.pod, self.milli * devices[self.row[self.pod], self.column])
        return found


class Amounts(NamedTuple):
    """Of the units of one queue, in one resource."""

    total: int = 0
    smallest: int = 0  # of those that hold any
    largest: int = 0


@dataclass(frozen=True)
class Pieces:
    """All units of a cycle, whoever asks: see `sieve`."""

    nodes: NodeTable
    units: Sequence[VictimUnit]
    queue: IntArray  # of each unit
    charges: IntArray  # of each unit, by resource
    pods: Sequence[Pod]
    unit: IntArray  # of each pod

    @cached_property
    def holdings(self) -> Holdings:
        """Of these pods. Most claims are settled without it: it takes 15 ms for 8,000 pods."""
        return Holdings(self.nodes, self.pods)

    @cached_property
    def is_surplus(self) -> BoolArray:
        """By unit: looked at once a cycle and not once a claim, as most work is not elastic."""
        return np.array([unit.is_surplus for unit in self.units], np.bool_)


class _Part(NamedTuple):
    """Some of the pods, beside their holdings."""

    holdings: Holdings
    goes: BoolArray  # by row of the holdings
    queue: IntArray  # the same
    pods: Sequence[Pod]  # by number of the holdings


class Reclaimable:
    """The units that may go (`goes`), with other pods in their stead where a workload is elastic."""

    def __init__(self, desk: CycleState, pieces: Pieces, goes: BoolArray, claimant: str) -> None:
        self._desk, self._pieces, self._goes = desk, pieces, goes
        self.own = Holdings(desk.working.nodes, list(desk.state.nominations.get(claimant, {}).values()))

    def amounts(self, resource: int) -> dict[int, Amounts]:
        """By queue, what its units hold of a resource that queues pay for."""
        charge, queue = self._pieces.charges[self._goes, resource], self._pieces.queue[self._goes]
        charge, queue = charge[charge > 0], queue[charge > 0]
        rows, at = np.unique(queue, return_inverse=True)
        total, least, most = np.zeros(len(rows), np.int64), np.full(len(rows), ENDLESS), np.zeros(len(rows), np.int64)
        np.add.at(total, at, charge)
        np.minimum.at(least, at, charge)
        np.maximum.at(most, at, charge)
        each = zip(rows.tolist(), total.tolist(), least.tolist(), most.tolist(), strict=True)
        found = {row: Amounts(*amounts) for row, *amounts in each}
        for row, more, largest in self._in_their_stead if resource == GPU else ():
            known = found.get(row, Amounts())
            found[row] = Amounts(known.total + more, 0, max(known.largest, largest))
        return found

    @cached_property
    def moves_milli(self) -> int:
        """What comes free at most when work moves to devices of which it is a smaller part."""
        nodes, gpus = self._desk.working.nodes, self._desk.working.gpus
        is_usable = gpus[:, USABLE] > 0
        sizes, parts = gpus[:, SIZE][is_usable], nodes.device_milli[is_usable & (nodes.gpu_profile > 0)]
        if not len(parts) and sizes.min(initial=1 << 60) >= sizes.max(initial=0):
            return 0
        largest_mib, least_part, gained = int(sizes.max(initial=1)), int(parts.min(initial=WHOLE_MILLI)), 0
        for pod, want, milli in self._each():
            if want.hangs_on_device:
                of_one = want.gpu_mib * WHOLE_MILLI // max(1, largest_mib) if want.is_memory else least_part
                gained += max(0, milli - len(pod.devices) * of_one)
        return gained

    def on_devices(self, devices: BoolArray) -> dict[int, int]:
        """By queue: the milli of these devices that its work holds."""
        return self._by_queue([part.holdings.milli_on(devices) for part in self._parts])

    def on_nodes(self, nodes: BoolArray, column: int) -> dict[int, int]:
        """By queue: what its work holds of a node's resource on these nodes."""
        return self._by_queue([part.holdings.amounts[:, column] * nodes[part.holdings.row] for part in self._parts])

    def could_leave(self, devices: BoolArray) -> int:
        """The milli of these devices that are held by work which others would serve, too, or which may shrink."""
        nodes, gpus = self._desk.working.nodes, self._desk.working.gpus
        models = {nodes.models[at] for at in np.unique(nodes.gpu_model[~devices & (gpus[:, USABLE] > 0)]).tolist()}
        found = 0
        for pod, want, _ in self._each():
            if want.hangs_on_device or (models.intersection(want.gpu_models) if want.gpu_models else models):
                row = nodes.row[pod.node]
                columns = [(nodes.column[row].get(share.gpu), share.milli) for share in pod.devices]
                found += sum(milli for column, milli in columns if column is not None and devices[row, column])
        return found

    @cached_property
    def emptied(self) -> tuple[IntArray, IntArray]:
        """`free` and `gpus` of all nodes as they would be if everything went."""
        free, gpus = self._desk.working.free.copy(), self._desk.working.gpus.copy()
        for part in self._parts:
            part.holdings.give_back(part.goes, free, gpus)
        self.own.give_back(np.ones(len(self.own.row), np.bool_), free, gpus)
        return free, gpus

    def _by_queue(self, amounts: list[IntArray]) -> dict[int, int]:
        found = np.zeros(len(self._desk.working.queues.names), np.int64)
        for part, amount in zip(self._parts, amounts, strict=True):
            np.add.at(found, part.queue[part.goes], amount[part.goes])
        return {row: int(found[row]) for row in found.nonzero()[0].tolist()}

    def _each(self) -> Iterator[tuple[Pod, Request, int]]:
        """Every pod on a node that may go, what it asked for, and the milli that it holds."""
        workloads = self._desk.state.workloads
        for part in self._parts:
            for number in part.holdings.number[part.goes].tolist():
                pod = part.pods[number]
                want = role_of(workloads[pod.workload], pod.name).request
                yield pod, want, sum(share.milli for share in pod.devices)

    @cached_property
    def _parts(self) -> list[_Part]:
        """The pods of the units; of elastic work that goes in part, all its running pods instead."""
        pieces, goes = self._pieces, self._goes.copy()
        elastic = [each for each in self._elastic if len(self._going[each[0].name]) < len(each[1])]
        names = {workload.name for workload, _ in elastic}
        if names:
            goes &= np.array([unit.workload.name not in names for unit in pieces.units], np.bool_)
        unit = pieces.unit[pieces.holdings.number]
        found = [_Part(pieces.holdings, goes[unit], pieces.queue[unit], pieces.pods)]
        if names:
            pods = [pod for _, running in elastic for pod in running]
            holdings = Holdings(self._desk.working.nodes, pods)
            rows = [self._row_of(workload) for workload, running in elastic for _ in running]
            queue = np.array(rows, np.int64)[holdings.number]
            found.append(_Part(holdings, np.ones(len(queue), np.bool_), queue, pods))
        return found

    @cached_property
    def _elastic(self) -> list[tuple[Workload, list[Pod]]]:
        """Workloads that can spare some of their running pods."""
        state, gone = self._desk.state, self._desk.roster.gone
        numbers = (self._goes & self._pieces.is_surplus).nonzero()[0].tolist()
        units = [self._pieces.units[number] for number in numbers]
        workloads = {unit.workload.name: unit.workload for unit in units}
        return [
            (
                workload,
                [
                    pod
                    for pod in state.pods[name].values()
                    if pod.phase is Phase.RUNNING and (name, pod.name) not in gone
                ],
            )
            for name, workload in workloads.items()
        ]

    @cached_property
    def _going(self) -> dict[str, list[Pod]]:
        """Of the elastic workloads, the pods that are offered."""
        found: dict[str, list[Pod]] = {workload.name: [] for workload, _ in self._elastic}
        for number in self._goes.nonzero()[0].tolist() if found else ():
            unit = self._pieces.units[number]
            if unit.workload.name in found:
                found[unit.workload.name] += unit.pods
        return found

    @cached_property
    def _in_their_stead(self) -> list[tuple[int, int, int]]:
        """Where the pods of elastic work hold unequal parts of GPUs: its queue, how much more others of them are than
        those that are offered, and the most that one unit could be."""
        found = []
        for workload, running in self._elastic:
            milli = [_milli(pod) for pod in running]
            if len(set(milli)) > 1:
                going = self._going[workload.name]
                most = sum(sorted(milli)[-len(going) :])
                found.append((self._row_of(workload), most - sum(map(_milli, going)), sum(milli)))
        return found

    def _row_of(self, workload: Workload) -> int:
        return self._desk.working.queues.row[workload.queue]


def _milli(pod: Pod) -> int:
    return sum(share.milli for share in pod.devices)
