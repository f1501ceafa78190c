"""Keep the last report of every node agent, publish its devices to the cluster, and notice agents that fall silent.

Only the newest report of a node is kept, and only devices that the cluster state can hold are published.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.clusters.protocol import DeviceControl
from kaiwo.devices.agent_messages import Correction, GpuSample, Hello, Line, Sample, with_health
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.gpus.gpu import Gpu, with_health_of
from kaiwo.model.node import DeviceLinks, Node
from kaiwo.runtime.log import emit
from kaiwo.runtime.nodes.agent_report_checks import check_devices, check_inventory, check_sample, check_wiring
from kaiwo.runtime.nodes.local_node import devices_of, wiring_of

LOST_S = 5.0  # after its stream has ended, or the last sample of this process
SILENT_S = 25.0  # without a line while its stream is open: two samples are missing
MAX_REASON = 300
IN_PROCESS = "this process"  # the version shown for the agent inside `kaiwo up`


class KnownAgent(msgspec.Struct):
    node: str
    version: str
    inventory: Inventory
    platform: IsolationSupport | None = None
    sample: Sample | None = None
    at: float = 0.0  # time of its last message, by the monotonic clock
    is_lost: bool = False
    published: tuple[Gpu, ...] | None = None  # the devices that the cluster has
    stream: int = 0  # the one that sent the hello; 0: this process
    conditions: tuple[object, ...] = ()  # what its last published devices depend on, apart from the inventory
    implausible: Mapping[str, str] = {}  # by GPU: why a value that its agent reports is impossible
    notes: tuple[str, ...] = ()  # what was left out of the inventory
    lists_holders: bool = False  # it says which pods hold which devices
    failed_since: dict[str, int] = {}  # by physical GPU that does not work

    def gpu(self, device: str) -> GpuSample | None:
        return next((gpu for gpu in self.sample.gpus if gpu.id == device), None) if self.sample else None


class AgentRegistry:
    """All agents of a cluster. Lives on the event loop."""

    def __init__(
        self,
        devices: DeviceControl,
        clock: Callable[[], float] = time.monotonic,
        now_s: Callable[[], int] = lambda: int(time.time()),  # the cluster's
    ) -> None:
        self._devices, self._clock, self._now_s = devices, clock, now_s
        self._agents: dict[str, KnownAgent] = {}
        self._streams: dict[str, set[int]] = {}  # the open ones; a restarted agent may have two for a moment
        self._opened = 0
        self.overlay: Callable[[Node], Node] = lambda node: node  # closes devices that are about to change modes

    def __iter__(self) -> Iterator[KnownAgent]:
        return iter(self._agents.values())

    def of(self, node: str) -> KnownAgent | None:
        return self._agents.get(node)

    def age_s(self, agent: KnownAgent) -> float:
        return self._clock() - agent.at

    def open_stream(self, node: str) -> int:
        """Call before the first line of a stream. Returns the number to pass with each of its lines."""
        self._opened += 1
        self._streams.setdefault(node, set()).add(self._opened)
        return self._opened

    def close_stream(self, node: str, stream: int) -> None:
        self._streams[node].discard(stream)
        agent = self._agents.get(node)
        if agent is not None and agent.stream == stream and not agent.is_lost:
            agent.at = self._clock()  # it may begin a new one

    def open_streams(self, node: str) -> int:
        """How many agents report for this node; more than one for long is a configuration mistake."""
        return len(self._streams.get(node, ()))

    async def receive(self, line: Line, stream: int = 0) -> None:
        """Handle one line; stream 0 is this process. ConfigError when the line cannot be true."""
        agent = self._agents.get(line.node)
        if not stream and self._streams.get(line.node):
            return  # a separate agent reports this machine
        match line:
            case Hello():
                await self._register(line, agent, stream)
            case Sample():
                if agent is None:
                    raise ConfigError("a sample came before the hello; begin the stream with the hello line")
                if stream != agent.stream and agent.stream in self._streams.get(line.node, ()):
                    return  # of two agents, only the last one that sent a hello counts: devices must not flap
                agent.sample = check_sample(line, agent.inventory, agent.implausible)
                self._mark_seen(agent)
                await self._publish(agent)
            case Correction():
                with contextlib.suppress(NotFoundError, RefusedError):  # the pod is gone, or not one of Kubernetes
                    await self._devices.correct_devices(line.node, (line.namespace, line.pod), line.uid, line.devices)
                emit("devices-corrected", level="warning", node=line.node, pod=line.pod, reason=printable(line.reason))

    async def watch(self, every_s: float = 1.0) -> None:
        while True:
            await asyncio.sleep(every_s)
            now = self._clock()
            for agent in self._agents.values():
                if now - agent.at <= LOST_S or agent.is_lost:
                    continue
                if now - agent.at > SILENT_S or not self._streams.get(agent.node):
                    agent.is_lost = True
                    emit("agent-lost", level="warning", node=agent.node, silent_s=round(self.age_s(agent)))

    async def publish_again(self, node: str) -> None:
        """Call when the overlay of a node changed."""
        agent = self._agents.get(node)
        if agent is not None:
            agent.published = None
            await self._publish(agent)

    async def _register(self, line: Hello, before: KnownAgent | None, stream: int) -> None:
        inventory, implausible, notes = check_inventory(line.inventory)
        devices = devices_of(inventory)
        check_devices(devices)
        check_wiring(wiring_of(inventory, devices))
        if before is None or before.inventory != inventory:
            emit("agent-heard", node=line.node, version=line.version, gpus=len(inventory.gpus))
        if notes and (before is None or before.notes != notes):
            emit("agent-odd", level="warning", node=line.node, notes=[printable(note) for note in notes])
        version = line.version if stream else IN_PROCESS
        agent = KnownAgent(
            line.node, version, inventory, line.platform, stream=stream, implausible=implausible, notes=notes,
            lists_holders=line.held is not None,
        )  # fmt: skip
        if before is not None:
            agent.is_lost, agent.failed_since = before.is_lost, before.failed_since
            agent.sample = before.sample
            if before.sample and implausible != before.implausible:
                agent.sample = check_sample(before.sample, inventory, implausible)
        self._agents[line.node] = agent
        self._mark_seen(agent)
        if line.held is not None or (before is not None and before.lists_holders):
            holders = None if line.held is None else {one.uid: one.devices for one in line.held}
            await self._devices.set_holders(line.node, holders)
        await self._publish(agent)

    def _mark_seen(self, agent: KnownAgent) -> None:
        agent.at = self._clock()
        if agent.is_lost:
            agent.is_lost = False
            emit("agent-back", node=agent.node)

    async def _publish(self, agent: KnownAgent) -> None:
        """Publish the devices if they changed; most samples change nothing."""
        reported = agent.sample.gpus if agent.sample is not None else ()
        conditions = tuple((gpu.id, gpu.health, gpu.reason) for gpu in reported)
        if agent.published is not None and conditions == agent.conditions:
            return
        agent.conditions = conditions
        inventory = agent.inventory if agent.sample is None else with_health(agent.inventory, agent.sample)
        devices = tuple(
            replace(gpu, reason=printable(gpu.reason)) if gpu.reason else gpu
            for gpu in devices_of(inventory, agent.platform)
        )
        devices = self._with_failures(agent, inventory, devices)
        if devices == agent.published:
            return
        if self._devices.lists_devices:
            update = partial(_with_health, known={gpu.id: gpu for gpu in devices})
        else:
            update = partial(_with_devices, gpus=devices, wiring=wiring_of(inventory, devices))
        await self._devices.change_devices(agent.node, lambda node: self.overlay(update(node)))
        agent.published = devices

    def _with_failures(self, agent: KnownAgent, inventory: Inventory, devices: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """Since when devices are broken, so that work on them recovers elsewhere. A degraded GPU still works."""
        failed = [gpu.id for gpu in inventory.gpus if gpu.health == "failed"]
        now_s = max(1, self._now_s()) if failed else 0
        since = agent.failed_since = {name: agent.failed_since.get(name, now_s) for name in failed}
        return tuple(
            replace(gpu, failed_s=since[gpu.parent or gpu.id]) if (gpu.parent or gpu.id) in since else gpu
            for gpu in devices
        )


def _with_devices(node: Node, gpus: tuple[Gpu, ...], wiring: DeviceLinks) -> Node:
    """The node has exactly the devices that its agent reports."""
    if VIRTUAL_LABEL in node.labels:
        raise RefusedError(f"node {node.name} is virtual, so no agent can see its GPUs; name a real one with --node")
    return replace(node, gpus=gpus, wiring=wiring)


def _with_health(node: Node, known: Mapping[str, Gpu]) -> Node:
    """A Kubernetes Node lists its own devices; the agent reports only their health."""
    return replace(
        node, gpus=tuple(with_health_of(known[gpu.id], gpu) if gpu.id in known else gpu for gpu in node.gpus)
    )


def printable(text: str) -> str:
    """Text from an agent, made short and printable."""
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_REASON]
