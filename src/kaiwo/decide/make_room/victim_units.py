"""Divide running work into victim units, and order them: the first to stop first.

Surplus pods of elastic work stop one at a time, then the rest of the workload as a whole.
Never: names work that may not be preempted, that is leaving already, or that is not ours; or more pods of it than a
       disruption budget allows.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

import msgspec
import numpy as np

from kaiwo.decide.planned_starts.waiting_time import protected_until_s
from kaiwo.model.obstacle import ProtectedByBudget
from kaiwo.model.plan import Start
from kaiwo.model.policy import Policy
from kaiwo.model.workload import (
    Phase,
    Pod,
    SubGroupTree,
    Workload,
    branch_has_minimum,
    breaks_gang,
    leading_roles,
    lost_gpu_s,
    pod_name,
    pods_per_role,
    role_name,
    subgroup_tree,
)
from kaiwo.snapshot.array_types import BoolArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.gpu_model_usage import milli_by_model
from kaiwo.snapshot.queue_table import QueueTable, ResourceVector

Order = tuple[int | str, ...]
Pieces = list[tuple[Pod, ...]]
MayStop = Callable[[Sequence["VictimUnit"]], BoolArray]


class VictimUnit(msgspec.Struct, frozen=True):
    """Pods that are stopped together: surplus of an elastic workload, or all that is left of it."""

    workload: Workload
    pods: tuple[Pod, ...]
    is_surplus: bool
    since_s: int  # when the workload began to run
    lost_gpu_s: int  # since its last checkpoint, and until it is back there after a restart
    charge: ResourceVector  # that its queue pays for it
    order: Order


UnitLane = deque[VictimUnit]  # the units of one queue that may be stopped, in order


MAX_NAMED = 3


class ProtectedWork:
    """The work of a cycle that disruption budgets protect, by queue."""

    def __init__(self) -> None:
        self._kept: dict[str, list[tuple[Workload, int]]] = {}  # each with its milli-GPU

    def add(self, workload: Workload, pods: Iterable[Pod]) -> None:
        milli = [sum(share.charge_milli for share in pod.devices) for pod in pods]
        if milli:
            self._kept.setdefault(workload.queue, []).append((workload, sum(milli)))

    def rows(self, queues: QueueTable) -> Rows:
        return np.array(sorted(queues.row[name] for name in self._kept if name in queues.row), np.intp)

    def protection(self, queue: str, below: int | None = None) -> ProtectedByBudget | None:
        """What budgets protect in a queue, of work below a priority if one is given."""
        kept = [each for each in self._kept.get(queue, ()) if below is None or each[0].priority < below]
        if not kept:
            return None
        names = sorted(workload.name for workload, _ in kept)
        why = min((workload.stays_why for workload, _ in kept if workload.stays_why), default="")
        named, more = tuple(names[:MAX_NAMED]), max(0, len(names) - MAX_NAMED)
        return ProtectedByBudget(queue, sum(milli for _, milli in kept), named, more, why)


class VictimUnits:
    """All running work that may be stopped, by queue; computed when first needed."""

    def __init__(
        self,
        state: ClusterState,
        now_s: int,
        policy: Policy,
        starts: Iterable[Start] = (),
        may_stop: MayStop | None = None,  # None: no plugin protects work
    ) -> None:
        self._may_stop = may_stop
        self._state, self._now_s, self._by_lost_work = state, now_s, policy.victim_order == "lost-work"
        self._max_restart_s, self._policy = policy.max_restart_cost_s, policy
        self.spared_until_s = 0  # until then work that was overdue when it started is not stopped; 0: there is none
        self._protected = ProtectedWork()
        self.evicted: set[tuple[str, str]] = set()  # (workload, pod) that this cycle stops
        self._started: dict[str, list[str]] = {}  # the pods that this cycle starts, by workload
        for start in starts:
            self._started.setdefault(start.workload, []).append(start.pod)

    def lanes(self, queues: Iterable[str], may_go: Callable[[VictimUnit], bool]) -> dict[str, UnitLane]:
        found = {}
        for queue in queues:
            chosen = [unit for unit in self.units(queue) if may_go(unit) and not self._is_evicted(unit)]
            if chosen:
                found[queue] = UnitLane(chosen)
        return found

    def has_below(self, queue: str, priority: int) -> bool:
        """Something less important runs in the queue. A quick check that ends most cycles."""
        return self._lowest[True].get(queue, priority) < priority

    def has_protected_below(self, queue: str, priority: int) -> bool:
        """The same for work that disruption budgets protect."""
        return self._lowest[False].get(queue, priority) < priority

    @property
    def protected(self) -> ProtectedWork:
        _ = self._by_queue  # what is protected is known once all units are
        return self._protected

    @cached_property
    def _lowest(self) -> dict[bool, dict[str, int]]:
        """The lowest priority in each queue, by whether the work may be stopped or disruption budgets protect it."""
        found: dict[bool, dict[str, int]] = {True: {}, False: {}}
        for queue, may_stop, priority in self._state.preemptible:
            known = found[may_stop]
            known[queue] = min(priority, known.get(queue, priority))
        return found

    def queues(self) -> Iterable[str]:
        return self._by_queue

    @cached_property
    def rows(self) -> Rows:
        """The same queues as rows of the queue table."""
        return self._rows(self._by_queue)

    @cached_property
    def possible_rows(self) -> Rows:
        """All queues with preemptible work, even if none of it may stop now: known without listing the units."""
        return self._rows({kind.queue for kind in self._state.preemptible})

    def _rows(self, names: Iterable[str]) -> Rows:
        row_of = self._state.queues.row
        return np.array(sorted(row_of[name] for name in names if name in row_of), np.intp)

    def units(self, queue: str) -> list[VictimUnit]:
        return self._by_queue.get(queue, [])

    def surplus_of(self, unit: VictimUnit) -> list[VictimUnit]:
        """The surplus of the unit's workload that is not evicted yet."""
        return [each for each in self._surplus.get(unit.workload.name, ()) if not self._is_evicted(each)]

    @cached_property
    def _surplus(self) -> dict[str, list[VictimUnit]]:
        found: dict[str, list[VictimUnit]] = {}
        for each in (unit for units in self._by_queue.values() for unit in units if unit.is_surplus):
            found.setdefault(each.workload.name, []).append(each)
        return found

    def _is_evicted(self, unit: VictimUnit) -> bool:
        return bool(self.evicted) and any((pod.workload, pod.name) in self.evicted for pod in unit.pods)

    @cached_property
    def _by_queue(self) -> dict[str, list[VictimUnit]]:
        found: dict[str, list[VictimUnit]] = {}
        workloads = self._state.workloads
        for name, pods in self._state.pods.items():
            workload = workloads.get(name)
            if workload is not None and workload.preemptible and (units := self._units_of(workload, pods)):
                found.setdefault(workload.queue, []).extend(units)
        for units in found.values():
            units.sort(key=attrgetter("order"))
        return found if self._may_stop is None else _without_spared(found, self._may_stop)

    def _units_of(self, workload: Workload, pods: dict[str, Pod]) -> list[VictimUnit]:
        if workload.name in self._state.started_overdue:
            until_s = protected_until_s(self._state, workload.name, self._policy)
            if until_s > self._now_s:
                self.spared_until_s = min(until_s, self.spared_until_s or until_s)
                return []
        if not workload.may_go:
            self._protected.add(workload, pods.values())
            return []
        if len(workload.roles) == 1 and workload.roles[0].count == 1:
            (pod,) = pods.values()
            return [self._unit(workload, (pod,), False, pod.since_s, 0)] if pod.phase is Phase.RUNNING else []
        running = {
            name: pod
            for name, pod in pods.items()
            if pod.phase is Phase.RUNNING and (workload.name, name) not in self.evicted
        }
        if not running:
            return []
        since_s = min(pod.since_s for pod in running.values())
        surplus, kept = surplus_of(workload, running)
        may_go = len(running) if workload.may_go < 0 else workload.may_go
        units: list[VictimUnit] = []
        stays = False  # some surplus is protected: then neither leaders nor the rest stop before it
        for piece in surplus:
            if len(piece) > may_go or (stays and has_leader(workload, piece)):
                stays = True
                continue
            may_go -= len(piece)
            units.append(self._unit(workload, piece, True, since_s, len(units)))
        started = self._started.get(workload.name)
        is_growing = started is not None and breaks_gang(workload, started)  # then needed pods are not stopped now
        if kept and may_go >= len(kept) and not stays and not is_growing:
            units.append(self._unit(workload, tuple(kept), False, since_s, len(units)))
        if workload.may_go > 0 and not is_growing:
            stoppable = {pod.name for unit in units for pod in unit.pods}
            self._protected.add(workload, [pod for name, pod in running.items() if name not in stoppable])
        return units

    def _unit(self, workload: Workload, pods: tuple[Pod, ...], is_surplus: bool, since_s: int, at: int) -> VictimUnit:
        charge = (*_charge(pods), *milli_by_model(self._state.node_objects, self._state.queues.models, pods))
        lost = 0 if is_surplus else lost_gpu_s(workload, pods, self._now_s, self._max_restart_s)
        worth = lost if self._by_lost_work else 0
        order = (workload.priority, not is_surplus, worth, -workload.submitted_s, _Reversed(workload.name), at)
        return VictimUnit(workload, pods, is_surplus, since_s, lost, charge, order)


