"""The whole way, with real processes over TLS: a fault in a machine's files, and the scheduler says so in seconds."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kaiwo import __version__
from kaiwo.devices.discover import discover
from tests.devices.agent.report_receiver import make_certificate
from tests.devices.amd_trees import PCI, Box, address, write_box
from tests.waiting import is_in_time, wait_until

KAIWO = str(Path(sys.executable).with_name("kaiwo"))
WITHIN_S = 5.0


class Product:
    """`kaiwo up` and `kaiwo agent`, each in a process of its own, over the same machine seen through two trees."""

    def __init__(self, folder: Path) -> None:
        self.home, self.certificate = folder / "home", make_certificate(folder)
        # What `kaiwo up` sees itself stays well: whatever it learns of the fault, it learns from the agent.
        self.tree = write_box(folder / "agents", Box(gpus=2))
        self.other = write_box(folder / "ups", Box(gpus=2))
        self.node = discover(str(self.other)).node
        self.env = {**os.environ, "KAIWO_HOME": str(self.home)}
        self.up = self.agent = None  # type: subprocess.Popen[bytes] | None
        self.port = "0"

    def start_up(self) -> None:
        words = ("up", "--port", self.port, "--root", str(self.other), "--tls-cert", str(self.certificate))
        self.up = self._start(*words)
        file = self.home / "server.json"
        wait_until(lambda: file.exists() and json.loads(file.read_bytes())["pid"] == self.up.pid, "kaiwo up")  # type: ignore[union-attr]
        self.port = json.loads(file.read_bytes())["url"].rpartition(":")[2]

    def start_agent(self) -> None:
        url = f"https://localhost:{self.port}"
        self.agent = self._start(
            "agent", "--server", url, "--token-file", str(self.home / "agent-token"), "--ca-file",
            str(self.certificate), "--root", str(self.tree), "--node", self.node,
        )  # fmt: skip

    def say(self, *words: str) -> Any:
        done = subprocess.run([KAIWO, *words, "-o", "json"], env=self.env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def health(self) -> dict[str, str]:
        return {gpu["id"]: gpu["reason"] for gpu in self.say("gpus")["items"]}

    def break_gpu(self, gpu: int = 0, tree: Path | None = None) -> None:
        ((tree or self.tree) / PCI / address(gpu) / "ras" / "umc_err_count").write_text("ue: 5\nce: 2\n")

    def stop(self) -> None:
        for process in (self.agent, self.up):
            if process is not None and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        quiet = subprocess.DEVNULL
        return subprocess.Popen([KAIWO, *words], env=self.env, stdout=quiet, stderr=quiet)


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    made = Product(tmp_path)
    made.start_up()
    made.start_agent()
    wait_until(lambda: live_agents(made) == [__version__], "the agent")
    yield made
    made.stop()


def live_agents(product: Product) -> list[str]:
    listed = product.say("agents")["items"]
    return [agent["version"] for agent in listed if agent["state"] == "live"]


@pytest.mark.slow
def test_a_fault_is_seen_by_the_scheduler_within_five_seconds(product: Product) -> None:
    product.break_gpu()
    took_s = wait_until(lambda: any(product.health().values()), "the fault")
    assert is_in_time(took_s, WITHIN_S)
    assert product.health()[address(0)] == "the hardware counted 5 uncorrectable errors"
    subprocess.run(
        [KAIWO, "submit", "both", "--gpus", "2", "--", "true"], env=product.env, check=True,
        capture_output=True,
    )  # fmt: skip
    wait_until(lambda: product.say("why", "both")["obstacles"], "an answer")
    assert "the largest node has 1 GPU" in product.say("why", "both")["answer"]


@pytest.mark.slow
def test_a_restart_of_either_side_loses_nothing(product: Product) -> None:
    assert product.up is not None
    assert product.agent is not None
    product.break_gpu()
    wait_until(lambda: any(product.health().values()), "the fault")
    product.break_gpu(0, product.other)  # it is one machine
    product.up.send_signal(signal.SIGKILL)
    product.up.wait()
    product.break_gpu(1)  # while nobody listens
    product.start_up()
    assert product.health()[address(0)]  # known from the first moment on
    took_s = wait_until(lambda: all(product.health().values()), "the second fault")
    assert is_in_time(took_s, 3 * WITHIN_S)
    product.agent.send_signal(signal.SIGKILL)
    product.agent.wait()
    wait_until(lambda: "this process" in live_agents(product), "the watch of kaiwo up itself")
    shutil.rmtree(product.tree)
    write_box(product.tree, Box(gpus=2))  # mended
    product.start_agent()
    wait_until(lambda: not any(product.health().values()), "both to be well")
