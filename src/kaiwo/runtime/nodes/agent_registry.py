"""What the node agents told last: who they are, what their devices are and do, and which of them fell silent.

In:    lines of agents, from their streams or from this process.   Out: devices for the cluster, the newest sample.
Never: keeps more than the newest of each node, or lets a device through that the picture could not hold.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.clusters.protocol import DeviceControl
from kaiwo.devices.agent.node_agent import with_health
from kaiwo.devices.agent_messages import Correction, GpuSample, Hello, Line, Sample
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.gpu import Gpu
from kaiwo.model.node import DeviceLinks, Node
from kaiwo.runtime.log import emit
from kaiwo.runtime.nodes.agent_report_checks import believed_inventory, believed_sample, check_devices, check_wiring
from kaiwo.runtime.nodes.local_node import devices_of, wiring_of

LOST_S = 5.0  # five samples
MOST_REASON = 300
HERE = "this process"  # the watch of `kaiwo up` over its own machine


class Heard(msgspec.Struct):
    """One node's agent."""

    node: str
    version: str
    inventory: Inventory
    platform: IsolationSupport | None = None
    sample: Sample | None = None
    at: float = 0.0  # by the monotonic clock
    is_lost: bool = False
    told: tuple[Gpu, ...] | None = None  # what the cluster was told last
    stream: int = 0  # the one that greeted; 0: none, this process looks by itself
    doubts: Mapping[str, str] = {}  # by GPU: what its agent says of it and cannot be
    odd: tuple[str, ...] = ()  # what was left out of the inventory

    def gpu(self, device: str) -> GpuSample | None:
        """The newest of the physical GPU of that id."""
        return next((gpu for gpu in self.sample.gpus if gpu.id == device), None) if self.sample else None


class Agents:
    """All agents of a cluster. Lives on the event loop."""

    def __init__(self, devices: DeviceControl, clock: Callable[[], float] = time.monotonic) -> None:
        self._devices, self._clock = devices, clock
        self._heard: dict[str, Heard] = {}
        self._streams: dict[str, set[int]] = {}  # that are open; a restarted agent may have two for a moment
        self._opened = 0
        self.overlay: Callable[[Node], Node] = lambda node: node  # what the partition loop closed

    def __iter__(self) -> Iterator[Heard]:
        return iter(self._heard.values())

    def of(self, node: str) -> Heard | None:
        """None: it has no agent that was ever heard."""
        return self._heard.get(node)

    def age_s(self, heard: Heard) -> float:
        """Since its last word."""
        return self._clock() - heard.at

    def opened(self, node: str) -> int:
        """A stream begins, and its first line comes next; the number by which its lines are told apart."""
        self._opened += 1
        self._streams.setdefault(node, set()).add(self._opened)
        return self._opened

    def closed(self, node: str, stream: int) -> None:
        """A stream ended, in order or not. A live agent is back in a moment."""
        self._streams[node].discard(stream)

    def open_streams(self, node: str) -> int:
        """How many agents speak for a node: more than one is somebody's mistake, if it lasts."""
        return len(self._streams.get(node, ()))

    async def hear(self, line: Line, stream: int = 0) -> None:
        """Take one line; 0: of this process. ConfigError when it cannot be true."""
        before = self._heard.get(line.node)
        if not stream and self._streams.get(line.node):
            return  # the agent of this machine speaks for itself
        match line:
            case Hello():
                await self._greet(line, before, stream)
            case Sample():
                if before is None:
                    raise ConfigError("a sample came before the hello; begin the stream with the hello line")
                if stream != before.stream and before.stream in self._streams.get(line.node, ()):
                    return  # whoever greeted last tells how the devices are: two who differ would make them come and go
                before.sample = believed_sample(line, before.inventory, before.doubts)
                self._note(before)
                await self._tell(before)
            case Correction():
                with contextlib.suppress(NotFoundError, RefusedError):  # it is gone, or was never Kubernetes'
                    await self._devices.correct_devices((line.namespace, line.pod), line.uid, line.devices)
                emit("devices-corrected", level="warning", node=line.node, pod=line.pod, reason=tidy(line.reason))

    async def watch(self, every_s: float = 1.0) -> None:
        """For ever: notice who fell silent."""
        while True:
            await asyncio.sleep(every_s)
            for heard in self._heard.values():
                if not heard.is_lost and self.age_s(heard) > LOST_S:
                    heard.is_lost = True
                    emit("agent-lost", level="warning", node=heard.node, silent_s=round(self.age_s(heard)))

    async def tell_again(self, node: str) -> None:
        """What is laid over its devices changed."""
        heard = self._heard.get(node)
        if heard is not None:
            heard.told = None
            await self._tell(heard)

    async def _greet(self, line: Hello, before: Heard | None, stream: int) -> None:
        inventory, doubts, odd = believed_inventory(line.inventory)
        devices = devices_of(inventory)
        check_devices(devices)
        check_wiring(wiring_of(inventory, devices))
        if before is None or before.inventory != inventory:
            emit("agent-heard", node=line.node, version=line.version, gpus=len(inventory.gpus))
        if odd and (before is None or before.odd != odd):
            emit("agent-odd", level="warning", node=line.node, notes=[tidy(note) for note in odd])
        heard = Heard(line.node, line.version if stream else HERE, inventory, line.platform, stream=stream)
        heard.doubts, heard.odd = doubts, odd
        if before is not None:
            heard.is_lost = before.is_lost
            heard.sample = before.sample
            if before.sample and doubts != before.doubts:
                heard.sample = believed_sample(before.sample, inventory, doubts)
        self._heard[line.node] = heard
        self._note(heard)
        await self._tell(heard)

    def _note(self, heard: Heard) -> None:
        heard.at = self._clock()
        if heard.is_lost:
            heard.is_lost = False
            emit("agent-back", node=heard.node)

    async def _tell(self, heard: Heard) -> None:
        """Only what is new reaches the cluster: a sample a second changes nothing there."""
        inventory = heard.inventory if heard.sample is None else with_health(heard.inventory, heard.sample)
        devices = tuple(_tidied(gpu) for gpu in devices_of(inventory, heard.platform))
        if devices == heard.told:
            return
        how = health_of(devices) if self._devices.lists_devices else shown_as(devices, wiring_of(inventory, devices))
        await self._devices.change_devices(heard.node, lambda node: self.overlay(how(node)))
        heard.told = devices


def shown_as(gpus: tuple[Gpu, ...], wiring: DeviceLinks) -> Callable[[Node], Node]:
    """The machine has the last word on its devices."""

    def how(node: Node) -> Node:
        if VIRTUAL_LABEL in node.labels:
            raise RefusedError(
                f"node {node.name} is virtual, so no agent can see its GPUs; name a real one with --node"
            )
        return replace(node, gpus=gpus, wiring=wiring)

    return how


def health_of(gpus: tuple[Gpu, ...]) -> Callable[[Node], Node]:
    """Which devices a node of Kubernetes has is written on the Node; this is only how they are."""
    known = {gpu.id: gpu for gpu in gpus}

    def how(node: Node) -> Node:
        fresh = (
            replace(gpu, healthy=known[gpu.id].healthy, reason=known[gpu.id].reason) if gpu.id in known else gpu
            for gpu in node.gpus
        )
        return replace(node, gpus=tuple(fresh))

    return how


def tidy(text: str) -> str:
    """Somebody else's sentence, short enough and safe for a line."""
    return "".join(char if char.isprintable() else " " for char in text)[:MOST_REASON]


def _tidied(gpu: Gpu) -> Gpu:
    return replace(gpu, reason=tidy(gpu.reason)) if gpu.reason else gpu
