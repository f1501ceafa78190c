"""Kubelet device plugins (v1beta1): one gRPC server for each resource, and their registration with the kubelet.

Never: delays a change of devices; accepts names that it did not offer; lets open streams block calls; registers twice
       with the same kubelet.
"""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import msgspec

from kaiwo.devices.agent.kubelet.allocator import Allocator
from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE
from kaiwo.devices.agent.kubelet.container_spec import ContainerSpec
from kaiwo.devices.agent.kubelet.grpc_messages import DEVICE_PLUGIN, PLUGIN, rpc_error_text
from kaiwo.devices.inventory import Health, Inventory, Partition, PhysicalGpu
from kaiwo.devices.sharing.share_types import Grant
from kaiwo.model.errors import ClusterError, KaiwoError
from kaiwo.model.gpus.gpu_models import RESOURCE_VENDORS

FOLDER = "/var/lib/kubelet/device-plugins"
KUBELET = "kubelet.sock"
REGISTER = f"/{DEVICE_PLUGIN}.Registration/Register"
TIMEOUT_S = 5.0
NO_GPU = "this node has no GPU to offer to the kubelet yet"
SERVICE = f"{DEVICE_PLUGIN}.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
# Each open stream occupies a thread. A kubelet needs one stream, and a restarted kubelet gets a new server.
MAX_STREAMS, CALLS = 6, 6
RESOURCES = {vendor: resource for resource, vendor in RESOURCE_VENDORS.items()}
SHARES_A_DEVICE = 100  # the smallest share is 1/100, so the kubelet never runs out before the scheduler
NAME_CHARS, MAX_NAMES = 60, 3  # limits of names in an error, since a client may send long ones
CHECK_S = 1.0  # how soon a stream notices that its kubelet is gone


class OfferedDevice(msgspec.Struct, frozen=True):
    name: str
    is_healthy: bool
    numa: int | None = None


