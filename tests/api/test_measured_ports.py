"""What agents measure on network ports reaches the topology, the API and the scheduler."""

from pathlib import Path

from kaiwo.devices.agent_messages import Hello, PortSample, Sample
from kaiwo.devices.inventory import Inventory
from kaiwo.model.events import TopologyChanged
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.runtime.loop.replay import replay
from tests.api.world import World, world
from tests.waiting import run, until


async def sample(kaiwo: World, node: str, number: int, *ports: PortSample) -> None:
    await kaiwo.context.agents.receive(Sample(node, number, float(number), ports=ports))


def port(at: int, is_up: bool = True, sent_mb_s: int | None = None) -> PortSample:
    return PortSample(f"mlx5_{at}", 1, is_up, 50_000, sent_mb_s, 0 if sent_mb_s is not None else None)


def test_ports_are_shown_and_a_node_without_working_ports_is_left(tmp_path: Path) -> None:
    async def work() -> int:
        async with world(tmp_path, nodes=4) as kaiwo:
            for at in range(4):
                await kaiwo.context.agents.receive(Hello(f"node-{at}", "1", "boot", Inventory(f"node-{at}")))
            await kaiwo.loop.add_events([TopologyChanged(Topology("fabric", (TopologyLevel("leaf", "rack"),)))])
            await kaiwo.submit("train", pods=2, cpu=90, simulate="1h")
            await kaiwo.until_state("train", "running")
            lost = kaiwo.loop.state.pods["default/train"]["main-0"].node
            await sample(kaiwo, lost, 1, port(0, sent_mb_s=20_000), port(1, sent_mb_s=5_000), port(2, False))
            await until(lambda: lost in kaiwo.loop.state.ports)
            shown = (await kaiwo.get("/topology")).json()["ports"]
            assert [(each["device"], each["state"], each["used_mb_s"]) for each in shown] == [
                ("mlx5_0", "up", 20_000), ("mlx5_1", "up", 5_000),
            ], "a port that was never connected is no news"  # fmt: skip
            await sample(kaiwo, lost, 2, port(0, False), port(1), port(2, False))
            await until(lambda: not kaiwo.loop.state.ports[lost][0].is_up)
            shown = (await kaiwo.get("/topology")).json()["ports"]
            assert [(each["device"], each["state"]) for each in shown] == [("mlx5_0", "down"), ("mlx5_1", "up")]
            assert kaiwo.loop.state.pods["default/train"]["main-0"].node == lost, "one port is enough"
            await sample(kaiwo, lost, 3, port(0, False), port(1, False), port(2, False))
            await until(lambda: bool(kaiwo.loop.recoveries.past))
            [past] = (await kaiwo.get("/recovery")).json()["past"]
            assert (past["kind"], past["causes"]) == ("link", [f"network of {lost}"])
            assert kaiwo.loop.state.pods["default/train"]["main-0"].node != lost
            assert kaiwo.loop.last_cycle is not None
            return kaiwo.loop.last_cycle.number

    number = run(work())
    result = replay(str(tmp_path), number)
    assert result.now == result.then


def test_impossible_values_are_dropped_and_a_silent_agent_is_forgotten(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.context.agents.receive(Hello("node-0", "1", "boot", Inventory("node-0")))
            wrong = PortSample("mlx5_\x00" + "x" * 500, 1, True, 10**12, -5, 10**15)
            await sample(kaiwo, "node-0", 1, wrong, *[port(at) for at in range(200)])
            await until(lambda: "node-0" in kaiwo.loop.state.ports)
            ports = kaiwo.loop.state.ports["node-0"]
            assert len(ports) == 64
            assert (len(ports[0].device), ports[0].mb_s, ports[0].used_mb_s) == (64, 0, -1)
            agent = kaiwo.context.agents.of("node-0")
            assert agent is not None
            assert any("impossible values" in note for note in (agent.sample.notes if agent.sample else ()))
            agent.at -= 60
            await until(lambda: "node-0" not in kaiwo.loop.state.ports)

    run(work())
