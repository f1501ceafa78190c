"""Find stops that free the same: where one of them does not start the workload, the others need no trial.

In:    what-if questions about one workload.   Out: a key for each stop; stops with equal keys have equal outcomes.
A trial sees of a stop the devices that come free on one node, what the queue gets back, and who competes for both.
Stops differ in CPU and memory, too, so a stop has a key only where these cannot count: see decision 0138.
"""

from collections.abc import Hashable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kaiwo.decide.placement.node_fit import may_fit, pods_that_fit
from kaiwo.decide.placement.shape_scores import allowed
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.queue import POLICY_RULES
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.plugins import builtin
from kaiwo.plugins.builtin.node_filters import GpuIsolation
from kaiwo.plugins.builtin.request_mix import is_cpu_short
from kaiwo.plugins.contract import Filter
from kaiwo.queues.queue_order import PPM
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.node_table import CPU, MEMORY, MIB, MILLI, PODS
from kaiwo.snapshot.queue_table import GPU, INFINITE

MAX_FILTER_KEYS = 8  # of requests that look different to the static filters: each is asked about each node
_MEASURED = ((CPU, 1), (MEMORY, 2))  # columns of free amounts, and of what queues use


class EqualStops:
    """The keys of the stops that are considered for one workload."""

    def __init__(self, what_if: WhatIf) -> None:
        self._what_if, self._view = what_if, what_if.view
        self._competitors: dict[str, _Competitors | None] = {}  # by queue of the stopped workload
        self._room: dict[Request, frozenset[int]] = {}
        self._allowed: dict[tuple[Hashable, int], bool] = {}
        self._enough_cpu: dict[Hashable, int] = {}  # by what comes free of a node's devices

    def key_of(self, name: str) -> Hashable | None:
        """None: its stop may be unlike all others."""
        state, backlog = self._what_if.state, self._what_if.state.backlog
        pods = list(state.pods.get(name, {}).values())
        is_alone = len({pod.node for pod in pods}) == 1 and not backlog.is_queued(name) and name not in backlog.gated
        if not is_alone or not self._is_comparable:
            return None
        workload, row = state.workloads[name], self._view.nodes.row.get(pods[0].node)
        competitors = self._competitors_of(workload.queue)
        if row is None or competitors is None or row in competitors.room:
            return None
        devices = self._devices_after(row, pods)
        needs = competitors.most_on(devices)
        charge = sum(share.charge_milli for pod in pods for share in pod.devices)
        if not self._has_plenty(row, pods, devices, needs):
            return None
        if not self._gpus_decide(workload.queue, charge, needs, competitors):
            return None
        models = [self._view.milli_by_model(pod.node, pod.devices) for pod in pods]
        filters = tuple(self._is_allowed(want, key, row) for key, want in competitors.by_filter_key.items())
        freed = (charge, tuple(map(sum, zip(*models, strict=True))), self._device_kinds(row, devices))
        # Of equally good nodes the first is taken.
        place = (sum(other < row for other in competitors.room), self._view.node_failures.get(pods[0].node, 0))
        return workload.queue, workload.preemptible, freed, filters, place

    @cached_property
    def _is_comparable(self) -> bool:
        """Nothing but devices, queues and the order of turns decides who starts."""
        state, view, active = self._what_if.state, self._view, self._what_if.active
        has_ends = state.planned_starts or state.reservations.objects or state.reservations.live or state.expiring
        has_places = state.nominations or state.releasing or state.failures.resting or view.pools
        has_rules = view.tenants.demanding or view.tenants.closed_to is not None or view.nodes.bounds_shares
        if has_ends or has_places or has_rules or active.free_filters:
            return False
        scores = (plugin for plugin, _ in (*active.scores, *active.gpu_scores))
        plugins = (*active.queue_orders, *scores, active.allocation)
        if not all(type(plugin).__module__.startswith(builtin.__name__) for plugin in plugins):
            return False
        bounds = (view.queues.quota[:, GPU + 1 :], view.queues.limit[:, GPU + 1 :])
        is_bounded = any(int(bound.min(initial=INFINITE)) < INFINITE for bound in bounds)
        return not is_bounded and not any(POLICY_RULES[policy].by_wait for policy in view.queues.tree.policy)

    def _competitors_of(self, queue: str) -> "_Competitors | None":
        """All work that could get a turn after a stop in this queue, if it asks for devices only."""
        if queue not in self._competitors:
            backlog, barred = self._what_if.state.backlog, self._what_if.barred_with_room_in(queue)
            classes = [
                found for key, found in backlog.by_key.items() if key not in barred and key not in backlog.impossible
            ]
            is_plain = queue in self._view.queues.row and all(map(self._is_plain, classes))
            found = self._gather(classes) if is_plain else None
            self._competitors[queue] = found if found and len(found.by_filter_key) <= MAX_FILTER_KEYS else None
        return self._competitors[queue]

    def _is_plain(self, found: WaitingClass) -> bool:
        """Its pods ask for devices on any nodes."""
        signature, shapes = found.signature, self._what_if.state.backlog.shapes
        if signature.levels is not None or signature.nominated_for or signature.choices is not None:
            return False
        return all(_asks_for_devices(shapes[need.shape]) for need in found.needs)

    def _nodes_with_room(self, want: Request) -> frozenset[int]:
        if want not in self._room:
            view = self._view
            fits = may_fit(view, want, view.all_rows) and pods_that_fit(view, want, view.all_rows).nonzero()[0].tolist()
            self._room[want] = frozenset(fits or ())
        return self._room[want]

    def _gather(self, classes: list[WaitingClass]) -> "_Competitors":
        shapes = self._what_if.state.backlog.shapes
        wants = {shapes[need.shape] for found in classes for need in found.needs}
        by_milli, by_mib = np.zeros(PODS + 1), np.zeros(PODS + 1)
        for want in wants:
            amounts = np.array([want.cpu_milli, want.memory_mib, 1], np.float64)
            if want.least_milli:
                by_milli = np.maximum(by_milli, amounts / want.least_milli)
            else:
                by_mib = np.maximum(by_mib, amounts / (want.gpus * want.gpu_mib))
        needs = [[(shapes[need.shape], max(need.needed, 1)) for need in found.needs] for found in classes]
        cpu_milli = max((sum(want.cpu_milli * pods for want, pods in each) for each in needs), default=0)
        memory_mib = max((sum(want.memory_mib * pods for want, pods in each) for each in needs), default=0)
        by_filter_key = {self._filter_key(want): want for want in sorted(wants, key=repr)}
        room = frozenset[int]().union(*map(self._nodes_with_room, wants))
        return _Competitors(by_milli, by_mib, (cpu_milli, memory_mib), by_filter_key, room)

    def _devices_after(self, row: int, pods: list[Pod]) -> IntArray:
        """The devices of the node without these pods."""
        devices: IntArray = self._view.gpus[row].copy()
        for share in (share for pod in pods for share in pod.devices):
            if (column := self._view.nodes.column[row].get(share.gpu)) is not None:
                devices[MILLI, column] += share.milli
                devices[MIB, column] += share.mib
        return devices

    def _has_plenty(self, row: int, pods: list[Pod], devices: IntArray, needs: IntArray) -> bool:
        """The node has CPU, memory and room for all pods that its devices could take, and its score shows that."""
        free = self._view.free[row : row + 1].copy()
        free[0, : PODS + 1] += (sum(pod.cpu_milli for pod in pods), sum(pod.memory_mib for pod in pods), len(pods))
        free[0, : PODS + 1] -= needs
        if (free[0, : PODS + 1] < 0).any():
            return False
        known = self._device_kinds(row, devices)
        if int(free[0, CPU]) < self._enough_cpu.get(known, INFINITE):
            nodes = self._view.at(row)
            if is_cpu_short(self._view.with_amounts(nodes, free, devices[None]), nodes).any():
                return False
            self._enough_cpu[known] = int(free[0, CPU])
        return True

    def _gpus_decide(self, queue: str, charge: int, needs: IntArray, competitors: "_Competitors") -> bool:
        """Of its queue and all above it, GPUs are the resource of which they use the largest part of their share."""
        view, totals = self._view, self._view.nodes.totals()
        for above in view.queues.path[view.queues.row[queue]]:
            quota, limit = int(view.queues.quota[above, GPU]), int(view.queues.limit[above, GPU])
            entitled = min(limit, max(int(totals[GPU]), quota if quota < INFINITE else 0))  # at most
            least = PPM * (int(view.queue_used[above, GPU]) - charge) // max(entitled, 1)
            for (column, resource), need in zip(_MEASURED, competitors.largest, strict=True):
                most = int(view.queue_used[above, resource]) + int(needs[column]) + need
                if not totals[resource] or PPM * most // int(totals[resource]) > least:
                    return False
        return True

    def _device_kinds(self, row: int, devices: IntArray) -> Hashable:
        """The devices, in any order if all that have something free are alike."""
        nodes = self._view.nodes
        known = zip(nodes.device_milli[row], nodes.gpu_model[row], nodes.gpu_profile[row], strict=True)
        kinds = [tuple(map(int, (*amounts, *more))) for amounts, more in zip(devices.T, known, strict=True)]
        free = {kind for kind in kinds if kind[MILLI] > 0 or kind[MIB] > 0}
        return tuple(sorted(kinds) if len(free) <= 1 else kinds)

    def _is_allowed(self, want: Request, key: Hashable, row: int) -> bool:
        if (key, row) not in self._allowed:
            self._allowed[key, row] = bool(allowed(self._view, want, self._view.at(row), self._filters)[0])
        return self._allowed[key, row]

    def _filter_key(self, want: Request) -> Hashable:
        """Requests with equal keys get equal answers from the filters."""
        fields = [getattr(plugin, "depends_on", None) for plugin in self._filters]
        if None in fields:
            return want
        return tuple(getattr(want, name) for each in fields for name in each or ())

    @cached_property
    def _filters(self) -> tuple[Filter, ...]:
        """Without that of isolation: nobody who competes asks for any."""
        return tuple(each for each in self._what_if.active.static_filters if not isinstance(each, GpuIsolation))


