"""A kubelet and an API server, played over real sockets: what the agent speaks to on a node.

The kubelet keeps its own list of devices and gives them out as the real one does (pkg/kubelet of Kubernetes 1.29 and
later): it admits one pod after another, and all containers of a pod before the first of them starts; what a start-up
container had goes to those after it first; in its pod-resources API every device is an entry of its own, and containers
that stay are listed, sidecars among them, start-up containers never.
"""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc

from kaiwo.devices.agent.kubelet.bound_pods import GRANTED_DEVICES, encode_granted
from kaiwo.devices.agent.kubelet.grpc_messages import PLUGIN, RESOURCES
from kaiwo.model.gpus.gpu import Share
from tests.waiting import PATIENCE_S


class Kubelet:
    """One life of a kubelet. Another one in the same folder is a restart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins, self.pod_socket = folder / "device-plugins", folder / "pod-resources" / "kubelet.sock"
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.pod_socket.parent.mkdir(exist_ok=True)
        for path in self.plugins.glob("*.sock"):
            path.unlink()  # as a kubelet does when it starts
        self.pod_socket.unlink(missing_ok=True)
        self.registered: dict[str, str] = {}  # resource: endpoint
        self.registrations: list[str] = []
        self.devices: dict[str, dict[str, str]] = {}  # resource: name: health
        self.held: list[tuple[str, str, str, str, list[str]]] = []
        self.start_up: set[tuple[str, str, str]] = set()  # containers that end before the others begin
        self.is_mute = False
        self.changed = threading.Condition()
        self._channels: list[grpc.Channel] = []
        self._servers = [
            self._serve(self.plugins / "kubelet.sock", "v1beta1.Registration", "Register", self._register),
            self._serve(self.pod_socket, "v1.PodResourcesLister", "List", self._list),
        ]

    def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        for server in self._servers:
            server.stop(0).wait()

    def wait_for(self, what: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(what, PATIENCE_S), (self.registered, self.devices)

    def healthy(self, resource: str) -> list[str]:
        return [name for name, health in self.devices.get(resource, {}).items() if health == "Healthy"]

    def call(self, resource: str, method: str, request: Any, answer: str) -> Any:
        channel = grpc.insecure_channel(f"unix://{self.plugins / self.registered[resource]}")
        self._channels.append(channel)
        ask = channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=PLUGIN[answer].FromString,
        )
        return ask(request, timeout=PATIENCE_S)

    def free(self, resource: str) -> list[str]:
        taken = {name for *_, kind, names in self.held if kind == resource for name in names}
        return [name for name in self.healthy(resource) if name not in taken]

    def preferred(self, resource: str, count: int, reuse: tuple[str, ...] = ()) -> list[str]:
        one = PLUGIN["ContainerPreferredAllocationRequest"](
            available_deviceIDs=[*reuse, *self.free(resource)], must_include_deviceIDs=reuse, allocation_size=count
        )
        request = PLUGIN["PreferredAllocationRequest"](container_requests=[one])
        answer = self.call(resource, "GetPreferredAllocation", request, "PreferredAllocationResponse")
        return list(answer.container_responses[0].deviceIDs)

    def admit_pod(self, pod: dict[str, Any]) -> dict[str, tuple[list[str], Any]]:
        """All containers of a pod, in its order: names and what each is started with."""
        found: dict[str, tuple[list[str], Any]] = {}
        reuse: dict[str, list[str]] = {}
        place, spec = (pod["metadata"]["namespace"], pod["metadata"]["name"]), pod["spec"]
        for is_init, item in [
            *((True, one) for one in spec["initContainers"]),
            *((False, one) for one in spec["containers"]),
        ]:
            is_start_up = is_init and item.get("restartPolicy") != "Always"
            for resource in [name for name in item["resources"]["limits"] if name in self.registered]:
                old = reuse.setdefault(resource, [])
                count = int(item["resources"]["limits"][resource])
                names, answer = self.admit(*place, item["name"], resource, count, tuple(old[:count]), is_start_up)
                old[:] = sorted({*old, *names}) if is_start_up else [name for name in old if name not in names]
                found[item["name"]] = (names, answer)
        return found

    def admit(
        self,
        namespace: str,
        pod: str,
        container: str,
        resource: str,
        count: int,
        reuse: tuple[str, ...] = (),
        is_start_up: bool = False,
    ) -> tuple[list[str], Any]:
        """Names for a container, and what it is started with. The plugin never hears the pod's name.

        `reuse`: the names of the pod's start-up containers, which the kubelet gives to those after them first.
        """
        names = sorted(reuse)
        if count > len(reuse):
            names = sorted({*reuse, *self.preferred(resource, count, reuse)}, reverse=True)  # a set, in any order
        one = PLUGIN["ContainerAllocateRequest"](devices_ids=names)
        request = PLUGIN["AllocateRequest"](container_requests=[one])
        answer = self.call(resource, "Allocate", request, "AllocateResponse")
        self.held.append((namespace, pod, container, resource, names))
        if is_start_up:
            self.start_up.add((namespace, pod, container))
        return names, answer.container_responses[0]

    def start_container(self, resource: str, names: list[str]) -> None:
        request = PLUGIN["PreStartContainerRequest"](devices_ids=names)
        self.call(resource, "PreStartContainer", request, "PreStartContainerResponse")

    def _serve(self, socket: Path, service: str, method: str, answer: Any) -> Any:
        request = PLUGIN["RegisterRequest"] if method == "Register" else RESOURCES["ListPodResourcesRequest"]
        handler = grpc.unary_unary_rpc_method_handler(
            answer, request.FromString, lambda message: message.SerializeToString()
        )
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        return server

    def _register(self, request: Any, context: Any) -> Any:
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unsupported version")
        with self.changed:
            self.registered[request.resource_name] = request.endpoint
            self.registrations.append(request.resource_name)
            self.changed.notify_all()
        threading.Thread(target=self._watch, args=(request.resource_name, request.endpoint), daemon=True).start()
        return PLUGIN["Empty"]()

    def _watch(self, resource: str, endpoint: str) -> None:
        channel = grpc.insecure_channel(f"unix://{self.plugins / endpoint}")
        self._channels.append(channel)
        watch = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=PLUGIN["Empty"].SerializeToString,
            response_deserializer=PLUGIN["ListAndWatchResponse"].FromString,
        )
        try:
            for answer in watch(PLUGIN["Empty"]()):
                with self.changed:
                    self.devices[resource] = {device.ID: device.health for device in answer.devices}
                    self.changed.notify_all()
        except (grpc.RpcError, ValueError):
            pass
        with self.changed:  # a plugin that goes away takes its devices with it
            if self.registered.get(resource) == endpoint:
                self.devices[resource] = dict.fromkeys(self.devices.get(resource, {}), "Unhealthy")
                self.changed.notify_all()

    def _list(self, _: Any, context: Any) -> Any:
        if self.is_mute:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        answer = RESOURCES["ListPodResourcesResponse"]()
        pods: dict[tuple[str, str], Any] = {}
        for namespace, pod, container, resource, names in self.held:
            if (namespace, pod) not in pods:
                pods[namespace, pod] = answer.pod_resources.add(name=pod, namespace=namespace)
            if (namespace, pod, container) not in self.start_up:
                one = pods[namespace, pod].containers.add(name=container)
                for name in names:
                    one.devices.add(resource_name=resource, device_ids=[name])
        return answer


class ApiServer:
    """Answers the question that the agent has, and takes what it tells."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.patches: list[tuple[str, str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.public_keys: dict[str, str] = {}  # in the ConfigMap
        self.hides_keys = False
        self.changed = threading.Condition()
        self.is_rude = False
        self.is_late = False  # its cache has not heard of any pod yet
        api = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.asked.append(self.path)
                if "/configmaps/" in self.path and api.hides_keys:
                    self.send_error(503)
                    return
                is_old = api.is_late and "resourceVersion=0" in self.path
                data = json.dumps({"kind": "PodList", "items": [] if is_old else list(api.pods.values())}).encode()
                if "/configmaps/" in self.path:
                    keys = {"keys.json": json.dumps(api.public_keys)} if api.public_keys else {}
                    data = json.dumps({"kind": "ConfigMap", "data": keys}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_PATCH(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if api.is_rude:
                    self.send_error(503)
                    return
                with api.changed:
                    api.patches.append((self.path, self.headers["Content-Type"], json.loads(body)))
                    api.changed.notify_all()
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def do_POST(self) -> None:
                api.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(201)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def bind(self, name: str, shares: tuple[Share, ...], resource: str, **more: Any) -> None:
        """A pod with one container for all of them. `sidecars` come after `init` and stay."""
        wants, first = more.pop("containers", {"main": len(shares)}), more.pop("init", {})
        sidecars, scheduler = more.pop("sidecars", {}), more.pop("scheduler", "kaiwo-scheduler")
        notes = {GRANTED_DEVICES: encode_granted(shares)} if shares else {}
        self.pods[name] = {
            "metadata": {
                "name": name, "namespace": "team", "uid": f"uid-{name}", "annotations": {**notes, **more},
                "creationTimestamp": "2026-11-15T09:00:00Z",
            },
            "spec": {
                "nodeName": "node-1",
                "schedulerName": scheduler,
                "initContainers": [
                    *(_container(name, resource, count) for name, count in first.items()),
                    *(_container(name, resource, count, restartPolicy="Always") for name, count in sidecars.items()),
                ],
                "containers": [_container(name, resource, count) for name, count in wants.items()],
            },
            "status": {
                "phase": "Pending",
                "conditions": [{
                    "type": "PodScheduled", "status": "True",
                    "lastTransitionTime": f"2026-11-15T09:00:{len(self.pods):02}Z",
                }],
            },
        }  # fmt: skip


def _container(name: str, resource: str, count: int, **more: str) -> dict[str, Any]:
    amounts = {"cpu": "500m", **({resource: str(count)} if count else {})}
    return {"name": name, "resources": {"limits": amounts}, **more}


def sockets(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if name.endswith(".sock")}
