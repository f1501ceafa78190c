"""The kinds of cluster that the contract suite runs on, and the few words its tests are written in.

A kind says how to open a cluster and how to let time pass until something is true. Kubernetes joins by adding one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kaiwo.clusters.embedded.cluster import EmbeddedCluster
from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local.cluster_file import NodeGroup, nodes_of
from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.model.events import Event
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.node import Node
from kaiwo.model.plan import Eviction, EvictionCause, Plan, Start
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.told_state import ToldState
from tests.waiting import until

T = TypeVar("T")
WHOLE_MIB = 192 * 1024


class Local:
    """Real seconds count a thousandfold."""

    name = "local"
    runs_processes = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, nodes: Sequence[Node]) -> EmbeddedCluster:
        return LocalCluster(self._folder, nodes, speed=1000.0, grace_s=1.0)

    async def let_pass(self, cluster: EmbeddedCluster, condition: Callable[[], object]) -> None:
        await until(condition)


class Simulated:
    """The clock moves when told."""

    name = "simulated"
    runs_processes = False

    def __init__(self, folder: Path) -> None:
        pass

    def make(self, nodes: Sequence[Node]) -> EmbeddedCluster:
        return SimulatedCluster(nodes, start_s=1_000_000)

    async def let_pass(self, cluster: EmbeddedCluster, condition: Callable[[], object]) -> None:
        assert isinstance(cluster, SimulatedCluster)
        await asyncio.sleep(0)
        while not condition():
            assert cluster.advance_to_next(), "nothing more happens"
            await asyncio.sleep(0)


KINDS = (Local, Simulated)
Kind = Local | Simulated


class Scene:
    """A cluster under test, with a picture that is made of nothing but its events."""

    def __init__(self, kind: Kind, cluster: EmbeddedCluster) -> None:
        self.kind = kind
        self.cluster = cluster
        self.told_state = ToldState()
        self.seen: list[Event] = []
        self.outbox = cluster._outbox  # of the reader, once it has its first batch

    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until it is true."""
        await self.kind.let_pass(self.cluster, condition)

    async def until_state(self, name: str, *states: WorkloadState) -> None:
        await self.until(lambda: self.cluster.record(full(name)).state in states)

    async def submit(self, *names: str, program: Program | None = None, **fields: Any) -> None:
        program = program or Program(simulated_s=60)
        await self.cluster.work.submit([(work(name, **fields), program) for name in names])

    async def start(self, *starts: Start) -> tuple[str, ...]:
        return await self.cluster.apply(Plan(starts=starts))

    async def start_on(self, name: str, node: str = "node-1") -> tuple[str, ...]:
        return await self.start(start_of(name, node=node))

    async def evict(self, name: str, *pods: str) -> tuple[str, ...]:
        evictions = tuple(
            Eviction(full(name), pod, EvictionCause.PREEMPT, "default/other") for pod in pods or ("main-0",)
        )
        return await self.cluster.apply(Plan(evictions=evictions))

    def state(self, name: str) -> WorkloadState:
        return self.cluster.record(full(name)).state

    def workload(self, name: str) -> Workload:
        return self.cluster.record(full(name)).workload

    async def read(self) -> None:
        async for batch in self.cluster.events():
            self.seen += batch
            self.told_state.patch(batch)

    async def settle(self) -> None:
        """Until the reader has the events of everything that can be seen now, even of what is not stored yet."""
        assert self.outbox is not None
        if not self.cluster._is_closed:
            await self.cluster.transact(lambda transaction: None)  # a record shows a change before it is stored
        while not self.outbox.empty():
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def opened(kind: Kind, nodes: Sequence[Node] | None = None) -> AsyncIterator[Scene]:
    """A cluster with a reader; when the test is over, the events must have told the whole truth."""
    scene = Scene(kind, kind.make(nodes if nodes is not None else some_nodes(2)))
    reader = asyncio.create_task(scene.read())
    await until(lambda: scene.seen, "the first batch")
    scene.outbox = scene.cluster._outbox
    try:
        yield scene
        await scene.settle()
        truth = ToldState()
        truth.patch(scene.cluster.state.as_events())
        assert scene.told_state == truth
        assert truth.overcommitted() == []
    finally:
        await scene.cluster.close()
        await reader


async def put_queue(cluster: EmbeddedCluster, queue: Queue, who: str = "") -> None:
    await cluster.work.put((queue,), (), who)


async def remove_queue(cluster: EmbeddedCluster, name: str) -> None:
    await cluster.work.remove((name,), ())


def log_path(cluster: EmbeddedCluster, name: str, pod: str = "") -> str:
    """Of the last attempt; empty when there is none."""
    logs = cluster.abilities.logs
    found = logs.logs_of(name, pod) if logs is not None else ()
    return found[-1].path if found else ""


def some_nodes(count: int, gpus: int = 8) -> tuple[Node, ...]:
    """node-1 and on."""
    return nodes_of((NodeGroup(count=count, gpus=gpus),))


def full(name: str) -> str:
    return name if "/" in name else f"default/{name}"


def work(name: str, pods: int = 1, minimum: int = -1, request: Request | None = None, **fields: Any) -> Workload:
    """One role of equal pods; one whole GPU each unless told otherwise."""
    fields["after"] = tuple(full(other) for other in fields.get("after", ()))
    role = Role(request or Request(cpu_milli=1000, memory_mib=1024, gpus=1), count=pods, minimum=minimum)
    return Workload(full(name), (role,), **fields)


def whole(*gpus: int) -> tuple[Share, ...]:
    return tuple(Share(f"gpu-{gpu}", 1000, WHOLE_MIB) for gpu in gpus)


def start_of(name: str, pod: str = "main-0", node: str = "node-1", devices: Sequence[Share] | None = None) -> Start:
    return Start(full(name), pod, node, tuple(whole(0) if devices is None else devices))
