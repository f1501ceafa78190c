"""A running Kaiwo for the tests of the API: a real cluster, the real loop, a real server on a free port."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from kaiwo.api.application import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.settings import Settings
from kaiwo.app.http_server import Server, serve
from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local.clock import ticks
from kaiwo.history import Journal
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from tests.waiting import until

T = TypeVar("T")
WRONG = {"Authorization": "Bearer wrong"}  # instead of the right token


def node(name: str, gpus: int = 8, **fields: Any) -> Node:
    """A node of MI300X devices."""
    devices = tuple(Gpu(f"gpu-{index}", "MI300X", 196_608) for index in range(gpus))
    return Node(name, cpu_milli=96_000, memory_mib=1_500_000, gpus=devices, **fields)


class World:
    """What a test touches."""

    def __init__(self, loop: SchedulingLoop, server: Server, url: str, context: Context) -> None:
        self.loop, self.server, self.url, self.context = loop, server, url, context
        self.cluster = loop.cluster
        self.bearer = {"Authorization": f"Bearer {context.access.token}"}
        self.client = httpx.AsyncClient(base_url=url, timeout=60, headers=self.bearer)

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.client.get(f"/api/v1{path}", params=query)

    async def metrics(self) -> str:
        return (await self.client.get("/metrics")).text

    async def post(self, path: str, body: Any = None, **query: Any) -> httpx.Response:
        """A write with the token; text goes as YAML."""
        if isinstance(body, str):
            sent: dict[str, Any] = {"content": body, "headers": {**self.bearer, "Content-Type": "application/yaml"}}
        else:
            sent = {"json": body, "headers": self.bearer} if body is not None else {"headers": self.bearer}
        return await self.client.post(f"/api/v1{path}", params=query, **sent)

    async def delete(self, path: str) -> httpx.Response:
        return await self.client.delete(f"/api/v1{path}", headers=self.bearer)

    async def submit(self, name: str, **fields: Any) -> None:
        answer = await self.post("/workloads", {"name": name, **fields})
        assert answer.status_code == 201, answer.text

    async def state_of(self, name: str) -> str:
        return (await self.get(f"/workloads/default/{name}")).json()["summary"]["state"]

    async def until_state(self, name: str, state: str) -> None:
        await until(lambda: self.cluster.record(f"default/{name}").state == state, f"{name} to be {state}")


@contextlib.asynccontextmanager
async def world(
    home: Path,
    nodes: int = 2,
    settings: dict[str, Any] | None = None,
    policy: Policy = DEFAULT_POLICY,
    ticks: Callable[[], float] = ticks,
    wall: Callable[[], float] = time.time,
    exporters: str = "",
) -> AsyncIterator[World]:
    """Start it, and take it down again. `ticks` and `wall`: what its clock counts, and the system's clock."""
    machines = [node(f"node-{index}") for index in range(nodes)]
    cluster = LocalCluster(home, machines, speed=1.0, grace_s=0.5, ticks=ticks, wall=wall)
    loop = SchedulingLoop(cluster, Journal(home / "journal"), policy)
    running = asyncio.create_task(loop.run())
    app = make_app(loop, Settings(home=str(home), **(settings or {})))
    context = context_of(app)
    context.series.use_exporters(exporters)
    server, url = await serve(app, "127.0.0.1", 0, str(home), context.closing.set)
    kaiwo = World(loop, server, url, context)
    try:
        await until(lambda: loop.ready, "the first state")
        yield kaiwo
    finally:
        await kaiwo.client.aclose()
        await server.stop()
        await cluster.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def decode(response: httpx.Response, kind: type[T]) -> T:
    """The answer as one of the views: it must be exactly that."""
    return msgspec.json.decode(response.content, type=kind, strict=True)
