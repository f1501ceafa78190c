"""Answer the extender's questions about GPUs, for pods that kube-scheduler places.

Only GPUs are checked: the rest of the request is for kube-scheduler.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.decode.pod_request import SHARING_LABEL, VENDOR_LABEL
from kaiwo.clusters.kubernetes.extender.bind_pods import FOREIGN_SLOT
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.shape_scores import ShapeScores, ShapeState
from kaiwo.model.affinity import matches_node_rules
from kaiwo.model.amounts import memory, thousandths
from kaiwo.model.gpus.gpu import Share, joined_rules, outside_tenant
from kaiwo.model.queue import ThreadBound
from kaiwo.model.request import Request, Toleration
from kaiwo.model.workload import Pod
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy

T = TypeVar("T")
PodKey = tuple[str, str]  # workload and pod
ANY_TAINT = (Toleration(operator="Exists"),)


class ExtenderSnapshot:
    """The GPUs of the cluster at one moment, for one request."""

    def __init__(
        self, state: ClusterState, now_s: int, loop: SchedulingLoop, request: Request, set_aside: Sequence[str] = ()
    ) -> None:
        self.state, self.request = state, only_gpus(request)
        self.view = WorkingCopy(Snapshot(state, now_s))
        self.active = loop.plugins.active(loop.policy)
        for name in set_aside:
            self.active = self.active.without(name)
        self.scores = ShapeScores(state, self.view.view, self.view, self.active)

    def shape(self) -> ShapeState:
        return self.scores.state_of(self.request)

    def fits_without(self, node: str, pods: list[PodKey | None]) -> bool:
        row = self.view.nodes.row.get(node)
        if row is None:
            return False
        with self.view.trial():
            for workload, slot in filter(None, pods):
                pod = self.state.pods.get(workload, {}).get(slot)
                if pod is not None and pod.node == node:
                    self.view.release_uncharged(pod)
            return int(self.shape().slots[row]) > 0


class ExtenderAnswers:
    def __init__(self, loop: SchedulingLoop, cache: ClusterCache) -> None:
        self._loop, self._cache = loop, cache
        self._assumed: dict[str, Pod] = {}  # bound, and not in the state yet

    async def reasons_against(self, workload: str, request: Request, nodes: Sequence[str]) -> dict[str, str]:
        def question(gpus: ExtenderSnapshot) -> dict[str, str]:
            state, rows = gpus.shape(), gpus.view.nodes.row
            return {name: _why_not(gpus, name) for name in nodes if name not in rows or state.slots[rows[name]] <= 0}

        return await self._ask(workload, request, question)

    async def scores(self, workload: str, request: Request, nodes: Sequence[str], most: int) -> dict[str, int]:
        """The score of each node, from 0 to `most`; 0 if its GPUs are not free."""

        def question(gpus: ExtenderSnapshot) -> dict[str, int]:
            state, rows = gpus.shape(), gpus.view.nodes.row
            found = {
                name: int(state.score[rows[name]]) for name in nodes if name in rows and state.slots[rows[name]] > 0
            }
            low, high = min(found.values(), default=0), max(found.values(), default=0)
            spread = max(1, high - low)
            return {name: (found[name] - low) * most // spread if name in found else 0 for name in nodes}

        return await self._ask(workload, request, question)

    async def nodes_with_room_after(self, workload: str, request: Request, victims: dict[str, list[str]]) -> list[str]:
        """The nodes on which its GPUs are free once these pods, given by UID, are gone."""
        keys = self._pod_keys({uid for uids in victims.values() for uid in uids})

        def question(gpus: ExtenderSnapshot) -> list[str]:
            return [node for node, uids in victims.items() if gpus.fits_without(node, [keys.get(uid) for uid in uids])]

        return await self._ask(workload, request, question)

    async def choose_devices(self, workload: str, request: Request, node: str) -> tuple[Share, ...] | str:
        """The devices that it gets on this node, or the reason why it gets none."""

        def question(gpus: ExtenderSnapshot) -> tuple[Share, ...] | str:
            row = gpus.view.nodes.row.get(node)
            if row is None or gpus.shape().slots[row] <= 0:
                return f"node {node}: {_why_not(gpus, node)}"
            (placed,) = Placer(gpus.view, gpus.scores, gpus.active).put(row, gpus.request, 1)
            return placed.devices

        return await self._ask(workload, request, question)

    def assume(self, pod: Pod) -> None:
        """A pod is bound, and holds its devices from now on."""
        self._assumed[pod.workload] = pod

    async def _ask(self, workload: str, request: Request, question: Callable[[ExtenderSnapshot], T]) -> T:
        def answer(state: ClusterState) -> T:
            """A plugin that misbehaves is set aside, as in `decide`, and the question is asked again."""
            set_aside: list[str] = []
            while True:
                try:
                    return answer_without(state, set_aside)
                except PluginFaultError as fault:
                    set_aside.append(fault.plugin)

        def answer_without(state: ClusterState, set_aside: list[str]) -> T:
            wanted = state.domain_access.with_closed_to_namespace(workload, _with_tenant(state, workload, request))
            gpus = ExtenderSnapshot(state, self._loop.cluster.now_s(), self._loop, wanted, set_aside)
            for pod in state.pods.get(workload, {}).values():
                gpus.view.release_uncharged(pod)  # what it holds itself is free for it
            for name, pod in list(self._assumed.items()):
                if name in state.pods or name not in self._cache.names.unit_of:
                    del self._assumed[name]
                elif name != workload:
                    _hold(gpus.view, pod)
            return question(gpus)

        return await self._loop.ask(answer)

    def _pod_keys(self, uids: set[str]) -> dict[str, PodKey]:
        """The workload of each pod, and the pod's name there, by UID."""
        found = {}
        for pod in self._cache.pods.values():
            workload = self._cache.workload_of(pod.key) if pod.uid in uids else None
            if workload is not None:
                slots = self._cache.slots.pods(workload)
                own = (slot for slot, each in slots.items() if each.uid == pod.uid)
                found[pod.uid] = (workload, next(own, FOREIGN_SLOT))
        return found


