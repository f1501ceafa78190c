"""Which running pods may move, which waiting pods want room, and on which nodes each may be.

In:    one snapshot.   Out: a packing table, with the pods behind its rows.
A pod moves only if preemption could stop it: not while a disruption budget, a minimum run time or a plugin protects it.
Pods of gangs, and pods with rules about neighbours, levels, partitions or isolation, stay where they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.defragment.movable_work import MovableWork
from kaiwo.decide.defragment.packing_table import PackingTable, PodKind, TablePlace, TablePod
from kaiwo.decide.placement.queue_limits import charge_of, within_limits
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Workload, pod_name
from kaiwo.snapshot.array_types import BoolArray
from kaiwo.snapshot.node_table import CPU, MEMORY, MIB, MILLI, PODS, SIZE, USABLE

MOST_WAITING = 4_000  # the most important ones are looked at


@dataclass(frozen=True, slots=True)
class CandidatePod:
    workload: Workload
    name: str
    request: Request
    running: Pod | None  # None: it waits
    lost_gpu_s: int = 0


class MovablePods:
    def __init__(self, cycle: CycleInput, cycle_state: CycleState, with_waiting: bool = True) -> None:
        self._cycle, self._cycle_state = cycle, cycle_state
        self._view = cycle_state.working.view
        self._masks: list[BoolArray] = []
        self._mask_of: dict[Request, int] = {}
        running = sorted(self._running(), key=lambda each: (each.workload.name, each.name))
        waiting = sorted(self._waiting(), key=_most_important_first)[:MOST_WAITING] if with_waiting else []
        self.pods: list[CandidatePod] = [*running, *waiting]
        self.running = len(running)
        self.waiting: Sequence[int] = range(len(running), len(self.pods))
        pods = [
            TablePod(self._kind(each), self._place(each), each.running is not None, each.lost_gpu_s)
            for each in self.pods
        ]
        self.table = PackingTable(self._free(), pods, self._masks)

    def can_pay(self, pod: int) -> bool:
        queue, want = self._payer(pod)
        working, is_bound = self._cycle_state.working, not self.pods[pod].workload.preemptible
        return queue is not None and within_limits(working, queue, charge_of(want), is_bound)

    def charge(self, pod: int) -> None:
        queue, want = self._payer(pod)
        if queue is not None:
            is_bound = not self.pods[pod].workload.preemptible
            charge = charge_of(want) + (0,) * len(self._view.queues.models)
            self._cycle_state.working.charge(queue, charge, is_bound)

    def _payer(self, pod: int) -> tuple[int | None, Request]:
        found = self.pods[pod]
        return self._view.queues.row.get(found.workload.queue), found.request

    def _running(self) -> Iterator[CandidatePod]:
        state, movable = self._cycle.state, MovableWork(self._cycle, self._view)
        movable.check_all()
        for name in state.pods:
            workload = state.workloads.get(name)
            if workload is None or not _is_single(workload) or not self._is_plain(workload):
                continue
            if movable.reason(workload) is not None:
                continue
            for pod in movable.running(name):
                request = state.request_of(workload, workload.roles[0])
                is_known = pod.node in self._view.nodes.row and len(pod.devices) == request.gpus
                if is_known and all(share.milli == request.gpu_milli for share in pod.devices):
                    yield CandidatePod(workload, pod.name, request, pod, movable.lost_gpu_s(workload, pod))

    def _waiting(self) -> Iterator[CandidatePod]:
        state = self._cycle.state
        for name in state.backlog.queued_names():
            workload = state.workloads[name]
            is_new = name not in state.pods and name not in state.nominations and name not in state.planned_starts
            if is_new and _is_single(workload) and self._is_plain(workload):
                role = workload.roles[0]
                yield CandidatePod(workload, pod_name(role, 0), state.request_of(workload, role), None)

    def _is_plain(self, workload: Workload) -> bool:
        """Its pod needs only CPU, memory and GPUs, wherever they are."""
        state, want = self._cycle.state, workload.roles[0].request
        if levels_of(workload) is not None or workload.bandwidth_mb_s or workload.reservation or state.pools:
            return False
        if want.neighbours is not None or want.partition or want.gpu_mib or want.extended:
            return False
        if want.isolation or want.least_grade or want.share_with or want.threads_milli or state.sharing.in_use:
            return False
        is_share = want.gpus == 1 and want.gpu_milli < WHOLE_MILLI
        if is_share and state.nodes.tenants.demanding:
            return False
        queue = state.queues.row.get(workload.queue)
        if queue is None or (want.gpus and state.queues.is_model_bounded[queue]):
            return False
        return is_share or not want.gpus or want.gpu_milli == WHOLE_MILLI

    def _kind(self, pod: CandidatePod) -> PodKind:
        want = pod.request
        return PodKind(
            want.cpu_milli, want.memory_mib, want.gpus, want.gpu_milli if want.gpus else 0, self._nodes_of(want)
        )

    def _place(self, pod: CandidatePod) -> TablePlace | None:
        if pod.running is None:
            return None
        row = self._view.nodes.row[pod.running.node]
        column = self._view.nodes.column[row]
        return TablePlace(row, tuple(column[share.gpu] for share in pod.running.devices))

    def _nodes_of(self, want: Request) -> int:
        """The number of the set of nodes that a request may use."""
        rules = replace(want, cpu_milli=0, memory_mib=0, gpus=min(want.gpus, 1), gpu_milli=WHOLE_MILLI, prefers=())
        if rules not in self._mask_of:
            self._mask_of[rules] = len(self._masks)
            self._masks.append(self._may_use(rules))
        return self._mask_of[rules]

    def _may_use(self, rules: Request) -> BoolArray:
        nodes, view = self._view.nodes, self._view
        may: BoolArray = self._cycle_state.scores.state_of(rules).allowed & nodes.schedulable
        if rules.gpus and rules.gpu_models:
            wanted = np.array([name in rules.gpu_models for name in nodes.models], np.bool_)
            may = may & wanted[nodes.gpu_model[:, 0]]
        if rules.gpus and rules.device_mib:
            may = may & (nodes.gpus[:, SIZE].max(axis=1, initial=0) >= rules.device_mib)
        if view.reservations is not None:
            may = may & ~view.reservations.closed_nodes(rules.passes, rules.holds_s)
            may = may & ~view.reservations.closed(rules.passes, rules.holds_s).any(axis=1)
        planned = {name for start in self._cycle.state.planned_starts.values() for name in start.nodes}
        if planned:
            may = may & np.array([name not in planned for name in nodes.names], np.bool_)
        return may

    def _free(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        free, gpus = self._view.free, self._view.gpus
        # Memory that shares hold beyond their part of the GPU is not free either.
        by_memory = gpus[:, MIB] * WHOLE_MILLI // np.maximum(gpus[:, SIZE], 1)
        milli = np.where(gpus[:, USABLE] > 0, np.minimum(gpus[:, MILLI], by_memory), 0)
        return free[:, CPU], free[:, MEMORY], free[:, PODS], np.maximum(milli, 0)


def _is_single(workload: Workload) -> bool:
    return len(workload.roles) == 1 and workload.roles[0].count == 1 and not workload.groups


def _most_important_first(pod: CandidatePod) -> tuple[int, int, str]:
    return -pod.workload.priority, pod.workload.submitted_s, pod.workload.name
