"""What links out of a leaf carry at most follows from the ports of its nodes, where all of them are measured."""

from pathlib import Path

from kaiwo.devices.agent_messages import Hello, PortSample
from kaiwo.devices.inventory import Inventory
from kaiwo.model.events import TopologyChanged
from kaiwo.model.network.topology import Attachment, Domain, NetworkLink, Topology, TopologyLevel
from tests.api.test_measured_ports import sample
from tests.api.world import World, world
from tests.waiting import run, until

PORT_MB_S, LINKS = 50_000, 3


def two_rails() -> Topology:
    """Two nodes on two rails, with half as many links up as ports below."""
    nodes = ("node-0", "node-1")
    leaves = [Domain(f"rail-{rail}", "leaf", ("spine",)) for rail in range(2)]
    ports = [
        Attachment(node, f"rail-{rail}", rail, PORT_MB_S, devices=(f"mlx5_{rail}",))
        for node in nodes
        for rail in range(2)
    ]
    links = [NetworkLink(leaf.name, "spine", PORT_MB_S // 2, LINKS) for leaf in leaves]
    levels = (TopologyLevel("spine"), TopologyLevel("leaf"))
    return Topology("fabric", levels, (Domain("spine", "spine"), *leaves), tuple(ports), tuple(links))


def port(rail: int, sent_mb_s: int | None, is_up: bool = True) -> PortSample:
    return PortSample(f"mlx5_{rail}", 1, is_up, PORT_MB_S, sent_mb_s, None if sent_mb_s is None else 0)


async def bounds(kaiwo: World) -> dict[str, int]:
    [fabric] = (await kaiwo.get("/topology")).json()["topologies"]
    return {link["lower"]: link["most_mb_s"] for link in fabric["links"]}


def test_links_carry_at_most_what_the_ports_below_them_do(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=2) as kaiwo:
            for at in range(2):
                await kaiwo.context.agents.receive(Hello(f"node-{at}", "1", "boot", Inventory(f"node-{at}")))
            await kaiwo.loop.add_events([TopologyChanged(two_rails())])
            await until(lambda: "fabric" in kaiwo.loop.state.topology_objects, "the fabric to be known")
            assert await bounds(kaiwo) == {"rail-0": -1, "rail-1": -1}
            await sample(kaiwo, "node-0", 1, port(0, 20_000), port(1, 1_000))
            await until(lambda: "node-0" in kaiwo.loop.state.ports)
            assert await bounds(kaiwo) == {"rail-0": -1, "rail-1": -1}, "nobody knows what the other node sends"
            await sample(kaiwo, "node-1", 1, port(0, 45_000), port(1, 2_000))
            await until(lambda: "node-1" in kaiwo.loop.state.ports)
            full = LINKS * PORT_MB_S // 2
            assert await bounds(kaiwo) == {"rail-0": min(65_000, full), "rail-1": 3_000}
            await sample(kaiwo, "node-1", 2, port(0, 45_000), port(1, 2_000, is_up=False))
            await until(lambda: not kaiwo.loop.state.ports["node-1"][1].is_up)
            assert (await bounds(kaiwo))["rail-1"] == 1_000, "a port that is down sends nothing"

    run(work())
