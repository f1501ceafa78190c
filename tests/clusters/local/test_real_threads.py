"""On a machine with an NVIDIA GPU: the threads that a queue gives by default are the multiprocessors a job has."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
PYTHONPATH = ":".join(part for part in (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
CLI = [sys.executable, "-m", "kaiwo.cli.main"]
QUEUES = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: quarter}
spec: {defaultThreads: 25}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: bounded}
spec: {defaultThreads: 80, maxThreads: 60}
"""
PROGRAM = "import json, os; from bench._cuda import Cuda; print(json.dumps([Cuda().open().units, dict(os.environ)]))"


class Kaiwo:
    """`kaiwo up` on the GPUs of this machine."""

    def __init__(self, home: Path) -> None:
        self.env = {**os.environ, "KAIWO_HOME": str(home), "NO_COLOR": "1", "PYTHONPATH": PYTHONPATH}
        self.up = subprocess.Popen([*CLI, "up", "--port", "0"], env=self.env, stdout=subprocess.PIPE, text=True)
        assert self.up.stdout is not None
        assert re.search(r"http://127\.0\.0\.1:\d+", self.up.stdout.readline())

    def __call__(self, *words: str, given: str = "") -> str:
        done = subprocess.run(
            [*CLI, *words], env=self.env, input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def units(self, *options: str) -> tuple[int, str]:
        """How many multiprocessors CUDA shows to a job, and the percentage that it was given."""
        command = ("--env", f"PYTHONPATH={PYTHONPATH}", "--", sys.executable, "-c", PROGRAM)
        units, environment = json.loads(self("run", *options, *command))
        return units, environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kaiwo]:
    done = subprocess.run(["sh", "-c", "nvidia-smi -L"], capture_output=True, text=True, check=False)
    if done.returncode or "GPU 0" not in done.stdout:
        pytest.skip("there is no NVIDIA GPU on this machine")
    product = Kaiwo(tmp_path_factory.mktemp("home"))
    product("apply", "-f", "-", given=QUEUES)
    yield product
    product.up.send_signal(signal.SIGTERM)
    product.up.communicate(timeout=PATIENCE_S)


def test_a_share_has_the_default_threads_of_its_queue(kaiwo: Kaiwo) -> None:
    whole, _ = kaiwo.units("--gpus", "1", "-q", "quarter")
    units, percent = kaiwo.units("--fraction", "0.5", "--isolation", "mps", "-q", "quarter")
    assert percent == "25"
    assert 0.2 * whole <= units <= 0.3 * whole


def test_the_bound_counts_before_the_default(kaiwo: Kaiwo) -> None:
    whole, _ = kaiwo.units("--gpus", "1", "-q", "bounded")
    units, percent = kaiwo.units("--fraction", "0.5", "--isolation", "mps", "-q", "bounded")
    assert percent == "60"
    assert 0.5 * whole <= units <= 0.65 * whole


def test_a_share_without_a_default_has_threads_like_its_share(kaiwo: Kaiwo) -> None:
    whole, _ = kaiwo.units("--gpus", "1")
    units, percent = kaiwo.units("--fraction", "0.5", "--isolation", "mps")
    assert percent == "50"
    assert 0.4 * whole <= units <= 0.6 * whole
