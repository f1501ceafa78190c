"""`kaiwo agent`, as people start it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.devices.amd_trees import Box, write_box

AGENT = [sys.executable, "-m", "kaiwo.cli.main", "agent"]


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*AGENT, *words], capture_output=True, text=True, timeout=60, check=False)


def test_one_look(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=3, compute="CPX"))
    done = run("--once", "--root", str(tmp_path))
    sample = json.loads(done.stdout)
    assert [len(gpu["partitions"]) for gpu in sample["gpus"]] == [8, 8, 8]
    assert sample["gpus"][0]["telemetry"]["power_w"] == 124


def test_it_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    command = [*AGENT, "--root", str(tmp_path), "--metrics", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NODE_NAME": "n7"}) as agent:
        assert agent.stderr is not None
        port = agent.stderr.readline().split()[-1]
        assert "1 GPU of n7" in agent.stderr.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b'hostname="n7"' in answer.read()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to report to"),
        (("--metrics", "soon"), "write a port"),
        (("--server", "http://kaiwo.example"), "only sent over TLS"),
        (("--kubelet", "--state", "/tmp/none"), "KUBERNETES_SERVICE_HOST is not set"),
    ],
)
def test_slips_are_told_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
