"""Stay registered with the kubelet, whichever of the two is restarted.

In:    plugins and the kubelet's folder.   Out: plugins that it knows.
Never: registers twice with the same kubelet. A kubelet that starts removes every socket from its folder and makes its
       own anew: both are seen from outside.
"""

import os
from collections.abc import Sequence

import grpc

from kaiwo.devices.agent.kubelet.messages import DEVICE_PLUGIN, PLUGIN
from kaiwo.devices.agent.kubelet.plugin import Plugin, options
from kaiwo.model.errors import ClusterError

FOLDER = "/var/lib/kubelet/device-plugins"
KUBELET = "kubelet.sock"
REGISTER = f"/{DEVICE_PLUGIN}.Registration/Register"
PATIENCE_S = 5.0


class Registration:
    """Call `tend` now and then; it does what is due."""

    def __init__(self, plugins: Sequence[Plugin], folder: str = FOLDER) -> None:
        self.plugins = plugins
        self.folder = folder
        self.times = 0
        self._known: tuple[int, int] | None = None  # the kubelet's socket, as it was when we registered

    def tend(self) -> str:
        """What was done or what is amiss; empty when all is as it was."""
        kubelet = self._kubelet()
        if kubelet is None:
            self._known = None
            return f"there is no kubelet at {self.folder}"
        if kubelet == self._known and all(os.path.exists(self._socket(plugin)) for plugin in self.plugins):
            return ""
        try:
            for plugin in self.plugins:
                plugin.serve(self._socket(plugin))
                self._register(plugin)
        except (ClusterError, OSError, RuntimeError) as error:
            return f"the kubelet does not take the device plugin: {error}"
        self._known = kubelet
        self.times += 1
        again = f", time {self.times}" if self.times > 1 else ""
        return f"registered {', '.join(plugin.resource for plugin in self.plugins)} with the kubelet{again}"

    def close(self) -> None:
        for plugin in self.plugins:
            plugin.stop()
            if os.path.exists(self._socket(plugin)):
                os.unlink(self._socket(plugin))

    def _register(self, plugin: Plugin) -> None:
        request = PLUGIN["RegisterRequest"](
            version=DEVICE_PLUGIN,
            endpoint=os.path.basename(self._socket(plugin)),
            resource_name=plugin.resource,
            options=options(),
        )
        with grpc.insecure_channel(f"unix://{os.path.join(self.folder, KUBELET)}") as channel:
            register = channel.unary_unary(
                REGISTER,
                request_serializer=PLUGIN["RegisterRequest"].SerializeToString,
                response_deserializer=PLUGIN["Empty"].FromString,
            )
            try:
                register(request, timeout=PATIENCE_S)
            except grpc.RpcError as error:
                raise ClusterError(getattr(error, "details", lambda: "")() or type(error).__name__) from error

    def _kubelet(self) -> tuple[int, int] | None:
        try:
            found = os.stat(os.path.join(self.folder, KUBELET))
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns

    def _socket(self, plugin: Plugin) -> str:
        return os.path.join(self.folder, f"kaiwo-{plugin.resource.replace('/', '_')}.sock")
