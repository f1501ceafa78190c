"""Bind the volumes of pods that are about to start: claims that wait for their first consumer.

Chooses a volume for each claim, or writes the node for its provisioner, then waits until Kubernetes has bound them.
Each write names the version on which the choice was based, so a volume that changed meanwhile is not taken.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta, Wire
from kaiwo.clusters.kubernetes.volumes.claim_matching import SELECTED_NODE
from kaiwo.clusters.kubernetes.volumes.volume_cache import ClaimBinding, ReservedVolumes
from kaiwo.clusters.ledger import Misfit
from kaiwo.model.workload import Pod

BIND_S = 600.0  # a provisioner may take minutes; kube-scheduler waits as long
POLL_S = 0.05


class WrittenObject(Wire):
    metadata: Meta


_read_written = msgspec.json.Decoder(WrittenObject).decode


class VolumeBinder:
    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client, self._cache = client, cache
        self._reserved: dict[str, ReservedVolumes] = {}  # by UID of the pod
        self._written: dict[ClaimBinding, int] = {}  # the version of the object that has it

    def reserve(self, pods: Iterable[tuple[CachedPod, Pod]]) -> Misfit | None:
        """Choose volumes for all of these pods, or for none. Returns why that is not possible."""
        taken: list[CachedPod] = []
        before: list[CachedPod] = []
        for pod, place in pods:
            if not pod.spec.claims:
                continue
            labels = self._cache.nodes[place.node].labels
            refusal = self._cache.claim_users.refusal(pod, before)
            found = refusal or self._cache.volumes.reserve(pod.namespace, pod.spec.claims, place.node, labels)
            if isinstance(found, str):
                for each in taken:
                    self.release(each)
                return Misfit("" if refusal else place.node, found)
            before.append(pod)
            if found.steps:
                self._reserved[pod.uid] = found
                taken.append(pod)
        if taken:
            self._cache.touch_claim_users()  # other pods may have counted on the same volume
        return None

    def release(self, pod: CachedPod) -> None:
        taken = self._reserved.pop(pod.uid, None)
        if taken is not None:
            self._cache.volumes.release(taken.fresh)
            for step in taken.fresh:
                self._written.pop(step, None)
            self._cache.touch_claim_users()

    async def bind(self, pod: CachedPod, node: str) -> str:
        """Wait until every claim of the pod is bound. Returns why one cannot be bound; empty: all are bound."""
        taken = self._reserved.get(pod.uid)
        if taken is None:
            return ""
        why = await self._write(taken) or await self._wait(pod, taken, node)
        self.release(pod)  # bound volumes belong to their claims anyway
        return why

    async def _write(self, taken: ReservedVolumes) -> str:
        for step in taken.fresh:
            path, body = _volume_write(step) if step.volume else _claim_write(step)
            try:
                reason = f"binds the claim {step.claim[1]} of a pod that starts"
                answer = await self._client.patch(path, msgspec.json.encode(body), reason=reason)
                self._written[step] = int(_read_written(answer).metadata.resource_version)
            except (ApiError, UnreachableError) as error:
                return f"its volume claim {step.claim[1]}: {error.message}"
        return ""

    async def _wait(self, pod: CachedPod, taken: ReservedVolumes, node: str) -> str:
        volumes, until_s = self._cache.volumes, time.monotonic() + BIND_S
        while time.monotonic() < until_s:
            known, place = self._cache.pods.get(pod.key), self._cache.nodes.get(node)
            if known is None or known.uid != pod.uid:
                return ""  # it is gone: the Binding will fail
            states = [volumes.binding_state(step, place.labels if place else {}) for step in taken.steps]
            if why := next((each for each in states if each), ""):
                return why
            if all(each == "" for each in states):
                return ""
            for step in taken.steps:
                if step.node and step in self._written and volumes.is_undone(step, self._written[step]):
                    return f"no volume could be provisioned on node {node} for its claim {step.claim[1]}"
            await asyncio.sleep(POLL_S)
        return f"its volume claims were not bound within {BIND_S:.0f} s"


def _volume_write(step: ClaimBinding) -> tuple[str, dict[str, Any]]:
    """The same write as the volume controller's, so that it releases the volume together with the claim."""
    namespace, name = step.claim
    holder = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    annotations = {"pv.kubernetes.io/bound-by-controller": "yes"}
    return f"/api/v1/persistentvolumes/{step.volume}", {
        "metadata": {"resourceVersion": step.version, "annotations": annotations},
        "spec": {"claimRef": holder | {"uid": step.uid}},
    }


def _claim_write(step: ClaimBinding) -> tuple[str, dict[str, Any]]:
    namespace, name = step.claim
    meta = {"uid": step.uid, "resourceVersion": step.version, "annotations": {SELECTED_NODE: step.node}}
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}", {"metadata": meta}
