"""A machine with plugins in folders and an administrator's file; and a scheduler that runs with them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.history import Journal
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.model.workload_record import Program
from kaiwo.runtime.edge_points.edge_points import EdgePoints
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.runtime.plugin_worker.plugin_files import plugin_in, read_files
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet
from tests.waiting import PATIENCE_S

CODE = """
import msgspec
import numpy as np
class Config(msgspec.Struct, forbid_unknown_fields=True):
    best: str = "node-1"
class Favourite:
    name, version, weight = "{name}", "1.0", 100
    Config = Config
    def __init__(self, config=Config()):
        self.config = config
    def score(self, view, want, nodes):
        return np.array([1000 * (view.nodes.names[row] == self.config.best) for row in nodes])
"""


class Site:
    """A machine with plugins in folders, and an administrator's file."""

    def __init__(self, home: Path) -> None:
        self.home, self.file = home, home / "plugins.yaml"
        self.allowed: dict[str, dict[str, Any]] = {}
        self.sets: list[PluginSet] = []

    def plugin(self, name: str, code: str = CODE, needs: str = "[]", kaiwo: str = "", kinds: str = '["score"]') -> str:
        folder = self.home / "code" / name / name.replace("-", "_")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(code.replace("{name}", name))
        lines = [f'name = "{name}"', 'version = "1.0"', f"kinds = {kinds}", f'object = "{folder.name}:Favourite"']
        (folder / "kaiwo-plugin.toml").write_text("\n".join([*lines, f'kaiwo = "{kaiwo}"', f"dependencies = {needs}"]))
        return str(folder.parent)

    def allow(self, name: str, **fields: Any) -> "Site":
        """Without `path` and `sha256` for one of Kaiwo's own."""
        path = str(self.home / "code" / name)
        if not (self.home / "code" / name).exists():
            return self._write({"name": name} | fields)
        sha256 = read_files(plugin_in(path)).sha256
        return self._write({"name": name, "path": path, "sha256": sha256} | fields)

    def _write(self, setting: dict[str, Any]) -> "Site":
        self.allowed[setting["name"]] = setting
        self.file.write_text(yaml.safe_dump({"plugins": list(self.allowed.values())}))
        return self

    def load(self) -> PluginSet:
        found = PluginSet(str(self.home), str(self.file))
        self.sets.append(found)
        found.load_on_thread()
        return found


class Running(NamedTuple):
    loop: SchedulingLoop
    cluster: SimulatedCluster
    edge: EdgePoints
    plugins: PluginSet

    async def submit(self, *names: str, **fields: Any) -> None:
        await self.cluster.work.submit([job(name, **fields) for name in names])

    async def until(self, condition: Any) -> None:
        """Wait until this holds; it is looked at after every change, and now and then."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.01)

    def has_started(self, *names: str) -> bool:
        """The cluster runs them, and the scheduler knows it."""
        pods = [self.loop.state.pods.get(f"default/{name}", {}).values() for name in names]
        return all(each and all(pod.phase is Phase.RUNNING for pod in each) for each in pods)


def node(name: str, gpus: int = 8, **fields: Any) -> Node:
    devices = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(gpus))
    return Node(name, 64_000, 65_536, gpus=devices, **fields)


def job(name: str, gpus: int = 1, pods: int = 1, takes_s: int = 600, **fields: Any) -> tuple[Workload, Program]:
    extended = tuple(fields.pop("extended", {}).items())
    role = Role(Request(gpus=gpus, extended=extended), count=pods)
    return Workload(f"default/{name}", (role,), **fields), Program(simulated_s=takes_s)


@contextlib.asynccontextmanager
async def running(
    plugins: PluginSet, home: Path, nodes: Sequence[Node] = (), policy: Policy = DEFAULT_POLICY
) -> AsyncIterator[Running]:
    """The loop on a simulated cluster, with the points at the edge."""
    cluster = SimulatedCluster(nodes or [node("node-0"), node("node-1")])
    loop = SchedulingLoop(cluster, Journal(home / "journal"), policy, plugins.registry)
    edge = EdgePoints(plugins, loop, str(home))
    edge.resources.every_s = edge.monitoring.every_s = 0.05
    edge.attach()
    tasks = [asyncio.create_task(loop.run()), asyncio.create_task(edge.run())]
    found = Running(loop, cluster, edge, plugins)
    try:
        await found.until(lambda: loop.ready)
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
