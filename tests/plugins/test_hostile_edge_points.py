"""Plugins at the edge that misbehave while work comes and goes: each is set aside by name, and all work starts."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from kaiwo.plugins.edge_contract import Notice
from kaiwo.runtime.topology.topology_reader import TopologyReader
from tests.plugins.sites import Running, Site, node, running
from tests.plugins.strangers import hostile_edge

WAVES, EACH = 4, 3


async def wave(kaiwo: Running, reader: TopologyReader, number: int) -> None:
    """New work, which must start, and one question to every other point."""
    names = [f"w{number}-{at}" for at in range(EACH)]
    await kaiwo.submit(*names)
    await kaiwo.until(lambda: kaiwo.has_started(*names))
    await kaiwo.edge.monitoring.sample()
    await kaiwo.edge.resources.refresh()
    await kaiwo.edge.notifications.tell(Notice("workload-failed", "default/w", number))
    kaiwo.loop.state.node_objects["node-0"] = node("node-0", labels={"wave": str(number)})  # something to read again
    await reader.refresh()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", hostile_edge.KINDS)
def test_a_hostile_plugin_at_the_edge_costs_no_decision(kind: str, site: Site) -> None:
    cls = hostile_edge.KINDS[kind]
    folder = Path(site.plugin(cls.name, Path(hostile_edge.__file__).read_text(), kinds=f'["{cls.point}"]'))
    manifest = next(folder.glob("*/kaiwo-plugin.toml"))
    manifest.write_text(manifest.read_text().replace(":Favourite", f":{kind}"))
    plugins = site.allow(cls.name, deadlineMs=500).load()
    assert plugins.status(cls.name).state == "active", plugins.status(cls.name).detail

    async def story() -> None:
        async with running(plugins, site.home, [node(f"node-{at}") for at in range(4)]) as kaiwo:
            reader = TopologyReader(kaiwo.loop)
            reader.plugins = kaiwo.edge.calls
            for number in range(WAVES):
                await wave(kaiwo, reader, number)
            assert len(kaiwo.loop.state.pods) == WAVES * EACH, "a decision was lost"
            assert not kaiwo.loop.state.refused_starts
            assert not kaiwo.loop.state.pools
            assert kaiwo.loop.health.failures == 0
            assert set(kaiwo.loop.state.topology_objects) == set()

    asyncio.run(story())
    status = plugins.status(cls.name)
    assert (status.state, status.faults) == ("set-aside", 1)
    assert re.search(cls.words, status.last_fault), status.last_fault
    assert status.last_fault.startswith(cls.point)
    assert not os.path.exists("/tmp/kaiwo-plugin-was-here")


def test_every_point_at_the_edge_has_a_hostile_plugin() -> None:
    assert {each.point for each in hostile_edge.KINDS.values()} == set(hostile_edge.GOOD)
    assert len(hostile_edge.KINDS) >= 20
