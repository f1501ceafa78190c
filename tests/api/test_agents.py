"""Node agents' reports: into the cluster within a second, refused in a sentence when they cannot be."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.api.presenters.measured_use import agent_view
from kaiwo.devices.agent_messages import MEDIA_TYPE, Correction, GpuSample, Hello, Line, Sample, encode_line
from kaiwo.devices.inventory import Inventory, PhysicalGpu
from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.nodes.agent_report_checks import check_devices
from tests.api.world import World, node, world
from tests.devices.fake_inventory import fake_inventory
from tests.waiting import run, until

GPUS = tuple(PhysicalGpu(f"gpu-{index}", "amd", "MI300X", memory_mib=196_608, order=index) for index in range(8))
INVENTORY = Inventory("node-0", GPUS)
HELLO = Hello("node-0", "1", "boot", INVENTORY)
WELL = Sample("node-0", 1, 0.0, tuple(GpuSample(gpu.id) for gpu in GPUS))
ILL = Sample("node-0", 2, 0.0, (GpuSample("gpu-0", health="failed", reason="5 uncorrectable errors"), *WELL.gpus[1:]))


async def send(kaiwo: World, *lines: Line | bytes, to: str = "node-0", **headers: str) -> Any:
    body = b"".join(line if isinstance(line, bytes) else encode_line(line) for line in lines)
    sent = {"Authorization": f"Bearer {kaiwo.context.access.agent_token}", "Content-Type": MEDIA_TYPE} | headers
    return await kaiwo.client.post(f"/api/agents/{to}/reports", content=body, headers=sent)


def test_a_device_that_falls_ill_is_shown_and_gets_no_more_work(tmp_path: Path) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            assert (await send(kaiwo, HELLO, ILL)).json() == {"lines": 2}
            await kaiwo.submit("all", gpus=8, simulate="1h")
            await until(lambda: not kaiwo.cluster.state.nodes["node-0"].gpus[0].healthy)
            shown = (await kaiwo.get("/nodes/node-0")).json()
            assert [gpu["reason"] for gpu in shown["gpus"] if not gpu["healthy"]] == ["5 uncorrectable errors"]
            assert shown["agent"] | {"heard_ago_s": 0} == {
                "node": "node-0", "state": "live", "version": "1", "heard_ago_s": 0, "gpus": 8, "notes": [],
            }  # fmt: skip
            backlog = kaiwo.loop.state.backlog
            await until(lambda: backlog.is_queued("default/all") and backlog.class_of("default/all").obstacles)
            why = (await kaiwo.get("/workloads/default/all/why")).json()
            assert "8 GPUs on one node, but the largest node has 7" in why["answer"]
            await send(kaiwo, HELLO, WELL)
            await kaiwo.until_state("all", "running")

    run(look())


def test_running_work_says_that_its_device_is_ill(tmp_path: Path) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            await kaiwo.submit("all", gpus=8, simulate="1h")
            await kaiwo.until_state("all", "running")
            await send(kaiwo, HELLO, ILL)
            await until(lambda: not kaiwo.loop.state.node_objects["node-0"].gpus[0].healthy)
            answer = (await kaiwo.get("/workloads/default/all/why")).json()["answer"]
            assert answer.endswith("; it runs on gpu-0 of node-0, which is unhealthy: 5 uncorrectable errors")

    run(look())


def test_a_held_device_that_is_gone_stays_until_nobody_is_on_it(tmp_path: Path) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            await kaiwo.submit("one", gpus=1, simulate="1h")
            await kaiwo.until_state("one", "running")
            held = kaiwo.cluster.state.pods["default/one", "main-0"].pod.devices[0].gpu
            left = tuple(gpu for gpu in GPUS if gpu.id != held)
            await send(kaiwo, Hello("node-0", "1", "boot", Inventory("node-0", left)))
            devices = kaiwo.cluster.state.nodes["node-0"].gpus
            assert [(gpu.id, gpu.reason) for gpu in devices if not gpu.healthy] == [
                (held, "the machine no longer shows it")
            ]
            await kaiwo.cluster.abilities.work.change("cancel", "default/one")
            await kaiwo.until_state("one", "cancelled")
            await send(kaiwo, Hello("node-0", "2", "boot", Inventory("node-0", left)))
            assert len(kaiwo.cluster.state.nodes["node-0"].gpus) == 7

    run(look())


@pytest.mark.parametrize(
    ("lines", "status", "says"),
    [
        ((b"{]\n",), 400, "an agent's line is invalid"),
        ((b'{"type":"hello"}\n',), 400, "missing required field"),
        ((b"\xff\xfe\n",), 400, "is invalid"),
        ((WELL,), 400, "the first line must be a hello"),
        ((HELLO, Sample("node-9", 1, 0.0)), 400, "about node 'node-9'"),
        ((), 400, "ended in the middle of a line"),
        ((HELLO, b'{"type":"sam'), 400, "ended in the middle of a line"),
        ((b"x" * ((4 << 20) + 9),), 400, "longer than 4194304 bytes"),
        ((Hello("node-0", "1", "", Inventory("node-0", (GPUS[0], GPUS[0]))),), 400, "the same id"),
    ],
)
def test_garbage_is_refused_in_a_sentence(
    tmp_path: Path, lines: tuple[Line | bytes, ...], status: int, says: str
) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            answer = await send(kaiwo, *lines)
            assert (answer.status_code, answer.json()["kind"]) == (status, "invalid")
            assert says in answer.json()["message"]
            assert (await send(kaiwo, HELLO, WELL)).status_code == 200

    run(look())


def test_who_may_report(tmp_path: Path) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            assert (await send(kaiwo, HELLO, Authorization="Bearer wrong")).status_code == 401
            assert (await send(kaiwo, HELLO, Authorization=kaiwo.bearer["Authorization"])).status_code == 200
            assert (await send(kaiwo, HELLO, Host="kaiwo.example")).status_code == 200
            assert (await send(kaiwo, HELLO, **{"Content-Type": "text/plain"})).status_code == 415
            missing = await send(kaiwo, HELLO, to="node-7")
            assert (missing.status_code, missing.json()["message"][:25]) == (404, "there is no node 'node-7'")
            bearer = {"Authorization": f"Bearer {kaiwo.context.access.agent_token}"}
            other = await kaiwo.client.post("/api/v1/nodes/node-0/cordon", headers=bearer)
            assert (other.status_code, "only reports" in other.json()["message"]) == (403, True)

    run(look())


def test_a_silent_agent_is_noticed_and_comes_back(tmp_path: Path) -> None:
    clock = [0.0]

    class Cluster:
        lists_devices = False

        async def change_devices(self, name: str, how: Any) -> None:
            self.shown = how(node(name))

    async def look() -> None:
        agents = AgentRegistry(Cluster(), lambda: clock[0])
        watch = asyncio.create_task(agents.watch(0.001))
        await agents.receive(HELLO)
        heard = agents.of("node-0")
        assert heard is not None
        clock[0] = 4.0
        await asyncio.sleep(0.02)
        assert not heard.is_lost
        clock[0] = 6.0
        await until(lambda: heard.is_lost)
        await agents.receive(WELL)
        assert not heard.is_lost
        watch.cancel()

    run(look())


def test_work_on_a_failed_gpu_recovers_and_on_a_degraded_one_stays() -> None:
    class Cluster:
        lists_devices = False

        async def change_devices(self, name: str, how: Any) -> None:
            self.shown = how(node(name))

    def with_health(health: str) -> Sample:
        gpus = (msgspec.structs.replace(ILL.gpus[0], health=health, reason="ECC"), *ILL.gpus[1:])
        return msgspec.structs.replace(ILL, gpus=gpus)

    async def look() -> None:
        now = [100]
        agents = AgentRegistry(cluster := Cluster(), now_s=lambda: now[0])
        await agents.receive(HELLO)
        await agents.receive(with_health("degraded"))
        assert (cluster.shown.gpus[0].healthy, cluster.shown.gpus[0].failed_s) == (False, 0)
        await agents.receive(with_health("failed"))
        now[0] = 200
        await agents.publish_again("node-0")
        assert cluster.shown.gpus[0].failed_s == 100
        await agents.receive(WELL)
        assert (cluster.shown.gpus[0].healthy, cluster.shown.gpus[0].failed_s) == (True, 0)

    run(look())


def test_an_agent_that_streams_speaks_for_itself() -> None:
    class Cluster:
        lists_devices = False
        told = 0

        async def change_devices(self, name: str, how: Any) -> None:
            self.told += 1

    async def look() -> None:
        agents = AgentRegistry(cluster := Cluster())
        stream = agents.open_stream("node-0")
        await agents.receive(HELLO, stream)
        await agents.receive(ILL)
        assert cluster.told == 1
        agents.close_stream("node-0", stream)
        await agents.receive(ILL)
        await agents.receive(ILL)
        assert cluster.told == 2  # the second look found nothing new

    run(look())


def test_of_two_agents_for_one_node_the_last_that_came_is_heard() -> None:
    """They may differ, and a device that is well and ill by turns would be given to work every other second."""

    class Cluster:
        lists_devices = False
        told = 0

        async def change_devices(self, name: str, how: Any) -> None:
            self.told += 1
            self.shown = how(node(name))

    async def look() -> None:
        agents = AgentRegistry(cluster := Cluster())
        first, second = agents.open_stream("node-0"), agents.open_stream("node-0")
        for stream, sample in ((first, WELL), (second, ILL)):
            await agents.receive(HELLO, stream)
            await agents.receive(sample, stream)
        told = cluster.told
        for _ in range(3):
            await agents.receive(WELL, first)
            await agents.receive(ILL, second)
        assert (cluster.told, cluster.shown.gpus[0].healthy) == (told, False)
        heard = agents.of("node-0")
        assert heard is not None
        assert agent_view(agents, heard).notes == [
            "2 agents report for this node, and only the latest one counts; stop the others"
        ]
        agents.close_stream("node-0", second)
        await agents.receive(WELL, first)
        assert cluster.shown.gpus[0].healthy
        assert agent_view(agents, heard).notes == []

    run(look())


def test_a_virtual_node_has_no_agent(tmp_path: Path) -> None:
    class Cluster:
        lists_devices = False

        async def change_devices(self, name: str, how: Any) -> None:
            how(node(name, labels={"kaiwo.ai/virtual": "true"}))

    with pytest.raises(RefusedError, match="node-0 is virtual"):
        run(AgentRegistry(Cluster()).receive(HELLO))


def test_on_kubernetes_the_node_says_which_devices_and_the_agent_how_they_are() -> None:
    class Cluster:
        lists_devices = True

        async def change_devices(self, name: str, how: Any) -> None:
            self.shown = how(node(name, gpus=2))

        async def correct_devices(self, node: str, pod: tuple[str, str], uid: str, devices: tuple[Share, ...]) -> None:
            self.corrected = (pod, uid, devices)

    async def look() -> None:
        agents = AgentRegistry(cluster := Cluster())
        await agents.receive(HELLO)
        await agents.receive(ILL)
        assert [(gpu.id, gpu.healthy) for gpu in cluster.shown.gpus] == [("gpu-0", False), ("gpu-1", True)]
        await agents.receive(Correction("node-0", "team", "a-0", "uid", (Share("gpu-1", 1000, 9),), "because"))
        assert cluster.corrected == (("team", "a-0"), "uid", (Share("gpu-1", 1000, 9),))

    run(look())


@pytest.mark.parametrize(
    "gpus",
    [
        (Gpu("", "MI300X", 1),),
        (Gpu("a\nb", "MI300X", 1),),
        (Gpu("a", "MI300X", 1 << 40),),
        (Gpu("a", "MI300X", -1),),
        (Gpu("a", "MI300X", 1, milli=2000),),
        tuple(Gpu(str(index), "MI300X", 1) for index in range(1025)),
    ],
)
def test_devices_that_no_machine_has_never_reach_the_picture(gpus: tuple[Gpu, ...]) -> None:
    with pytest.raises(ConfigError):
        check_devices(gpus)


def test_the_fake_vendor_passes() -> None:
    from kaiwo.runtime.nodes.local_node import devices_of

    check_devices(devices_of(fake_inventory(count=8)))
