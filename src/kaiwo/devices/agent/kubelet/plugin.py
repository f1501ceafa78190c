"""One device plugin: a resource that the kubelet hands out, served over a socket of its own.

In:    devices with their health; the allocator.   Out: the v1beta1 service.
Never: keeps the kubelet waiting for a change: it hears of one at once, and of nothing otherwise.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import msgspec

from kaiwo.devices.agent.kubelet.allocator import Allocator
from kaiwo.devices.agent.kubelet.messages import DEVICE_PLUGIN, PLUGIN
from kaiwo.devices.agent.kubelet.specs import ContainerSpec
from kaiwo.devices.sharing import Grant
from kaiwo.model.errors import KaiwoError

SERVICE = f"{DEVICE_PLUGIN}.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
WORKERS = 6  # two streams during a kubelet's restart, and room for calls
LOOK_S = 1.0  # how soon a stream notices that its kubelet has gone


class Offer(msgspec.Struct, frozen=True):
    """One name that the kubelet may hand out."""

    name: str
    is_healthy: bool
    numa: int | None = None


class Plugin:
    """A resource, its offers, and the server on its socket."""

    def __init__(self, resource: str, allocator: Allocator, spec: Callable[[Grant], ContainerSpec]) -> None:
        self.resource = resource
        self._allocator, self._spec = allocator, spec
        self._offers: tuple[Offer, ...] = ()
        self._version = 0
        self._changed = threading.Condition()
        self._server: Any = None
        self._is_closed = False

    def offer(self, offers: tuple[Offer, ...]) -> None:
        """What there is now; the kubelet hears of it when it is not what there was."""
        with self._changed:
            if offers != self._offers:
                self._offers, self._version = offers, self._version + 1
                self._changed.notify_all()

    def serve(self, socket: str) -> None:
        """Listen on a socket; one that a former agent left is removed."""
        self.stop()
        self._is_closed = False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket)
        self._server = grpc.server(ThreadPoolExecutor(WORKERS, thread_name_prefix=self.resource))
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
        return options()

    def _watch(self, _: Any, context: Any) -> Iterator[Any]:
        seen = -1
        while context.is_active():
            with self._changed:
                if self._is_closed:
                    return
                if seen == self._version:
                    self._changed.wait(LOOK_S)
                    continue
                seen, offers = self._version, self._offers
            yield PLUGIN["ListAndWatchResponse"](devices=[_device(one) for one in offers])

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
        try:
            grants = [
                self._allocator.allocate(self.resource, list(one.devices_ids)) for one in request.container_requests
            ]
        except (KaiwoError, OSError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"kaiwo: {error}")
        return PLUGIN["AllocateResponse"](container_responses=[_answer(self._spec(grant), grant) for grant in grants])

    def _pre_start(self, request: Any, context: Any) -> Any:
        try:
            self._allocator.verify(self.resource, list(request.devices_ids))
        except (KaiwoError, OSError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"kaiwo: {error}")
        return PLUGIN["PreStartContainerResponse"]()


def options() -> Any:
    """What the kubelet shall call us for."""
    return PLUGIN["DevicePluginOptions"](pre_start_required=True, get_preferred_allocation_available=True)


def _unary(method: Callable[[Any, Any], Any], request: str) -> Any:
    # Each answer knows how to write itself, so the answers' classes need not be named.
    return grpc.unary_unary_rpc_method_handler(
        method, PLUGIN[request].FromString, lambda message: message.SerializeToString()
    )


def _device(offer: Offer) -> Any:
    device = PLUGIN["Device"](ID=offer.name, health=HEALTHY if offer.is_healthy else UNHEALTHY)
    if offer.numa is not None:
        device.topology.nodes.add(ID=offer.numa)
    return device


def _answer(spec: ContainerSpec, grant: Grant) -> Any:
    return PLUGIN["ContainerAllocateResponse"](
        envs=spec.environment,
        mounts=[PLUGIN["Mount"](container_path=path, host_path=path) for path in spec.folders],
        devices=[PLUGIN["DeviceSpec"](container_path=path, host_path=path, permissions="rw") for path in spec.nodes],
        annotations={"kaiwo.ai/gpu-grade": grant.grade, **({"kaiwo.ai/gpu-note": grant.note} if grant.note else {})},
    )
