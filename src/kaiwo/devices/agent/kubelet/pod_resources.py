"""Who really has which devices, from the kubelet's pod-resources API.

In:    the kubelet's socket.   Out: the container that holds a set of device names.
"""

from typing import Any

import grpc
import msgspec

from kaiwo.devices.agent.kubelet.messages import RESOURCES
from kaiwo.model.errors import ClusterError

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
LIST = "/v1.PodResourcesLister/List"
PATIENCE_S = 3.0
MOST_BYTES = 64 << 20


class Holder(msgspec.Struct, frozen=True):
    """A container that has devices, in the kubelet's words."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


class PodResources:
    """Asks the kubelet; a new connection each time, for it is asked once a container."""

    def __init__(self, socket: str = SOCKET) -> None:
        self.socket = socket

    def holders(self) -> list[Holder]:
        """Every container with devices; ClusterError when the kubelet does not answer."""
        options = [("grpc.max_receive_message_length", MOST_BYTES)]
        with grpc.insecure_channel(f"unix://{self.socket}", options) as channel:
            ask = channel.unary_unary(
                LIST,
                request_serializer=RESOURCES["ListPodResourcesRequest"].SerializeToString,
                response_deserializer=RESOURCES["ListPodResourcesResponse"].FromString,
            )
            try:
                answer = ask(RESOURCES["ListPodResourcesRequest"](), timeout=PATIENCE_S)
            except grpc.RpcError as error:
                raise ClusterError(f"the kubelet does not tell who has its devices: {_words(error)}") from error
        return [
            Holder(pod.namespace, pod.name, container.name, devices.resource_name, tuple(sorted(devices.device_ids)))
            for pod in answer.pod_resources
            for container in pod.containers
            for devices in container.devices
        ]

    def holder_of(self, resource: str, ids: list[str]) -> Holder | None:
        """The container that has exactly, or among others, these."""
        wanted = set(ids)
        found = [one for one in self.holders() if one.resource == resource and wanted <= set(one.ids)]
        return found[0] if len(found) == 1 else None


def _words(error: Any) -> str:
    return getattr(error, "details", lambda: "")() or type(error).__name__
