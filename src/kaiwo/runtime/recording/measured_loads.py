"""Bring to the scheduler how busy GPUs are: a mean over about a minute of what agents report.

A node is sent again when one of its GPUs differs by an eighth, so that a thousand agents that report every second do
not fill the journal.
"""

import asyncio

from kaiwo.devices.agent_messages import Sample
from kaiwo.model.events import GpuLoadsMeasured
from kaiwo.model.gpus.gpu import Gpu, without_uuid
from kaiwo.model.node import Node
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry

EVERY_S = 1.0
LOOKS = 10  # between two updates of a node that was sent before
WORTH_PERMILLE = 125
SMOOTH = 64  # a new sample counts this part of the mean, once there are as many


class MeasuredLoads:
    """Lives on the event loop."""

    def __init__(self, agents: AgentRegistry, live: LiveLoop) -> None:
        self._agents, self._live = agents, live
        self._sent: dict[str, dict[str, int]] = {}
        self._means: dict[str, dict[str, _Mean]] = {}  # by node and GPU
        self._seen: dict[str, int] = {}  # by node: the number of its last sample
        self._looks = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if self._live.ready and (changed := self.changes()):
                await self._live.add_events([GpuLoadsMeasured(changed)])

    def changes(self) -> dict[str, dict[str, int]]:
        """Of each node whose GPUs are busier or less busy than the scheduler knows; empty: nobody measures them."""
        self._looks += 1
        found: dict[str, dict[str, int]] = {}
        for agent in self._agents:
            before = self._sent.get(agent.node, {})
            node = self._live.state.node_objects.get(agent.node)
            if agent.is_lost or agent.sample is None or node is None:
                self._means.pop(agent.node, None)
                if before:
                    found[agent.node] = self._sent[agent.node] = {}
                continue
            self._add(node, agent.sample)
            loads = {gpu: mean.permille for gpu, mean in self._means.get(agent.node, {}).items()}
            is_news = before.keys() != loads.keys()
            if is_news or (self._looks % LOOKS == 0 and _differ(before, loads)):
                found[agent.node] = self._sent[agent.node] = loads
        return found

    def _add(self, node: Node, sample: Sample) -> None:
        if self._seen.get(node.name) == sample.number:
            return
        self._seen[node.name] = sample.number
        means, now = self._means.get(node.name, {}), {}
        for gpu in node.gpus:
            percent = _busy_percent(gpu, sample)
            if percent is not None:
                now[gpu.id] = means.get(gpu.id, _Mean()).with_one(percent)
        self._means[node.name] = now


class _Mean:
    """Of the first samples all count alike; later ones replace a part of it."""

    __slots__ = ("count", "micro")

    def __init__(self, count: int = 0, micro: int = 0) -> None:
        self.count, self.micro = count, micro

    @property
    def permille(self) -> int:
        return round(self.micro / 1000)

    def with_one(self, percent: int) -> "_Mean":
        count = min(self.count + 1, SMOOTH)
        return _Mean(count, self.micro + (percent * 10_000 - self.micro) // count)


def _busy_percent(gpu: Gpu, sample: Sample) -> int | None:
    physical = gpu.parent or without_uuid(gpu.id)
    found = next((each for each in sample.gpus if each.id == physical), None)
    if found is None:
        return None
    part = next((each for each in found.partitions if each.id == gpu.id), None)
    return found.telemetry.utilisation_percent if part is None else part.busy_percent


def _differ(before: dict[str, int], after: dict[str, int]) -> bool:
    return any(abs(after[gpu] - load) >= WORTH_PERMILLE for gpu, load in before.items())
