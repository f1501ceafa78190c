"""One device plugin: a resource that the kubelet hands out, served over a socket of its own.

In:    devices with their health; the allocator.   Out: the v1beta1 service.
Never: keeps the kubelet waiting for a change: it hears of one at once, and of nothing otherwise; takes names that it
       did not offer; lets streams that are held open keep calls from being answered.

Also: What the kubelet is offered: whole devices by the vendors' resources, and places for shares.
"""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import msgspec

from kaiwo.devices.agent.kubelet.allocator import Allocator
from kaiwo.devices.agent.kubelet.container_spec import ContainerSpec
from kaiwo.devices.agent.kubelet.grpc_messages import DEVICE_PLUGIN, PLUGIN
from kaiwo.devices.agent.kubelet.pod_annotations import SHARE_RESOURCE
from kaiwo.devices.inventory import Health, Inventory, Partition, PhysicalGpu
from kaiwo.devices.sharing import Grant
from kaiwo.model.errors import KaiwoError

SERVICE = f"{DEVICE_PLUGIN}.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
# A stream holds a thread as long as it lasts. A kubelet holds one, and one that starts anew gets a new server.
MOST_STREAMS, CALLS = 6, 6
NAME_CHARS, MOST_NAMES = 60, 3  # of names in a message: what somebody sends may be long
CHECK_S = 1.0  # how soon a stream notices that its kubelet has gone


class OfferedDevice(msgspec.Struct, frozen=True):
    """One name that the kubelet may hand out."""

    name: str
    is_healthy: bool
    numa: int | None = None


class DevicePlugin:
    """A resource, its offers, and the server on its socket."""

    def __init__(self, resource: str, allocator: Allocator, spec: Callable[[Grant], ContainerSpec]) -> None:
        self.resource = resource
        self._allocator, self._spec = allocator, spec
        self._offers: tuple[OfferedDevice, ...] = ()
        self._version = 0
        self._changed = threading.Condition()
        self._server: Any = None
        self._is_closed = False
        self._streams: set[Any] = set()  # that are open

    def offer(self, offers: tuple[OfferedDevice, ...]) -> None:
        """What there is now; the kubelet hears of it when it is not what there was."""
        with self._changed:
            if offers != self._offers:
                self._offers, self._version = offers, self._version + 1
                self._changed.notify_all()

    def serve(self, socket: str) -> None:
        """Listen on a socket; one that a former agent left is removed."""
        self.stop()
        self._is_closed, self._streams = False, set()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket)
        self._server = grpc.server(ThreadPoolExecutor(MOST_STREAMS + CALLS, thread_name_prefix=self.resource))
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
            "GetDevicePluginOptions": _unary(self._options, "Empty"),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._watch, PLUGIN["Empty"].FromString, PLUGIN["ListAndWatchResponse"].SerializeToString
            ),
            "GetPreferredAllocation": _unary(self._prefer, "PreferredAllocationRequest"),
            "Allocate": _unary(self._allocate, "AllocateRequest"),
            "PreStartContainer": _unary(self._pre_start, "PreStartContainerRequest"),
        }

    def _options(self, _: Any, __: Any) -> Any:
        return plugin_options()

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
        """One more stream, unless there are too many; it is forgotten as soon as the other side has gone."""
        with self._changed:
            is_full = len(self._streams) >= MOST_STREAMS
            if not is_full:
                self._streams.add(context)
        if is_full:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"kaiwo: {MOST_STREAMS} streams of {self.resource} are open, and a kubelet needs one; close some",
            )
        if not context.add_callback(lambda: self._remove_stream(context)):  # it has ended already
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
            answers = [_allocate_response(self._spec(grant), grant) for grant in grants]
        except (KaiwoError, OSError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"kaiwo: {error}")
        return PLUGIN["AllocateResponse"](container_responses=answers)

    def _name_problem(self, names: list[str]) -> str:
        """Why nobody can be given these names; empty when somebody can."""
        offered = {one.name for one in self._offers}
        unknown = [repr(name[:NAME_CHARS]) for name in dict.fromkeys(names) if name not in offered]
        if unknown:
            more = f" and {len(unknown) - MOST_NAMES} more" if len(unknown) > MOST_NAMES else ""
            return f"{', '.join(unknown[:MOST_NAMES])}{more}: not offered as {self.resource} by this node"
        twice = [repr(name) for name, times in Counter(names).items() if times > 1]
        return f"{', '.join(twice[:MOST_NAMES])}: asked for twice in one call" if twice else ""

    def _pre_start(self, request: Any, context: Any) -> Any:
        try:
            self._allocator.verify(self.resource, list(request.devices_ids))
        except (KaiwoError, OSError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"kaiwo: {error}")
        return PLUGIN["PreStartContainerResponse"]()


def plugin_options() -> Any:
    """What the kubelet shall call us for."""
    return PLUGIN["DevicePluginOptions"](pre_start_required=True, get_preferred_allocation_available=True)


def _unary(method: Callable[[Any, Any], Any], request: str) -> Any:
    # Each answer knows how to write itself, so the answers' classes need not be named.
    return grpc.unary_unary_rpc_method_handler(
        method, PLUGIN[request].FromString, lambda message: message.SerializeToString()
    )


def _device(offer: OfferedDevice) -> Any:
    device = PLUGIN["Device"](ID=offer.name, health=HEALTHY if offer.is_healthy else UNHEALTHY)
    if offer.numa is not None:
        device.topology.nodes.add(ID=offer.numa)
    return device


def _allocate_response(spec: ContainerSpec, grant: Grant) -> Any:
    return PLUGIN["ContainerAllocateResponse"](
        envs=spec.environment,
        mounts=[PLUGIN["Mount"](container_path=path, host_path=path) for path in spec.folders],
        devices=[PLUGIN["DeviceSpec"](container_path=path, host_path=path, permissions="rw") for path in spec.nodes],
        annotations={"kaiwo.ai/gpu-grade": grant.grade, **({"kaiwo.ai/gpu-note": grant.note} if grant.note else {})},
    )


RESOURCES = {"amd": "amd.com/gpu", "nvidia": "nvidia.com/gpu"}
SHARES_A_DEVICE = 100  # the smallest share is a hundredth, so the kubelet never runs out before the scheduler does


def offered_devices(inventory: Inventory, health: Mapping[str, Health]) -> dict[str, tuple[OfferedDevice, ...]]:
    """Every device of a vendor that the kubelet knows."""
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
    """For work, as the scheduler sees it: healthy itself, on a GPU that has not failed."""
    return now == "healthy" if part is gpu else part.health == "healthy" and now != "failed"


def why_unusable(inventory: Inventory, health: Mapping[str, Health], ids: Collection[str]) -> str:
    """The first of these devices that takes no new work, in words; empty when all do."""
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            if part.id in ids and not is_usable(gpu, part, health.get(gpu.id, gpu.health)):
                return f"{part.id} is not healthy any more (kaiwo gpus says why); delete the pod to have it elsewhere"
    return ""
