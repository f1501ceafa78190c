"""What the agents of a whole cluster cost Kaiwo: 1,250 streams into one real API, each with a sample a second.

The result says how much of a core the server uses, its event loop's lag, and how long a fault takes to be seen. The
server is a process of its own with the local cluster, the loop and the API that `kaiwo up` has; the agents are sockets
of this process that send what an agent with eight GPUs sends.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace

from bench._agent_cost import resident_mib, used_s
from kaiwo.clusters.local.open_files import raise_open_files
from kaiwo.devices.agent_messages import MEDIA_TYPE, GpuSample, Hello, Sample, encode_line
from kaiwo.devices.inventory import Inventory, PhysicalGpu, Telemetry

GPUS = 8
WARM_UP_S = 6.0
TELEMETRY = Telemetry(81, 120_000, 44, 63, 55, 712, 750)


def cost_of_streams(agents: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "bench._agent_streams", home, str(agents)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            place = json.loads(server.stdout.readline())
            return asyncio.run(_measure(server.pid, place, agents, seconds))
        finally:
            server.terminate()
            server.wait(20)


async def _measure(pid: int, place: dict[str, Any], agents: int, seconds: float) -> dict[str, Any]:
    raise_open_files()
    reporters = [_Agent(f"node-{number:04d}", place) for number in range(agents)]
    for agent in reporters:
        await agent.open()
    sending = [asyncio.create_task(agent.send_samples(number / agents)) for number, agent in enumerate(reporters)]
    await asyncio.sleep(WARM_UP_S)
    sent, spent, began = sum(agent.sent for agent in reporters), used_s(pid), time.monotonic()
    seen_s = []
    headers = {"Authorization": f"Bearer {place['owner_token']}"}
    async with httpx.AsyncClient(base_url=place["url"], headers=headers) as client:
        while time.monotonic() - began < seconds:
            seen_s.append(await _time_to_see(client, reporters[len(seen_s)]))
        took_s = time.monotonic() - began
        percent = 100 * (used_s(pid) - spent) / took_s
        lag = _lag(await client.get("/metrics"))
    for task in sending:
        task.cancel()
    return {
        "agents": agents,
        "samples_a_second": round((sum(agent.sent for agent in reporters) - sent) / took_s),
        "server_core_percent": round(percent, 1),
        "loop_lag_p99_ms": lag,
        "fault_seen_s_most": round(max(seen_s), 2),
        "faults": len(seen_s),
        "resident_mib": resident_mib(pid),
    }


async def _time_to_see(client: httpx.AsyncClient, agent: "_Agent") -> float:
    """Seconds from the moment a device fails until the scheduler's own view says so."""
    began = time.monotonic()
    agent.has_fault = True
    while True:
        gpus = (await client.get(f"/api/v1/nodes/{agent.node}")).json()["gpus"]
        if not all(gpu["healthy"] for gpu in gpus):
            return time.monotonic() - began
        await asyncio.sleep(0.05)


def _lag(answer: httpx.Response) -> float:
    for line in answer.text.splitlines():
        if line.startswith("kaiwo_loop_lag_seconds") and "0.99" in line:
            return round(1000 * float(line.split()[-1]), 1)
    return -1.0


class _Agent:
    def __init__(self, node: str, place: dict[str, Any]) -> None:
        self.node, self._place = node, place
        self.sent, self.has_fault = 0, False

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._place["port"])
        head = (
            f"POST /api/agents/{self.node}/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\n"
            f"Authorization: Bearer {self._place['token']}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self._writer.write(head.encode())
        self._write(encode_line(Hello(self.node, "1", "boot", inventory(self.node))))
        await self._writer.drain()

    async def send_samples(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while True:
            self.sent += 1
            gpus = [GpuSample(f"gpu-{number}", TELEMETRY) for number in range(GPUS)]
            if self.has_fault:
                gpus[0] = replace(gpus[0], health="failed", reason="the hardware counted 5 uncorrectable errors")
            self._write(encode_line(Sample(self.node, self.sent, time.time(), tuple(gpus))))
            await self._writer.drain()
            await asyncio.sleep(1.0)

    def _write(self, data: bytes) -> None:
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def inventory(node: str) -> Inventory:
    gpus = (PhysicalGpu(f"gpu-{at}", "amd", "MI300X", order=at, memory_mib=196_608) for at in range(GPUS))
    return Inventory(node, tuple(gpus))


async def _serve(home: Path, nodes: int) -> None:
    from kaiwo.api.application import context_of, make_app
    from kaiwo.api.settings import Settings
    from kaiwo.app.http_server import serve
    from kaiwo.app.interpreter_tuning import tune_interpreter
    from kaiwo.clusters.local import LocalCluster
    from kaiwo.history.journal_writer import Journal
    from kaiwo.model.node import Node
    from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
    from kaiwo.runtime.nodes.local_node import devices_of

    raise_open_files()
    made = [Node(f"node-{at:04d}", 192_000, 1 << 20, gpus=devices_of(inventory(""))) for at in range(nodes)]
    loop = SchedulingLoop(LocalCluster(home, made), Journal(home / "journal"))
    running = asyncio.create_task(loop.run())
    app = make_app(loop, Settings(home=str(home)))
    context = context_of(app)
    await loop.changed(0)
    tune_interpreter()
    _, url = await serve(app, "127.0.0.1", 0, "", context.closing.set)
    place = {
        "url": url, "port": int(url.rpartition(":")[2]), "token": context.access.agent_token,
        "owner_token": context.access.token, "pid": os.getpid(),
    }  # fmt: skip
    print(json.dumps(place), flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
