"""Write the devices of this node to an annotation of its Node, from which the scheduler reads them.

Never: blocks the agent: a thread patches the Node when the devices or their health change.
"""

import threading
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from kaiwo.devices.agent.kubelet.kubernetes_api import KubernetesApi
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import Gpu

DEVICES_ANNOTATION = "kaiwo.ai/devices"
MERGE = "application/merge-patch+json"
RETRY_S = 5.0


class NodeAnnotationWriter:
    def __init__(self, api: KubernetesApi, node: str, log: Callable[[str, str], None]) -> None:
        self._api, self._log = api, log
        self._path = f"/api/v1/nodes/{quote(node, safe='')}"
        self._changed = threading.Condition()
        self._wanted: tuple[Gpu, ...] | None = None
        self._written: tuple[Gpu, ...] | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="node-annotation", daemon=True)
        self._thread.start()

    def write(self, gpus: tuple[Gpu, ...]) -> None:
        with self._changed:
            if gpus != self._wanted:
                self._wanted = gpus
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(RETRY_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._wanted != self._written)
                if self._is_closed:
                    return
                wanted = self._wanted
            note = {DEVICES_ANNOTATION: msgspec.json.encode(wanted).decode()}
            body = msgspec.json.encode({"metadata": {"annotations": note}})
            try:
                self._api.call("PATCH", self._path, body, MERGE)
                self._written = wanted
                self._log("node annotation", "")
            except ClusterError as error:
                self._log("node annotation", f"this node's devices can't be reported to the scheduler: {error}")
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, RETRY_S)