def _asks_for_devices(want: Request) -> bool:
    """And for CPU and memory, but for nothing else that a node could lack."""
    is_special = want.is_partition or want.extended or want.neighbours is not None or want.reservation or want.passes
    is_choosy = want.prefers or want.strategy  # about nodes: their scores then depend on other things
    is_isolated = want.least_grade or want.isolation or want.share_with or want.tenant or want.limits
    return bool(want.gpus) and not is_special and not is_choosy and not is_isolated


class _Competitors(NamedTuple):
    """What the work that could get a turn may take of one node, and of a queue."""

    by_milli: "np.typing.NDArray[np.float64]"  # CPU, memory and pods for each milli-GPU, at most
    by_mib: "np.typing.NDArray[np.float64]"  # the same of shares by memory, for each MiB
    largest: tuple[int, int]  # the CPU and memory that one workload needs to start, at most
    by_filter_key: dict[Hashable, Request]  # an example of each kind that static filters tell apart
    room: frozenset[int]  # nodes where some of it would fit now, if its queue had more left

    def most_on(self, devices: IntArray) -> IntArray:
        """The CPU, memory and pods of all that these devices could take."""
        milli, mib = devices[MILLI].clip(0).sum(), devices[MIB].clip(0).sum()
        most: IntArray = np.ceil(self.by_milli * milli + self.by_mib * mib).astype(np.int64)
        return most
