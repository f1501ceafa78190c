"""Decide which grants on pods are honoured: those that Kaiwo's scheduler signed for this pod on this node.

A pod that this agent has served keeps exactly what the agent recorded, whatever its annotations say by now. So pods
from before there were signatures keep their devices. While the ConfigMap has no key, the scheduler does not sign yet,
and every grant of its pods is honoured, as it was before; only the scheduler's account can write that ConfigMap.
Never: honours a grant because the keys could not be read.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.bound_pods import GRANTED_DEVICES, BoundPod
from kaiwo.devices.agent.kubelet.kubernetes_api import KubernetesApi
from kaiwo.model.errors import ClusterError
from kaiwo.model.grant_signature import KEYS_FIELD, read_signature, signed_bytes

UNSIGNED = f"its {GRANTED_DEVICES} is not signed by Kaiwo's scheduler; remove it, and let Kaiwo schedule the pod"
OTHER_SCHEDULER = "its schedulerName is {}, not {}; let Kaiwo schedule it"
Asked = tuple[str, bytes]  # a signature and what it covers


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class GrantVerifier:
    """Not thread-safe: the allocator calls it under its lock or from `prefer`, which changes nothing."""

    def __init__(self, api: KubernetesApi, config_map: str, node: str, schedulers: Sequence[str]) -> None:
        namespace, _, name = config_map.partition("/")
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        self._api, self._node, self._schedulers = api, node, tuple(schedulers)
        self._keys: dict[str, Ed25519PublicKey] = {}
        self._known: dict[str, tuple[Asked, bool]] = {}  # by UID: verifying takes 0.1 ms

    def checked(self, pods: Sequence[BoundPod], served: Mapping[str, str]) -> list[BoundPod]:
        """The pods with what they may have, or with the reason why not. `served`: by UID, what they were given."""
        known = self._known = {pod.uid: self._known[pod.uid] for pod in pods if pod.uid in self._known}
        wanted = [pod for pod in pods if pod.assigned and not pod.is_over and pod.uid not in served]
        if any(self._needs_keys(pod) for pod in wanted):
            self._read_keys()
        refusals = {pod.uid: self._refusal(pod, known) for pod in wanted}
        return [
            replace(pod, assigned=served[pod.uid], refusal="")
            if pod.uid in served
            else replace(pod, refusal=refusals.get(pod.uid, ""))
            for pod in pods
        ]

    def _needs_keys(self, pod: BoundPod) -> bool:
        """A key may be new since they were read. A forged key id costs one more request for each Allocate."""
        signature = read_signature(pod.signature)
        return not self._keys if signature is None else signature.key_id not in self._keys

    def _read_keys(self) -> None:
        data = self._api.call("GET", self._path)  # ClusterError: nothing is honoured
        try:
            text = msgspec.json.decode(data, type=_ConfigMap).data.get(KEYS_FIELD, "{}")
            found = msgspec.json.decode(text, type=dict[str, str])
            self._keys = {key: Ed25519PublicKey.from_public_bytes(bytes.fromhex(value)) for key, value in found.items()}
        except (msgspec.MsgspecError, ValueError) as error:
            raise ClusterError(f"the keys of grants in {self._path} are invalid: {error}") from error

    def _refusal(self, pod: BoundPod, known: dict[str, tuple[Asked, bool]]) -> str:
        if pod.scheduler not in self._schedulers:
            return OTHER_SCHEDULER.format(pod.scheduler or "not set", " or ".join(self._schedulers))
        if not self._keys:
            return ""
        asked = (pod.signature, signed_bytes(pod.uid, self._node, pod.assigned))
        before = known.get(pod.uid)
        if before is None or before[0] != asked or not before[1]:
            before = known[pod.uid] = (asked, self._is_valid(*asked))
        return "" if before[1] else UNSIGNED

    def _is_valid(self, text: str, covered: bytes) -> bool:
        signature = read_signature(text)
        key = self._keys.get(signature.key_id) if signature else None
        if signature is None or key is None:
            return False
        try:
            key.verify(signature.value, covered)
        except InvalidSignature:
            return False
        return True
