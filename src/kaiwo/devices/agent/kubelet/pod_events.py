"""Write an Event on a pod that was refused devices, so that its owner sees why.

Never: delays the kubelet: a thread writes, and the same reason on the same pod is written once.
"""

import queue
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from kaiwo.devices.agent.kubelet.bound_pods import BoundPod
from kaiwo.devices.agent.kubelet.kubernetes_api import KubernetesApi
from kaiwo.model.errors import ClusterError

COMPONENT = "kaiwo-agent"
MAX_WAITING, MAX_WRITTEN, MAX_CHARACTERS = 100, 10_000, 1024


class PodEventWriter:
    def __init__(self, api: KubernetesApi, node: str, log: Callable[[str, str], None]) -> None:
        self._api, self._node, self._log = api, node, log
        self._waiting: queue.Queue[tuple[str, bytes]] = queue.Queue(MAX_WAITING)
        self._written: set[tuple[str, str]] = set()  # (pod uid, reason)
        self._thread: threading.Thread | None = None

    def write(self, pod: BoundPod, reason: str, sentence: str, related: BoundPod | None = None) -> None:
        key = (pod.uid, reason)
        if key in self._written or self._waiting.full():
            return
        if len(self._written) >= MAX_WRITTEN:
            self._written.clear()
        self._written.add(key)
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/events"
        self._waiting.put_nowait((path, self._event(pod, reason, sentence, related)))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pod-events", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            path, body = self._waiting.get()
            try:
                self._api.call("POST", path, body, "application/json")
                self._log("events", "")
            except ClusterError as error:
                self._log("events", f"the Event about a refused pod can't be written: {error}")

    def _event(self, pod: BoundPod, reason: str, sentence: str, related: BoundPod | None) -> bytes:
        now = datetime.now(UTC)
        seconds, micros = now.strftime("%Y-%m-%dT%H:%M:%SZ"), now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        event = {
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
            "involvedObject": _reference(pod),
            "type": "Warning", "reason": reason, "message": sentence[:MAX_CHARACTERS], "action": "Allocating",
            "eventTime": micros, "firstTimestamp": seconds, "lastTimestamp": seconds, "count": 1,
            "reportingComponent": COMPONENT, "reportingInstance": self._node[:128],
            "source": {"component": COMPONENT, "host": self._node},
        }  # fmt: skip
        return msgspec.json.encode(event | ({"related": _reference(related)} if related else {}))


def _reference(pod: BoundPod) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
