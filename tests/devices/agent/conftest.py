"""A node with a kubelet, an API server and an agent, in one process and over real sockets."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kaiwo.devices.agent.node_agent import NodeAgent
from kaiwo.devices.agent.options import AgentOptions
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.amd_trees import Box, write_box

AMD = "amd.com/gpu"
Start = Callable[..., NodeAgent]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k")  # short: sockets lie in it


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    server.stop()


@pytest.fixture
def kubelet(folder: Path) -> Iterator[Kubelet]:
    found = Kubelet(folder)
    yield found
    found.stop()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_box(tmp_path, Box(gpus=4))


@pytest.fixture
def start_agent(folder: Path, api: ApiServer, tree: Path) -> Iterator[Start]:
    """Agents run until the test ends or it stops them."""
    running: list[tuple[NodeAgent, threading.Thread]] = []

    def start(said: list[str] | None = None, **more: object) -> NodeAgent:
        options = {
            "node": "node-1", "root": str(tree), "kubelet_folder": str(folder / "device-plugins"), "api": api.url,
            "pod_resources": str(folder / "pod-resources" / "kubelet.sock"), "account": str(folder),
            "state_folder": str(folder / "state"), "interval_s": 0.05,
        }  # fmt: skip
        devices_of: Any = more.pop("devices_of", None)
        say = (said if said is not None else []).append
        agent = NodeAgent(AgentOptions(**{**options, **more}), say, devices_of)  # type: ignore[arg-type]
        thread = threading.Thread(target=agent.run)
        thread.start()
        running.append((agent, thread))
        agent.wait = lambda: (agent.stop(), thread.join(20))  # type: ignore[attr-defined]
        return agent

    yield start
    for agent, thread in running:
        agent.stop()
        thread.join(20)
