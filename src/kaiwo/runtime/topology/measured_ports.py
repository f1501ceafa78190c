"""Bring what agents measure about network ports to the scheduler: a port that went down at once, traffic now and then.

Traffic is a mean over some samples. It is sent when it differs by a twentieth of the port's rate, so that a thousand
agents that report every second do not fill the journal.
"""

import asyncio
from collections.abc import Iterable

from kaiwo.devices.agent_messages import Sample
from kaiwo.model.events import PortsMeasured
from kaiwo.model.network.port import NetworkPort, has_same_links
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry

EVERY_S = 1.0
USE_EVERY_S = 10  # looks between two updates of the traffic
WORTH_PARTS = 20  # of a port's rate
SMOOTH_S = 8  # a sample that stands for a second counts an eighth


class MeasuredPorts:
    """Lives on the event loop."""

    def __init__(self, agents: AgentRegistry, live: LiveLoop) -> None:
        self._agents, self._live = agents, live
        self._sent: dict[str, tuple[NetworkPort, ...]] = {}
        self._mean: dict[tuple[str, str, int], int] = {}  # by node, device and port: MB/s
        self._seen: dict[str, tuple[int, float]] = {}  # by node: the number and time of its last sample
        self._looks = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if self._live.ready:
                changed = self.changes()
                if changed:
                    await self._live.add_events([PortsMeasured(changed)])

    def changes(self) -> dict[str, tuple[NetworkPort, ...]]:
        """Of each node whose ports differ from what the scheduler knows; empty: its agent is silent or has none."""
        self._looks += 1
        is_turn = self._looks % USE_EVERY_S == 0
        found: dict[str, tuple[NetworkPort, ...]] = {}
        for agent in self._agents:
            seen = self._seen.get(agent.node)
            # Nothing was reported since the last look: a thousand agents have a sample each ten seconds.
            if seen and not is_turn and not agent.is_lost and agent.sample and seen[0] == agent.sample.number:
                continue
            before = self._sent.get(agent.node, ())
            if agent.is_lost or agent.sample is None:
                if before:
                    found[agent.node] = self._sent[agent.node] = ()
                continue
            ports = tuple(self._ports(agent.sample, before))
            if not has_same_links(before, ports):
                self._log(agent.node, before, ports)
            elif not is_turn or not _differ(before, ports):
                continue
            found[agent.node] = self._sent[agent.node] = ports
        return found

    def _ports(self, sample: Sample, before: tuple[NetworkPort, ...]) -> Iterable[NetworkPort]:
        number, time_s = self._seen.get(sample.node, (-1, sample.time_s))
        is_new, stands_for_s = number != sample.number, round(min(max(sample.time_s - time_s, 1), SMOOTH_S))
        self._seen[sample.node] = sample.number, sample.time_s
        was_up = {(port.device, port.number): port.was_up for port in before}
        for each in sample.ports:
            key = (sample.node, each.device, each.number)
            rates = [rate for rate in (each.sent_mb_s, each.received_mb_s) if rate is not None]
            if rates and is_new:
                now = max(rates)
                mean = self._mean.get(key, now)
                self._mean[key] = mean + (now - mean) * stands_for_s // SMOOTH_S
            up_before = was_up.get((each.device, each.number), False)
            used = self._mean.get(key, -1) if each.is_up else 0
            yield NetworkPort(each.device, each.number, each.is_up, each.mb_s, used, each.is_up or up_before)

    @staticmethod
    def _log(node: str, before: tuple[NetworkPort, ...], after: tuple[NetworkPort, ...]) -> None:
        was_up = {(port.device, port.number) for port in before if port.is_up}
        for port in after:
            if not port.is_up and (port.device, port.number) in was_up:
                emit("port-down", level="warning", node=node, device=port.device, port=port.number)


def _differ(before: tuple[NetworkPort, ...], after: tuple[NetworkPort, ...]) -> bool:
    return any(
        (a.used_mb_s < 0) != (b.used_mb_s < 0) or abs(a.used_mb_s - b.used_mb_s) * WORTH_PARTS >= max(1, b.mb_s)
        for a, b in zip(before, after, strict=True)
    )
