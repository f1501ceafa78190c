"""Resources that plugins count: ask how much there is, and give it to the state and to the cluster's own ledger.

The nodes offer them like any extended resource, so `decide` counts what is used, exactly. Of a floating resource every
node offers the whole pool, and `decide` and the ledger both see to it that all pods together stay within it.
"""

import asyncio
import re
from collections.abc import Mapping

from kaiwo.model.events import Event
from kaiwo.model.network.check_topology import MAX_DOMAINS
from kaiwo.model.node import CountedAmounts, Node
from kaiwo.plugins.edge_contract import ResourceAmounts
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop

EVERY_S = 2.0
MAX_AMOUNT = 10**9
MAX_RESOURCES = 64
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_TAKEN = ("kaiwo.ai/", "amd.com/gpu", "nvidia.com/gpu", "nvidia.com/mig", "kubernetes.io/")  # Kaiwo counts these itself
_NODE_LIMIT = MAX_DOMAINS * 10


class ResourceCounter:
    """Keeps the amounts of all resource plugins together."""

    def __init__(self, calls: EdgeCalls, live: LiveLoop) -> None:
        self._calls, self._live = calls, live
        self.every_s = EVERY_S

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                if self._live.ready:
                    await self.refresh()
            except Exception as error:  # scheduling goes on with the amounts in force: log it and try again
                emit("resources-not-counted", level="error", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(self.every_s)

    async def refresh(self) -> None:
        plugins, counted = self._calls.active_at("resource"), self._live.counted
        if not plugins and not counted.amounts:
            return
        nodes = tuple(counted.plain(node) for _, node in sorted(self._live.state.node_objects.items()))
        on_nodes: dict[str, dict[str, int]] = {}
        floating: dict[str, int] = {}
        for plugin in plugins:
            found = await self._calls.call(plugin, "resource", ResourceAmounts, nodes)
            if found is None:
                continue
            if why := wrong_amounts(found, nodes, {*on_nodes, *floating}):
                await self._calls.set_aside(plugin.name, f"resource: {why}")
                continue
            on_nodes |= found.on_nodes
            floating |= found.floating
        amounts = CountedAmounts(on_nodes, floating)
        if amounts == counted.amounts:
            return
        await self._live.cluster.abilities.devices.set_counted(amounts)
        events: list[Event] = counted.change(amounts, self._live.state.node_objects)
        await self._live.add_events(events)


def wrong_amounts(found: ResourceAmounts, nodes: tuple[Node, ...], others: set[str]) -> str:
    """What is wrong with these amounts, in a clause; empty: nothing."""
    names = [*found.on_nodes, *found.floating]
    if len(names) > MAX_RESOURCES:
        return f"returned {len(names)} resources; {MAX_RESOURCES} is the most"
    reported = {name for node in nodes for name in node.extended}
    for name in names:
        if not _NAME.fullmatch(name):
            return f"returned the resource {name!r:.80}; expected a name such as example.com/licence"
        if name.startswith(_TAKEN):
            return f"returned the resource {name}, which is not for plugins"
        if name in reported:
            return f"returned the resource {name}, which nodes report by themselves"
        if name in others or names.count(name) > 1:
            return f"returned the resource {name}, which is counted already"
    known = {node.name for node in nodes}
    for name, amounts in found.on_nodes.items():
        if len(amounts) > _NODE_LIMIT or (unknown := next((node for node in amounts if node not in known), "")):
            return f"returned {name} of the node {unknown!r:.80}, which does not exist"
        if why := _wrong(name, amounts):
            return why
    return _wrong("a floating resource", found.floating)


def _wrong(what: str, amounts: Mapping[str, int]) -> str:
    bad = next((amount for amount in amounts.values() if not 0 <= amount <= MAX_AMOUNT), None)
    return "" if bad is None else f"returned {bad} of {what}; expected 0 to {MAX_AMOUNT:,}"
