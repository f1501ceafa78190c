"""Who really has which devices, from the kubelet's pod-resources API.

In:    the kubelet's socket.   Out: the container that holds a set of device names.

A kubelet writes an entry for every device, so a container's entries are put together here. It lists the containers that
stay, sidecars too (from 1.29 on), and never a start-up container: the names of that one stand under those of its pod
that were given them after it.
"""

from collections.abc import Iterable
from typing import Any

import grpc
import msgspec

from kaiwo.devices.agent.kubelet.grpc_messages import RESOURCES
from kaiwo.model.errors import ClusterError

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
LIST = "/v1.PodResourcesLister/List"
TIMEOUT_S = 3.0
MOST_BYTES = 64 << 20


class DeviceHolder(msgspec.Struct, frozen=True):
    """A container that has devices, in the kubelet's words."""

    namespace: str
    pod: str
    container: str  # empty: one of the pod's that is not listed
    resource: str
    ids: tuple[str, ...]


class PodResources:
    """Asks the kubelet; a new connection each time, for it is asked once a container."""

    def __init__(self, socket: str = SOCKET) -> None:
        self.socket = socket

    def holders(self) -> list[DeviceHolder]:
        """Every container with devices; ClusterError when the kubelet does not answer."""
        options = [("grpc.max_receive_message_length", MOST_BYTES)]
        with grpc.insecure_channel(f"unix://{self.socket}", options) as channel:
            ask = channel.unary_unary(
                LIST,
                request_serializer=RESOURCES["ListPodResourcesRequest"].SerializeToString,
                response_deserializer=RESOURCES["ListPodResourcesResponse"].FromString,
            )
            try:
                answer = ask(RESOURCES["ListPodResourcesRequest"](), timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                raise ClusterError(f"the kubelet does not tell who has its devices: {_error_text(error)}") from error
        found: dict[tuple[str, str, str, str], set[str]] = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                for devices in container.devices:
                    key = (pod.namespace, pod.name, container.name, devices.resource_name)
                    found.setdefault(key, set()).update(devices.device_ids)
        return [DeviceHolder(*key, tuple(sorted(ids))) for key, ids in found.items()]


def find_holder(holders: Iterable[DeviceHolder], resource: str, ids: Iterable[str]) -> DeviceHolder | None:
    """The container that has exactly these, else the pod that has some of them; None when no pod alone has."""
    wanted = set(ids)
    found = [one for one in holders if one.resource == resource and wanted & set(one.ids)]
    if len({(one.namespace, one.pod) for one in found}) != 1:
        return None
    exact = [one for one in found if set(one.ids) == wanted]
    return exact[0] if exact else DeviceHolder(found[0].namespace, found[0].pod, "", resource, tuple(sorted(wanted)))


def _error_text(error: Any) -> str:
    return getattr(error, "details", lambda: "")() or type(error).__name__
