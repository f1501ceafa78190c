"""A real `kaiwo agent`, killed with -9 and started again beside the same kubelet."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.devices.agent.conftest import AMD
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet, sockets
from tests.devices.agent.test_device_plugin import SHARE_RESOURCE, ready, share

Spawn = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn(folder: Path, api: ApiServer, tree: Path) -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-m", "kaiwo.cli.main", "agent", "--kubelet", "--kubelet-dir", str(folder)]
    command += ["--api", api.url, "--state", str(folder / "state"), "--root", str(tree), "--node", "node-1"]

    def start() -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_what_it_handed_out_is_known_to_the_next(kubelet: Kubelet, api: ApiServer, folder: Path, spawn: Spawn) -> None:
    first = spawn()
    ready(kubelet)
    api.bind("train", share(1, 500), SHARE_RESOURCE)
    names, before = kubelet.admit("team", "train", "main", SHARE_RESOURCE, 1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    kubelet.wait_for(lambda: not kubelet.healthy(AMD))
    assert len(sockets(folder / "device-plugins")) == 3  # it could not tidy up
    spawn()
    ready(kubelet)
    kubelet.start_container(SHARE_RESOURCE, names)
    api.bind("next", share(1, 500), SHARE_RESOURCE)
    _, after = kubelet.admit("team", "next", "main", SHARE_RESOURCE, 1)
    assert (before.envs["HSA_CU_MASK"], after.envs["HSA_CU_MASK"]) == ("0:0-151", "0:152-303")
