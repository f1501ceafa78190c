"""Answers about the GPUs of nodes for pods that kube-scheduler places.

In:    a request, names of nodes.   Out: where its GPUs are free, how good each node is, and which devices it gets.
Never: judges anything but GPUs: the rest of the request is kube-scheduler's own.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.decode.pod_request import SHARING_LABEL, VENDOR_LABEL
from kaiwo.clusters.kubernetes.extender.bind_pods import PLACE
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.shape_scores import ShapeScores, ShapeState
from kaiwo.model.affinity import obeys
from kaiwo.model.gpu import Share
from kaiwo.model.request import Request, Toleration
from kaiwo.model.workload import Pod
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy

T = TypeVar("T")
ANY_TAINT = (Toleration(operator="Exists"),)


class Look:
    """The cluster at one moment, as one pod would find it."""

    def __init__(self, state: ClusterState, now_s: int, loop: SchedulingLoop, want: Request) -> None:
        self.state, self.want = state, only_gpus(want)
        self.view = WorkingCopy(Snapshot(state, now_s))
        self.active = loop.plugins.active(loop.policy)
        self.book = ShapeScores(state, self.view, self.view, self.active)

    def shape(self) -> ShapeState:
        return self.book.state_of(self.want)

    def fits_without(self, node: str, places: list[tuple[str, str] | None]) -> bool:
        """Its GPUs are free on a node once these are gone."""
        row = self.view.nodes.row.get(node)
        if row is None:
            return False
        with self.view.trial():
            for workload, slot in filter(None, places):
                pod = self.state.pods.get(workload, {}).get(slot)
                if pod is not None and pod.node == node:
                    self.view.release_uncharged(pod)
            return int(self.shape().slots[row]) > 0

    def devices(self, row: int) -> tuple[Share, ...]:
        placer = Placer(self.view, self.book, self.active, packs=True)
        (placed,) = placer.put(row, self.want, 1)
        return placed.devices


class Extension:
    """Answers from the loop's live picture."""

    def __init__(self, loop: SchedulingLoop, cache: ClusterCache) -> None:
        self._loop, self._cache = loop, cache
        self._promised: dict[str, Pod] = {}  # bound, and not in the picture yet

    async def why_not(self, own: str, want: Request, nodes: Sequence[str]) -> dict[str, str]:
        """The nodes that will not do, each with its reason."""

        def question(look: Look) -> dict[str, str]:
            state, rows = look.shape(), look.view.nodes.row
            return {name: _why_not(look, name) for name in nodes if name not in rows or state.slots[rows[name]] <= 0}

        return await self._ask(own, want, question)

    async def scores(self, own: str, want: Request, nodes: Sequence[str], top: int) -> dict[str, int]:
        """From 0 to `top`, the best of them first; where its GPUs are not free, 0."""

        def question(look: Look) -> dict[str, int]:
            state, rows = look.shape(), look.view.nodes.row
            found = {
                name: int(state.score[rows[name]]) for name in nodes if name in rows and state.slots[rows[name]] > 0
            }
            low, high = min(found.values(), default=0), max(found.values(), default=0)
            spread = max(1, high - low)
            return {name: (found[name] - low) * top // spread if name in found else 0 for name in nodes}

        return await self._ask(own, want, question)

    async def helped(self, own: str, want: Request, victims: dict[str, list[str]]) -> list[str]:
        """The nodes on which its GPUs are free once these pods are gone."""
        places = self._places({uid for uids in victims.values() for uid in uids})

        def question(look: Look) -> list[str]:
            return [
                node for node, uids in victims.items() if look.fits_without(node, [places.get(uid) for uid in uids])
            ]

        return await self._ask(own, want, question)

    async def choose(self, own: str, want: Request, node: str) -> tuple[Share, ...] | str:
        """The devices that it gets there, or why it gets none."""

        def question(look: Look) -> tuple[Share, ...] | str:
            row = look.view.nodes.row.get(node)
            if row is None or look.shape().slots[row] <= 0:
                return f"node {node}: {_why_not(look, node)}"
            return look.devices(row)

        return await self._ask(own, want, question)

    def promise(self, pod: Pod) -> None:
        """It is bound, and holds its devices from now on."""
        self._promised[pod.workload] = pod

    async def _ask(self, own: str, want: Request, question: Callable[[Look], T]) -> T:
        def asked(state: ClusterState) -> T:
            look = Look(state, self._loop.cluster.now_s(), self._loop, want)
            for pod in state.pods.get(own, {}).values():
                look.view.release_uncharged(pod)  # space that is kept for it does not stand in its way
            for name, pod in list(self._promised.items()):
                if name in state.pods or name not in self._cache.names.unit_of:
                    del self._promised[name]
                elif name != own:
                    _hold(look.view, pod)
            return question(look)

        return await self._loop.ask(asked)

    def _places(self, uids: set[str]) -> dict[str, tuple[str, str]]:
        """By UID: the workload of a pod, and its place there."""
        found = {}
        for pod in self._cache.pods.values():
            workload = self._cache.workload_of(pod.key) if pod.uid in uids else None
            if workload is not None:
                slots = self._cache.pods_by_slot(workload)
                found[pod.uid] = (workload, next((slot for slot, each in slots.items() if each.uid == pod.uid), PLACE))
        return found


def only_gpus(want: Request) -> Request:
    """The part of a request that kube-scheduler cannot judge."""
    return Request(
        gpus=want.gpus,
        gpu_milli=want.gpu_milli,
        gpu_mib=want.gpu_mib,
        gpu_models=want.gpu_models,
        device_mib=want.device_mib,
        partition=want.partition,
        isolation=want.isolation,
        least_grade=want.least_grade,
        node_rules=tuple(rule for rule in want.node_rules if rule.key.startswith((SHARING_LABEL, VENDOR_LABEL))),
        tolerations=ANY_TAINT,
    )


def _why_not(look: Look, name: str) -> str:
    row = look.view.nodes.row.get(name)
    if row is None:
        return "Kaiwo does not know this node yet"
    node, want = look.view.nodes.nodes[row], look.want
    if not obeys(node.labels, want.node_rules, ()):
        is_share = any(rule.key == SHARING_LABEL for rule in want.node_rules)
        return "no agent serves shares of GPUs here" if is_share else "it has no GPU of the wanted vendor"
    return f"it has not the GPUs free that the pod asks for ({_asked(want)})"


def _asked(want: Request) -> str:
    if want.is_fraction:
        return f"{want.gpu_milli / 1000:g} of {want.gpus}"
    if want.is_memory:
        return f"{want.gpu_mib} MiB on {want.gpus}"
    return f"{want.gpus} {want.partition}".strip()


def _hold(view: WorkingCopy, pod: Pod) -> None:
    """Its devices are taken, though the picture does not say so yet."""
    row = view.nodes.row.get(pod.node)
    if row is None:
        return
    column = view.nodes.column[row]
    shares = [share for share in pod.devices if share.gpu in column]
    columns = np.array([column[share.gpu] for share in shares], np.intp)
    milli = np.array([share.milli for share in shares], np.int64)
    mib = np.array([share.mib for share in shares], np.int64)
    view.take(row, 1, Request(), columns, milli, mib)