class DevicePlugin:
    def __init__(self, resource: str, allocator: Allocator, spec: Callable[[Grant], ContainerSpec]) -> None:
        self.resource = resource
        self._allocator, self._spec = allocator, spec
        self._offers: tuple[OfferedDevice, ...] = ()
        self._version = 0
        self._changed = threading.Condition()
        self._server: Any = None
        self._is_closed = False
        self._streams: set[Any] = set()  # open streams

    def offer(self, offers: tuple[OfferedDevice, ...]) -> None:
        with self._changed:
            if offers != self._offers:
                self._offers, self._version = offers, self._version + 1
                self._changed.notify_all()

    def serve(self, socket: str) -> None:
        """Listen on a socket, removing one that an earlier agent left."""
        self.stop()
        self._is_closed, self._streams = False, set()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket)
        self._server = grpc.server(ThreadPoolExecutor(MAX_STREAMS + CALLS, thread_name_prefix=self.resource))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._methods()),))
        self._server.add_insecure_port(f"unix://{socket}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            self._server.stop(0.5).wait()
            self._server = None

    def _methods(self) -> Mapping[str, Any]:
        return {
            "GetDevicePluginOptions": _unary(lambda *_: plugin_options(), "Empty"),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._watch, PLUGIN["Empty"].FromString, PLUGIN["ListAndWatchResponse"].SerializeToString
            ),
            "GetPreferredAllocation": _unary(self._prefer, "PreferredAllocationRequest"),
            "Allocate": _unary(self._allocate, "AllocateRequest"),
            "PreStartContainer": _unary(self._pre_start, "PreStartContainerRequest"),
        }

    def _watch(self, _: Any, context: Any) -> Iterator[Any]:
        self._add_stream(context)
        seen = -1
        while context.is_active():
            with self._changed:
                if self._is_closed:
                    return
                if seen == self._version:
                    self._changed.wait(CHECK_S)
                    continue
                seen, offers = self._version, self._offers
            yield PLUGIN["ListAndWatchResponse"](devices=[_device(one) for one in offers])

    def _add_stream(self, context: Any) -> None:
        """Register a stream until its client is gone; refuse it if there are too many."""
        with self._changed:
            is_full = len(self._streams) >= MAX_STREAMS
            if not is_full:
                self._streams.add(context)
        if is_full:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"kaiwo: {MAX_STREAMS} streams of {self.resource} are open, but a kubelet needs only one; close some",
            )
        if not context.add_callback(lambda: self._remove_stream(context)):  # the stream has ended already
            self._remove_stream(context)

    def _remove_stream(self, context: Any) -> None:
        with self._changed:
            self._streams.discard(context)
            self._changed.notify_all()

    def _prefer(self, request: Any, _: Any) -> Any:
        answers = [
            PLUGIN["ContainerPreferredAllocationResponse"](
                deviceIDs=self._allocator.prefer(
                    self.resource, list(one.available_deviceIDs), list(one.must_include_deviceIDs), one.allocation_size
                )
            )
            for one in request.container_requests
        ]
        return PLUGIN["PreferredAllocationResponse"](container_responses=answers)

    def _allocate(self, request: Any, context: Any) -> Any:
        requests = [list(one.devices_ids) for one in request.container_requests]
        if problem := self._name_problem([name for names in requests for name in names]):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"kaiwo: {problem}")
        try:
            grants = self._allocator.allocate(self.resource, requests)
            answers = [allocate_response(self._spec(grant), grant) for grant in grants]
        except (KaiwoError, OSError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"kaiwo: {error}")
        return PLUGIN["AllocateResponse"](container_responses=answers)

    def _name_problem(self, names: list[str]) -> str:
        offered = {one.name for one in self._offers}
        unknown = [repr(name[:NAME_CHARS]) for name in dict.fromkeys(names) if name not in offered]
        if unknown:
            more = f" and {len(unknown) - MAX_NAMES} more" if len(unknown) > MAX_NAMES else ""
            return f"{', '.join(unknown[:MAX_NAMES])}{more}: not offered as {self.resource} by this node"
        twice = [repr(name) for name, times in Counter(names).items() if times > 1]
        return f"{', '.join(twice[:MAX_NAMES])}: requested twice in one call" if twice else ""

    def _pre_start(self, request: Any, context: Any) -> Any:
        try:
            self._allocator.verify(self.resource, list(request.devices_ids))
        except (KaiwoError, OSError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"kaiwo: {error}")
        return PLUGIN["PreStartContainerResponse"]()


def plugin_options() -> Any:
    return PLUGIN["DevicePluginOptions"](pre_start_required=True, get_preferred_allocation_available=True)


def _unary(method: Callable[[Any, Any], Any], request: str) -> Any:
    # Responses serialise themselves, so their classes need not be named.
    return grpc.unary_unary_rpc_method_handler(
        method, PLUGIN[request].FromString, lambda message: message.SerializeToString()
    )


def _device(offer: OfferedDevice) -> Any:
    device = PLUGIN["Device"](ID=offer.name, health=HEALTHY if offer.is_healthy else UNHEALTHY)
    if offer.numa is not None:
        device.topology.nodes.add(ID=offer.numa)
    return device


def allocate_response(spec: ContainerSpec, grant: Grant) -> Any:
    return PLUGIN["ContainerAllocateResponse"](
        envs=spec.environment,
        mounts=[PLUGIN["Mount"](container_path=path, host_path=path, read_only=True) for path in spec.folders],
        devices=[PLUGIN["DeviceSpec"](container_path=path, host_path=path, permissions="rw") for path in spec.nodes],
        annotations={"kaiwo.ai/gpu-grade": grant.grade, **({"kaiwo.ai/gpu-note": grant.note} if grant.note else {})},
    )