def _without_spared(found: Mapping[str, list[VictimUnit]], may_stop: MayStop) -> dict[str, list[VictimUnit]]:
    """The units that the plugins let stop. Where they spare a unit, those of its workload that stop later stay too:
    otherwise its needed pods would stop before its surplus."""
    units = [unit for queue in sorted(found) for unit in found[queue]]
    refused = [unit for unit, may in zip(units, may_stop(units).tolist(), strict=True) if not may]
    first_spared: dict[str, Order] = {}
    for unit in refused:
        known = first_spared.get(unit.workload.name)
        first_spared[unit.workload.name] = unit.order if known is None else min(known, unit.order)
    kept = {
        queue: [
            unit
            for unit in found[queue]
            if unit.workload.name not in first_spared or unit.order < first_spared[unit.workload.name]
        ]
        for queue in found
    }
    return {queue: left for queue, left in kept.items() if left}


def _charge(pods: tuple[Pod, ...]) -> tuple[int, int, int]:
    milli = cpu = memory = 0
    for pod in pods:
        cpu += pod.cpu_milli
        memory += pod.memory_mib
        for share in pod.devices:
            milli += share.milli + share.round_milli
    return milli, cpu, memory


class _Reversed(str):
    """Sorts names in reverse: of equal victims, the last submitted stops first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__lt__(self, other)


def surplus_of(workload: Workload, running: Mapping[str, Pod]) -> tuple[Pieces, list[Pod]]:
    """The pods that may stop while the rest runs on, piece by piece; and that rest."""
    surplus: Pieces = []
    if workload.groups:
        up = pods_per_role(workload, running)
        _surplus_branches(workload, running, subgroup_tree(workload.groups, workload.roles), up, surplus)
    else:
        for number in range(len(workload.roles)):
            surplus += _surplus_pods(workload, running, number)
    surplus.sort(key=lambda piece: has_leader(workload, piece))
    gone = {pod.name for piece in surplus for pod in piece}
    return surplus, [running[name] for name in sorted(running) if name not in gone]


def has_leader(workload: Workload, piece: Iterable[Pod]) -> bool:
    leaders = leading_roles(workload)
    return bool(leaders) and not leaders.isdisjoint(role_name(pod.name) for pod in piece)


def _surplus_pods(workload: Workload, running: Mapping[str, Pod], number: int) -> Pieces:
    pods = _pods_of(workload, running, number)
    return [(pod,) for pod in reversed(pods[workload.roles[number].needed :])]


def _surplus_branches(
    workload: Workload, running: Mapping[str, Pod], branch: SubGroupTree, up: list[int], surplus: Pieces
) -> None:
    whole = [child for child in branch.children if branch_has_minimum(child, workload.roles, up)]
    broken = [child for child in branch.children if child not in whole]
    whole.sort(key=lambda child: not _leads(workload, child))
    needed, others = whole[: branch.minimum], whole[branch.minimum :]
    if len(whole) < branch.minimum:
        needed, broken = [*whole, *broken], []  # below its own minimum, all children count as needed
    for number in branch.extras:
        surplus += _surplus_pods(workload, running, number)
    for child in (*reversed(broken), *reversed(others)):
        if pods := _all_pods(workload, running, child):
            surplus.append(tuple(pods))
    for child in reversed(needed):
        if isinstance(child, int):
            surplus += _surplus_pods(workload, running, child)
        else:
            _surplus_branches(workload, running, child, up, surplus)


def _leads(workload: Workload, branch: SubGroupTree | int) -> bool:
    if isinstance(branch, int):
        return workload.roles[branch].leads
    return any(_leads(workload, child) for child in (*branch.children, *branch.extras))


def _all_pods(workload: Workload, running: Mapping[str, Pod], branch: SubGroupTree | int) -> list[Pod]:
    if isinstance(branch, int):
        return _pods_of(workload, running, branch)
    return [pod for child in (*branch.children, *branch.extras) for pod in _all_pods(workload, running, child)]


def _pods_of(workload: Workload, running: Mapping[str, Pod], number: int) -> list[Pod]:
    role = workload.roles[number]
    return [running[name] for index in range(role.count) if (name := pod_name(role, index)) in running]
