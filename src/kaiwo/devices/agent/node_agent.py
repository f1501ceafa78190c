"""The node agent: look every second, tell Kaiwo, Prometheus and the kubelet.

In:    options.   Out: nothing; it runs until it is told to stop.
Never: dies of a device that misbehaves, of a Kaiwo that is away, or of a kubelet that is restarted.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from kaiwo import __version__
from kaiwo.devices.agent.prometheus_endpoint import Endpoint, metrics_text
from kaiwo.devices.agent.report_stream import Stream, Target
from kaiwo.devices.agent_messages import Hello, Line, Sample
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Health, Inventory
from kaiwo.devices.sampling import Sampler
from kaiwo.devices.sharing.current_inventory import Present
from kaiwo.devices.sharing.machine_shares import this_platform
from kaiwo.devices.sharing.share_types import Platform
from kaiwo.model.gpu import Gpu

if TYPE_CHECKING:
    from kaiwo.devices.agent.kubelet.kubelet_services import KubeletSide

LOOK_AGAIN = 60  # samples between two discoveries
STALE_S = 10.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"


# The devices of an inventory as the scheduler names them. That is for the runtime to say: it knows both sides.
DevicesOf = Callable[[Inventory], tuple[Gpu, ...]]


class AgentOptions(msgspec.Struct, frozen=True):
    """How it runs."""

    node: str
    root: str = "/"
    server: str = ""  # empty: tell nobody
    token_file: str = ""
    token: str = ""
    ca_file: str = ""
    metrics_host: str = "0.0.0.0"
    metrics_port: int = -1  # -1: none
    kubelet_folder: str = ""  # empty: no device plugin
    pod_resources: str = ""
    api: str = ""
    account: str = ""
    state_folder: str = ""
    interval_s: float = 1.0


class Lines(Protocol):
    """Where the agent's lines go."""

    def start(self) -> None: ...

    def send(self, line: Line) -> None:
        """Never waits."""

    def close(self) -> None: ...


class Agent:
    """One machine's agent."""

    def __init__(
        self,
        options: AgentOptions,
        say: Callable[[str], None],
        devices_of: DevicesOf | None = None,
        lines: Lines | None = None,  # instead of a stream to a server
    ) -> None:
        self.options, self._say, self._devices_of = options, say, devices_of
        self._stop = threading.Event()
        self._said: dict[str, str] = {}
        self._present = Present(self._discover, options.root)
        self.inventory, self._platform = self._present.inventory, self._look_at_platform()
        self._sampler = Sampler(self.inventory, options.root)
        self.sample = self._sampler.sample(time.time())
        self.stream = lines or self._stream()
        has_endpoint = options.metrics_port >= 0
        place = (options.metrics_host, options.metrics_port)
        self.endpoint = Endpoint(*place, self._metrics, self._trouble) if has_endpoint else None
        self.kubelet = self._kubelet_side() if options.kubelet_folder else None

    def run(self) -> None:
        """Until `stop`."""
        if self.stream:
            self.stream.start()
            if not isinstance(self.stream, Stream):
                self.stream.send(self.hello())  # a stream says it by itself, whenever it begins anew
        due = time.monotonic()
        turn = 0
        while not self._stop.is_set():
            turn += 1
            try:
                self._turn(turn)
            except Exception as error:  # a loop's edge: one bad second must not end the agent; it is told and counted
                self.say_once("turn", f"this second's look failed: {type(error).__name__}: {error}")
            due = max(due + self.options.interval_s, time.monotonic() - self.options.interval_s)
            self._stop.wait(max(0.0, due - time.monotonic()))
        self._close()

    def stop(self) -> None:
        self._stop.set()

    def say_once(self, about: str, text: str) -> None:
        """What has been said last about something is not said again."""
        if self._said.get(about) != text:
            self._said[about] = text
            if text:
                self._say(text)

    def _turn(self, turn: int) -> None:
        if turn % LOOK_AGAIN == 0 or self._present.has_moved():
            self._present.look_again()
        if self._present.inventory is not self.inventory:  # the kubelet's threads look, too
            self._take_up(self._present.inventory)
        self.sample = self._sampler.sample(time.time())
        if self.stream:
            self.stream.send(self.sample)
        if self.kubelet:
            health: dict[str, Health] = {one.id: one.health for one in self.sample.gpus}
            for about, text in self.kubelet.tend(health, turn):
                self.say_once(about, text)
            if self._devices_of:
                self.kubelet.announcer.tell(self._devices_of(with_health(self.inventory, self.sample)))

    def _take_up(self, found: Inventory) -> None:
        """Modes change and GPUs come and go."""
        self._sampler.close()
        self.inventory, self._platform = found, self._look_at_platform()
        self._sampler = Sampler(found, self.options.root)
        if self.stream:
            self.stream.send(self.hello())

    def _discover(self) -> Inventory:
        return msgspec.structs.replace(discover(self.options.root, has_telemetry=False), node=self.options.node)

    def _look_at_platform(self) -> Platform:
        return this_platform(in_containers=bool(self.options.kubelet_folder))

    def hello(self) -> Hello:
        try:
            with open(BOOT_ID, encoding="ascii") as file:
                boot = file.read().strip()
        except OSError:
            boot = ""
        return Hello(self.options.node, __version__, boot, self.inventory, self._platform)

    def _stream(self) -> Stream | None:
        options = self.options
        if not options.server:
            return None
        target = Target(options.server, options.node, options.token_file, options.ca_file, options.token)
        return Stream(target, self.hello, lambda text: self.say_once("stream", text))

    def _metrics(self) -> str:
        return metrics_text(self.inventory, self.sample)

    def _trouble(self) -> str:
        age_s = time.time() - self.sample.time_s
        return f"the last look at the GPUs was {age_s:.0f} s ago\n" if age_s > STALE_S else ""

    def _kubelet_side(self) -> "KubeletSide":
        from kaiwo.devices.agent.kubelet.kubelet_services import KubeletSide

        tell = self.stream.send if self.stream else lambda correction: self._say(f"corrected: {correction}")
        return KubeletSide(self.options, self._present, tell, self.say_once)

    def _close(self) -> None:
        if self.stream:
            self.stream.close()
        if self.endpoint:
            self.endpoint.close()
        if self.kubelet:
            self.kubelet.close()
        self._sampler.close()


def with_health(inventory: Inventory, sample: Sample) -> Inventory:
    """The inventory as the last look found it."""
    seen = {one.id: one for one in sample.gpus}
    gpus = (
        msgspec.structs.replace(gpu, health=one.health, reason=one.reason) if (one := seen.get(gpu.id)) else gpu
        for gpu in inventory.gpus
    )
    return msgspec.structs.replace(inventory, gpus=tuple(gpus))


def node_name() -> str:
    """As Kubernetes knows this machine, where it says so."""
    return os.environ.get("NODE_NAME") or os.uname().nodename