def offered_devices(inventory: Inventory, health: Mapping[str, Health]) -> dict[str, tuple[OfferedDevice, ...]]:
    """The devices to offer, by resource: whole devices, and SHARES_A_DEVICE shares of each."""
    whole: dict[str, list[OfferedDevice]] = {}
    shares: list[OfferedDevice] = []
    for gpu in inventory.gpus:
        resource = RESOURCES.get(gpu.vendor)
        if resource is None:
            continue
        now = health.get(gpu.id, gpu.health)
        for part in gpu.partitions or (gpu,):
            is_well = is_usable(gpu, part, now)
            whole.setdefault(resource, []).append(OfferedDevice(part.id, is_well, gpu.numa))
            shares += [OfferedDevice(f"{part.id}::{share}", is_well, gpu.numa) for share in range(SHARES_A_DEVICE)]
    found = {resource: tuple(offers) for resource, offers in whole.items()}
    return {**found, SHARE_RESOURCE: tuple(shares)} if shares else found


def is_usable(gpu: PhysicalGpu, part: PhysicalGpu | Partition, now: Health) -> bool:
    """True if it can run pods, as the scheduler sees it: healthy, on a GPU that has not failed."""
    return now == "healthy" if part is gpu else part.health == "healthy" and now != "failed"


def why_unusable(inventory: Inventory, health: Mapping[str, Health], ids: Collection[str]) -> str:
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            if part.id in ids and not is_usable(gpu, part, health.get(gpu.id, gpu.health)):
                return f"{part.id} is no longer healthy (see kaiwo gpus); delete the pod to have it scheduled elsewhere"
    return ""


class PluginRegistration:
    def __init__(self, folder: str = FOLDER) -> None:
        self.plugins: Sequence[DevicePlugin] = ()  # may grow
        self.folder = folder
        self.times = 0
        self._known: tuple[int, int] | None = None  # the kubelet's socket at registration
        self._registered: set[str] = set()  # resources registered with this kubelet

    def ensure_registered(self) -> str:
        """Register what is missing; return what was done or is wrong, or empty."""
        kubelet = self._kubelet()
        if kubelet is None:
            self._known = None
            return f"there is no kubelet at {self.folder}"
        if not self.plugins:
            return NO_GPU
        if kubelet != self._known:
            self._known, self._registered = kubelet, set()
        due = [plugin for plugin in self.plugins if not self._is_registered(plugin)]
        if not due:
            return ""
        try:
            for plugin in due:
                plugin.serve(self._socket(plugin))
                self._register(plugin)
                self._registered.add(plugin.resource)
        except (ClusterError, OSError, RuntimeError) as error:
            return f"the kubelet rejected the device plugin: {error}"
        self.times += 1
        again = f", time {self.times}" if self.times > 1 else ""
        return f"registered {', '.join(plugin.resource for plugin in due)} with the kubelet{again}"

    def close(self) -> None:
        for plugin in self.plugins:
            plugin.stop()
            if os.path.exists(self._socket(plugin)):
                os.unlink(self._socket(plugin))

    def _is_registered(self, plugin: DevicePlugin) -> bool:
        return plugin.resource in self._registered and os.path.exists(self._socket(plugin))

    def _register(self, plugin: DevicePlugin) -> None:
        request = PLUGIN["RegisterRequest"](
            version=DEVICE_PLUGIN,
            endpoint=os.path.basename(self._socket(plugin)),
            resource_name=plugin.resource,
            options=plugin_options(),
        )
        with grpc.insecure_channel(f"unix://{os.path.join(self.folder, KUBELET)}") as channel:
            register = channel.unary_unary(
                REGISTER,
                request_serializer=PLUGIN["RegisterRequest"].SerializeToString,
                response_deserializer=PLUGIN["Empty"].FromString,
            )
            try:
                register(request, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                raise ClusterError(rpc_error_text(error)) from error

    def _kubelet(self) -> tuple[int, int] | None:
        try:
            found = os.stat(os.path.join(self.folder, KUBELET))
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns

    def _socket(self, plugin: DevicePlugin) -> str:
        return os.path.join(self.folder, f"kaiwo-{plugin.resource.replace('/', '_')}.sock")