def only_gpus(request: Request) -> Request:
    """The part of a request that kube-scheduler cannot check."""
    return Request(
        gpus=request.gpus,
        gpu_milli=request.gpu_milli,
        gpu_mib=request.gpu_mib,
        gpu_models=request.gpu_models,
        device_mib=request.device_mib,
        partition=request.partition,
        isolation=request.isolation,
        least_grade=request.least_grade,
        share_with=request.share_with,
        tenant=request.tenant,
        threads_milli=ThreadBound().capped(request),  # no queue allows it more than its share
        node_rules=tuple(rule for rule in request.node_rules if rule.key.startswith((SHARING_LABEL, VENDOR_LABEL))),
        tolerations=ANY_TAINT,
    )


def _with_tenant(state: ClusterState, workload: str, request: Request) -> Request:
    """The request of a pod that no queue has, where rules about sharing a GPU are in use."""
    if not state.sharing.in_use or not request.gpus or request.is_exclusive:
        return request
    rule = joined_rules((request.share_with, state.sharing.everywhere))
    return replace(request, tenant=outside_tenant(workload, rule))


def _why_not(gpus: ExtenderSnapshot, name: str) -> str:
    row = gpus.view.nodes.row.get(name)
    if row is None:
        return "Kaiwo does not know this node yet"
    node, request = gpus.view.nodes.nodes[row], gpus.request
    if not matches_node_rules(node.labels, request.node_rules, ()):
        is_share = any(rule.key == SHARING_LABEL for rule in request.node_rules)
        return "no node agent shares GPUs on this node" if is_share else "it has no GPU of the requested vendor"
    return f"too few free GPUs for the pod's request ({_gpus_text(request)})"


def _gpus_text(request: Request) -> str:
    if request.is_fraction:
        return f"{thousandths(request.gpu_milli)} of {request.gpus}"
    if request.is_memory:
        fraction = f"{thousandths(request.fraction_milli)} with at least " if request.fraction_milli else ""
        return f"{fraction}{memory(request.gpu_mib)} on {request.gpus}"
    return f"{request.gpus} {request.partition}".strip()


def _hold(view: WorkingCopy, pod: Pod) -> None:
    """Take the devices of a bound pod that the state does not have yet."""
    row = view.nodes.row.get(pod.node)
    if row is None:
        return
    column = view.nodes.column[row]
    shares = [share for share in pod.devices if share.gpu in column]
    columns = np.array([column[share.gpu] for share in shares], np.intp)
    milli = np.array([share.milli for share in shares], np.int64)
    mib = np.array([share.mib for share in shares], np.int64)
    tenant = view.view.tenant_of(pod)
    held = Request(gpus=len(shares), gpu_milli=int(milli.min()), tenant=tenant) if tenant is not None else Request()
    view.take(row, 1, held, columns, milli, mib)
