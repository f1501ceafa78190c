"""Read which container has which devices, from the kubelet's pod-resources API.

The kubelet has an entry for every device, so the entries of a container are merged here. It lists long-running
containers, including sidecars (from 1.29 on), but no init containers: their devices are listed under the containers
of the pod that use them afterwards.
"""

from collections.abc import Iterable

import grpc
import msgspec

from kaiwo.devices.agent.kubelet.grpc_messages import RESOURCES, rpc_error_text
from kaiwo.model.errors import ClusterError

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
LIST = "/v1.PodResourcesLister/List"
TIMEOUT_S = 3.0
MAX_BYTES = 64 << 20


class DeviceHolder(msgspec.Struct, frozen=True):
    namespace: str
    pod: str
    container: str  # empty: an unlisted container of the pod
    resource: str
    ids: tuple[str, ...]

    @property
    def pod_key(self) -> tuple[str, str]:
        return self.namespace, self.pod


class PodResources:
    def __init__(self, socket: str = SOCKET) -> None:
        self.socket = socket

    def holders(self) -> list[DeviceHolder]:
        """Every container with devices; ClusterError if the kubelet does not answer."""
        options = [("grpc.max_receive_message_length", MAX_BYTES)]
        with grpc.insecure_channel(f"unix://{self.socket}", options) as channel:
            ask = channel.unary_unary(
                LIST,
                request_serializer=RESOURCES["ListPodResourcesRequest"].SerializeToString,
                response_deserializer=RESOURCES["ListPodResourcesResponse"].FromString,
            )
            try:
                answer = ask(RESOURCES["ListPodResourcesRequest"](), timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                raise ClusterError(f"the kubelet did not list its pod resources: {rpc_error_text(error)}") from error
        found: dict[tuple[str, str, str, str], set[str]] = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                for devices in container.devices:
                    key = (pod.namespace, pod.name, container.name, devices.resource_name)
                    found.setdefault(key, set()).update(devices.device_ids)
        return [DeviceHolder(*key, tuple(sorted(ids))) for key, ids in found.items()]


def find_holder(holders: Iterable[DeviceHolder], resource: str, ids: Iterable[str]) -> DeviceHolder | None:
    """The container that has exactly these names, or else the only pod that has some of them, or None."""
    wanted = set(ids)
    found = [one for one in holders if one.resource == resource and wanted & set(one.ids)]
    if len({one.pod_key for one in found}) != 1:
        return None
    exact = [one for one in found if set(one.ids) == wanted]
    return exact[0] if exact else DeviceHolder(found[0].namespace, found[0].pod, "", resource, tuple(sorted(wanted)))
