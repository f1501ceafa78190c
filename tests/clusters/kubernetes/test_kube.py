"""`make kube` as a newcomer sees it: a Job comes in with kubectl, runs on virtual kubelets, and ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.controlplane.plane import MissingError, find_programs
from tests.waiting import PATIENCE_S


def read_tour() -> list[list[str]]:
    """What the README tells people to type, without its comments."""
    _, _, tour = (ROOT / "README.md").read_text().partition("## A second tour")
    lines = tour.partition("```sh")[2].partition("```")[0].splitlines()
    return [line.partition("#")[0].split() for line in lines if line.startswith("kubectl")]


@pytest.mark.real
@pytest.mark.slow
def test_the_second_tour(tmp_path: Path) -> None:
    try:
        programs = find_programs("kwok")
    except MissingError as error:
        pytest.skip(str(error))
    folder, output = tmp_path / "kube", tmp_path / "output"
    with output.open("wb") as file:
        kube = subprocess.Popen(
            [sys.executable, "-m", "tests.controlplane.kube", "--port", "0", "--nodes", "3", "--folder", str(folder)],
            stdout=file, stderr=file, cwd=ROOT,
        )  # fmt: skip

    def kubectl(*words: str) -> str:
        command = [programs / "kubectl", f"--kubeconfig={folder / 'admin.kubeconfig'}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT).stdout

    try:
        deadline = time.monotonic() + PATIENCE_S
        while b"Kaiwo schedules" not in output.read_bytes():
            assert kube.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.1)
        (advised,) = [line.split() for line in output.read_text().splitlines() if "kubectl apply" in line]
        first, *others, describe = read_tour()
        assert first == advised
        for words in (first, *others):
            assert kubectl(*words[1:])
        while kubectl(*describe[1:]).count(" bound to node-") < 3:
            assert time.monotonic() < deadline, kubectl(*describe[1:])
        assert "condition met" in kubectl("wait", "job/train", "--for=condition=Complete", "--timeout=60s")
        events = kubectl("get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}")
        assert events.count("Scheduled bound to node-") == 3
        status = subprocess.run(
            [sys.executable, "-m", "kaiwo.cli.main", "get", "nodes", "-o", "json"],
            env=os.environ | {"KAIWO_HOME": str(folder / "home")}, capture_output=True, text=True,
        )  # fmt: skip
        assert '"node-3"' in status.stdout
    finally:
        kube.send_signal(signal.SIGINT)
        assert kube.wait(30) in (0, 130), output.read_text()
    living = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(folder) not in living, "something was left behind"
