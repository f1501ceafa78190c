"""Notifications reach their file and their address; topologies of plugins replace each other like those of files."""

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from kaiwo.plugins.edge_contract import Notice
from kaiwo.runtime.topology.topology_reader import TopologyReader
from tests.plugins.sites import Running, Site, node, running

RACKS = """
from kaiwo.plugins import Domain, Topology, TopologyLevel
class Favourite:
    name, version = "racks", "1"
    def topology_source(self, nodes, text):
        racks = [line.split() for line in text.splitlines()]
        known = {node.name for node in nodes}
        domains = tuple(Domain(rack, "rack", nodes=tuple(n for n in names if n in known)) for rack, *names in racks)
        return Topology("anything", (TopologyLevel("rack"),), domains) if domains else None
"""


def test_the_end_of_work_is_told_to_the_file_and_to_the_address(site: Site) -> None:
    got: list[dict[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        got.append(json.loads(await request.text()))
        return web.Response()

    async def story() -> None:
        app = web.Application()
        app.router.add_post("/hook", take)
        server = web.AppRunner(app)
        await server.setup()
        await web.TCPSite(server, "127.0.0.1", 0).start()
        port = server.addresses[0][1]
        site.allow("json-notices", deliverTo=f"http://127.0.0.1:{port}/hook", config={"only": ["workload-succeeded"]})
        async with running(site.load(), site.home) as kaiwo:
            await kaiwo.submit("before", takes_s=5)
            await kaiwo.until(lambda: kaiwo.has_started("before"))
            kaiwo.cluster.advance(6)
            await kaiwo.until(lambda: got)
            kaiwo.edge.notifications.add(Notice("plugin-set-aside", "x", 1))
            await kaiwo.submit("after", takes_s=5)
            await kaiwo.until(lambda: kaiwo.has_started("after"))
            kaiwo.cluster.advance(6)
            await kaiwo.until(lambda: len(got) == 2)
        await server.cleanup()

    asyncio.run(story())
    assert [(each["code"], each["subject"]) for each in got] == [
        ("workload-succeeded", "default/before"), ("workload-succeeded", "default/after"),
    ]  # fmt: skip
    lines = (site.home / "sinks" / "json-notices.log").read_text().splitlines()
    assert [json.loads(line) for line in lines] == got


def test_an_address_that_does_not_answer_delays_nothing(site: Site) -> None:
    site.allow("json-notices", deliverTo="http://127.0.0.1:1/hook")

    async def story() -> None:
        async with running(site.load(), site.home) as kaiwo:
            await kaiwo.edge.notifications.tell(Notice("cycle-failed", "scheduler", 1))
            assert kaiwo.plugins.status("json-notices").state == "active"

    asyncio.run(story())
    assert "cycle-failed" in (site.home / "sinks" / "json-notices.log").read_text()


def test_a_plugin_that_is_set_aside_is_told(site: Site) -> None:
    site.plugin("favourite")
    site.allow("favourite").allow("json-notices", config={"only": ["plugin-set-aside"]})
    path = site.home / "sinks" / "json-notices.log"

    async def story() -> None:
        async with running(site.load(), site.home) as kaiwo:
            await kaiwo.edge.calls.set_aside("favourite", "it was slow")
            await kaiwo.until(path.exists)

    asyncio.run(story())
    told = json.loads(path.read_text())
    assert (told["code"], told["subject"], told["detail"]) == ("plugin-set-aside", "favourite", "it was slow")


async def _read(kaiwo: Running, reader: TopologyReader) -> None:
    await reader.refresh()
    await kaiwo.until(lambda: set(kaiwo.loop.state.topology_objects) == set(reader._mine))


def test_a_topology_of_a_plugin_follows_its_file_and_goes_with_it(site: Site, tmp_path: Path) -> None:
    text = tmp_path / "racks.txt"
    text.write_text("r1 node-0\nr2 node-1 node-9\n")
    site.plugin("racks", RACKS, kinds='["topology_source"]')
    site.allow("racks", file=str(text))

    async def story() -> None:
        async with running(site.load(), site.home, [node("node-0"), node("node-1")]) as kaiwo:
            reader = TopologyReader(kaiwo.loop)
            reader.plugins, reader.file_of = kaiwo.edge.calls, kaiwo.edge.file_of
            await _read(kaiwo, reader)
            topology = kaiwo.loop.state.topology_objects["racks"]
            assert topology.source == "plugin racks"
            assert [(each.name, each.nodes) for each in topology.domains] == [("r1", ("node-0",)), ("r2", ("node-1",))]
            calls = kaiwo.plugins.status("racks").calls
            await _read(kaiwo, reader)
            assert kaiwo.plugins.status("racks").calls == calls  # nothing has changed
            text.write_text("r3 node-0 node-1\n")
            await _read(kaiwo, reader)
            await kaiwo.until(lambda: kaiwo.loop.state.topology_objects["racks"].domains[0].name == "r3")
            await kaiwo.plugins.disable("racks", kaiwo.loop.ask)
            await _read(kaiwo, reader)
            assert kaiwo.loop.state.topology_objects == {}

    asyncio.run(story())
