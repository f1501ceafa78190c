"""The node agent: sample the GPUs every second, and report to Kaiwo, Prometheus and the kubelet.

Never: dies because of a bad device, an unreachable Kaiwo, or a restarted kubelet.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from kaiwo import __version__
from kaiwo.devices.agent.options import AgentOptions, CheckListener, DevicesOf
from kaiwo.devices.agent.prometheus_endpoint import MetricsServer, metrics_text
from kaiwo.devices.agent.report_stream import ReportStream, ReportTarget, refuse_listener
from kaiwo.devices.agent_messages import HeldDevices, Hello, Line, with_health
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Health, Inventory
from kaiwo.devices.sampling.sampler import Sampler
from kaiwo.devices.sharing.current_inventory import CurrentInventory
from kaiwo.devices.sharing.prepare_grants import detect_isolation_support
from kaiwo.devices.sharing.share_types import IsolationSupport

if TYPE_CHECKING:
    from kaiwo.devices.agent.kubelet.kubelet_services import KubeletServices

DISCOVER_EVERY = 60  # samples between two discoveries
STALE_S = 10.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class ReportSink(Protocol):
    def start(self) -> None: ...

    def send(self, line: Line) -> None:
        """Queue a message, without blocking."""

    def close(self) -> None: ...


class NodeAgent:
    def __init__(
        self,
        options: AgentOptions,
        log: Callable[[str], None],
        devices_of: DevicesOf | None = None,
        lines: ReportSink | None = None,  # instead of a stream to the server
        check_listener: CheckListener = refuse_listener,
    ) -> None:
        self.options, self._log, self._devices_of = options, log, devices_of
        self._check_listener = check_listener
        self._stop = threading.Event()
        self._logged: dict[str, str] = {}
        self._said_held: tuple[HeldDevices, ...] | None = None
        self.kubelet: KubeletServices | None = None
        self._current = CurrentInventory(self._discover, options.root)
        self.inventory, self._platform = self._current.inventory, self._detect_support()
        self._sampler = Sampler(self.inventory, options.root, sees_processes=options.processes)
        self.sample = self._sampler.sample(time.time())
        self.stream = lines or self._open_stream()
        has_endpoint = options.metrics_port >= 0
        address = (options.metrics_host, options.metrics_port)
        self.endpoint = MetricsServer(*address, self._metrics, self._stale_text) if has_endpoint else None
        self.kubelet = self._kubelet_services() if options.kubelet_folder else None

    def run(self) -> None:
        if self.stream:
            self.stream.start()
            if not isinstance(self.stream, ReportStream):
                self.stream.send(self.hello())  # a stream sends it by itself whenever it starts
        due = time.monotonic()
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._sample_once(number)
            except Exception as error:  # edge of the loop: one bad sample must not stop the agent
                self.log_once("sample", f"sampling failed: {type(error).__name__}: {error}")
            due = max(due + self.options.interval_s, time.monotonic() - self.options.interval_s)
            self._stop.wait(max(0.0, due - time.monotonic()))
        self._close()

    def stop(self) -> None:
        self._stop.set()

    def log_once(self, about: str, text: str) -> None:
        """Log a text about a subject, unless it was the last one logged."""
        if self._logged.get(about) != text:
            self._logged[about] = text
            if text:
                self._log(text)

    def _sample_once(self, number: int) -> None:
        if number % DISCOVER_EVERY == 0 or self._current.has_changed():
            self._current.refresh()
        if self._current.inventory is not self.inventory:  # the kubelet's threads refresh it, too
            self._use_inventory(self._current.inventory)
        self.sample = self._sampler.sample(time.time())
        if self.stream:
            self.stream.send(self.sample)
        if self.kubelet:
            health: dict[str, Health] = {one.id: one.health for one in self.sample.gpus}
            for about, text in self.kubelet.update(health, number):
                self.log_once(about, text)
            if self.stream and self.kubelet.held() != self._said_held:
                self.stream.send(self.hello())
            if self._devices_of:
                self.kubelet.annotation.write(self._devices_of(with_health(self.inventory, self.sample)))

    def _use_inventory(self, found: Inventory) -> None:
        self._sampler.close()
        self.inventory, self._platform = found, self._detect_support()
        self._sampler = Sampler(found, self.options.root, sees_processes=self.options.processes)
        if self.stream:
            self.stream.send(self.hello())

    def _discover(self) -> Inventory:
        return msgspec.structs.replace(discover(self.options.root, has_telemetry=False), node=self.options.node)

    def _detect_support(self) -> IsolationSupport:
        return detect_isolation_support(bool(self.options.kubelet_folder), self.options.mps)

    def hello(self) -> Hello:
        try:
            with open(BOOT_ID, encoding="ascii") as file:
                boot = file.read().strip()
        except OSError:
            boot = ""
        held = self._said_held = self.kubelet.held() if self.kubelet else None
        return Hello(self.options.node, __version__, boot, self.inventory, self._platform, held)

    def _open_stream(self) -> ReportStream | None:
        options = self.options
        if not options.server:
            return None
        target = ReportTarget(
            options.server, options.node, options.token_file, options.ca_file, options.token, options.report_s
        )
        return ReportStream(target, self.hello, lambda text: self.log_once("stream", text), self._check_listener)

    def _metrics(self) -> str:
        return metrics_text(self.inventory, self.sample)

    def _stale_text(self) -> str:
        age_s = time.time() - self.sample.time_s
        return f"the last sample is {age_s:.0f} s old\n" if age_s > STALE_S else ""

    def _kubelet_services(self) -> "KubeletServices":
        from kaiwo.devices.agent.kubelet.kubelet_services import KubeletServices

        report = self.stream.send if self.stream else lambda correction: self._log(f"corrected: {correction}")
        return KubeletServices(self.options, self._current, report, self.log_once)

    def _close(self) -> None:
        for part in (self.stream, self.endpoint, self.kubelet, self._sampler):
            if part:
                part.close()


def node_name() -> str:
    return os.environ.get("NODE_NAME") or os.uname().nodename
