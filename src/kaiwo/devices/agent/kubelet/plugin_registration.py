"""Keep the device plugins registered with the kubelet when either of them restarts.

Never: registers twice with the same kubelet. A starting kubelet removes all sockets from its folder and creates its
       own; both can be observed.
"""

import os
from collections.abc import Sequence

import grpc

from kaiwo.devices.agent.kubelet.device_plugin import DevicePlugin, plugin_options
from kaiwo.devices.agent.kubelet.grpc_messages import DEVICE_PLUGIN, PLUGIN
from kaiwo.model.errors import ClusterError

FOLDER = "/var/lib/kubelet/device-plugins"
KUBELET = "kubelet.sock"
REGISTER = f"/{DEVICE_PLUGIN}.Registration/Register"
TIMEOUT_S = 5.0
NO_GPU = "this node has no GPU to offer to the kubelet yet"


class PluginRegistration:
    """Call `ensure_registered` regularly."""

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
                raise ClusterError(getattr(error, "details", lambda: "")() or type(error).__name__) from error

    def _kubelet(self) -> tuple[int, int] | None:
        try:
            found = os.stat(os.path.join(self.folder, KUBELET))
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns

    def _socket(self, plugin: DevicePlugin) -> str:
        return os.path.join(self.folder, f"kaiwo-{plugin.resource.replace('/', '_')}.sock")
