"""What the agents of a whole cluster cost Kaiwo: 1,250 streams into one real API, each with a sample every ten
seconds, and one at once when a device fails.

The result says how much of a core the server uses, idle and while it collects, its event loop's lag, and how long a
fault takes to be seen. Collecting is what streams, recording and a new request of each agent now and then add. The
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
from kaiwo.devices.agent.report_stream import SHORTEST_PART, STREAM_S
from kaiwo.devices.agent_messages import MEDIA_TYPE, GpuSample, Hello, Sample, encode_line
from kaiwo.devices.inventory import Inventory, PhysicalGpu, Telemetry

GPUS = 8
FAULTS = 20
EVERY_S = 10.0  # as an agent reports while nothing is new
WARM_UP_S = 12.0
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
    await asyncio.sleep(WARM_UP_S)
    idle_percent = await _percent(pid, seconds)
    spent = used_s(pid)
    for agent in reporters:
        await agent.open()
    sending = [asyncio.create_task(agent.send_samples(number / agents)) for number, agent in enumerate(reporters)]
    await asyncio.sleep(1.0)
    opening_s = used_s(pid) - spent
    await asyncio.sleep(WARM_UP_S)
    sent, began = sum(agent.sent for agent in reporters), time.monotonic()
    percent = await _percent(pid, seconds)  # nobody asks anything meanwhile
    samples_a_second = (sum(agent.sent for agent in reporters) - sent) / (time.monotonic() - began)
    opening_percent = 100 * opening_s / (STREAM_S * (1 + SHORTEST_PART) / 2)
    seen_s: list[float] = []
    headers = {"Authorization": f"Bearer {place['owner_token']}"}
    async with httpx.AsyncClient(base_url=place["url"], headers=headers) as client:
        while len(seen_s) < FAULTS:
            seen_s.append(await _time_to_see(client, reporters[len(seen_s)]))
        lag = _lag(await client.get("/metrics"))
    for task in sending:
        task.cancel()
    return {
        "agents": agents,
        "samples_a_second": round(samples_a_second, 1),
        "idle_core_percent": round(idle_percent, 2),
        "server_core_percent": round(percent, 2),
        "opening_ms_each": round(1000 * opening_s / agents, 2),
        "collecting_core_percent": round(percent - idle_percent + opening_percent, 2),
        "loop_lag_p99_ms": lag,
        "fault_seen_s_most": round(max(seen_s), 2),
        "faults": FAULTS,
        "resident_mib": resident_mib(pid),
    }


async def _percent(pid: int, seconds: float) -> float:
    spent, began = used_s(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (used_s(pid) - spent) / (time.monotonic() - began)


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
        await asyncio.sleep(EVERY_S * after_s)
        while True:
            self.sent += 1
            has_fault = self.has_fault
            gpus = [GpuSample(f"gpu-{number}", TELEMETRY) for number in range(GPUS)]
            if self.has_fault:
                gpus[0] = replace(gpus[0], health="failed", reason="the hardware counted 5 uncorrectable errors")
            self._write(encode_line(Sample(self.node, self.sent, time.time(), tuple(gpus))))
            await self._writer.drain()
            began = time.monotonic()
            while time.monotonic() - began < EVERY_S and self.has_fault == has_fault:
                await asyncio.sleep(1.0)  # how often it looks

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
    context.series.may_record = lambda: any(True for _ in context.agents)  # idle: nothing is collected
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
