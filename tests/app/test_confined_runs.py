"""The real `kaiwo up` with runs in cgroups of their own: killed and started again, and on a machine without cgroups."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.clusters.local.cgroup_place import choose_place
from kaiwo.clusters.local.cgroups import find_cgroups
from tests.browser.product import KAIWO, Product
from tests.cli.test_strangers import needs_root
from tests.clusters.local.test_confinement import ESCAPE, HOG, exists, remove
from tests.crash.product import supervisors
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
HIDE_CGROUPS = 'mount -t tmpfs -o ro none /sys/fs/cgroup && exec "$@"'


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    if why := choose_place().why_not:
        pytest.skip(f"this machine gives Kaiwo no cgroups: {why}")
    product = Product(tmp_path / "home")
    product.start()
    yield product
    product.stop()
    remove(find_cgroups(str(product.home)))


def test_after_kill_9_of_kaiwo_and_the_supervisor_nothing_runs_on(product: Product, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    product.run("submit", "fugitive", "--", "sh", "-c", f"set -- {pid_file}; {ESCAPE} exec sleep 1000")
    product.run("submit", "faithful", "--", "sh", "-c", "sleep 1000")
    wait_until(pid_file.exists, "the process to escape")
    product.run("wait", "faithful", "--for", "running")
    product.kill()
    (fugitive,) = [pid for pid, run in supervisors(product.home).items() if b"fugitive" in _spec(run.path)]
    os.kill(fugitive, signal.SIGKILL)
    assert exists(int(pid_file.read_text()))
    product.start()
    wait_until(lambda: product.names("failed") == ["default/fugitive"], "the loss to be noticed")
    assert not exists(int(pid_file.read_text()))
    assert product.names("running") == ["default/faithful"]
    product.run("cancel", "faithful")
    wait_until(lambda: product.names("cancelled") == ["default/faithful"], "the adopted run to stop")


def test_a_run_out_of_memory_says_so_everywhere_also_when_kaiwo_was_away(product: Product) -> None:
    go = product.home / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.01; done; {sys.executable} -c '{HOG}'"
    product.run("submit", "hog", "--memory", "64Mi", "--", "sh", "-c", script)
    product.run("wait", "hog", "--for", "running")
    product.kill()
    go.touch()
    wait_until(lambda: not supervisors(product.home), "the run to end")
    product.start()
    wait_until(lambda: product.names("failed") == ["default/hog"], "the end to be read")
    said = "used more than the 64 MiB that it asked for"
    described = product.run("describe", "hog")
    assert described.count(said) == 2, "the workload and its attempt"
    assert "peak memory:" in described
    assert said in product.run("why", "hog")
    assert "ok    memory    --memory is a limit" in product.run("doctor")


@needs_root
def test_without_cgroups_memory_is_a_promise_and_everybody_is_told(tmp_path: Path) -> None:
    """As in a container without cgroups of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("this machine cannot hide its cgroups from a process")
    environment = {**os.environ, "KAIWO_HOME": str(tmp_path / "home")}
    command = ["unshare", "-m", "sh", "-c", HIDE_CGROUPS, "-", KAIWO, "up", "--port", "0"]
    up = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert up.stdout is not None
    try:
        lines = []
        while not lines or not lines[-1].startswith("Ctrl-C"):
            lines.append(up.stdout.readline())
            assert lines[-1], "kaiwo up ended"
        (note,) = [line for line in lines if line.startswith("  note")]
        assert "--memory is a promise, not a limit: Kaiwo may not make cgroups in" in note
        for words in (["submit", "a", "--memory", "1Gi", "--", "true"], ["wait", "a", "--for", "succeeded"]):
            subprocess.run([KAIWO, *words], env=environment, check=True)
        said = {verb: _output([KAIWO, *verb.split()], environment) for verb in ("describe a", "doctor")}
        assert "a promise, not a limit: Kaiwo may not make cgroups in" in said["describe a"]
        assert "warn  memory    --memory is a promise, not a limit" in said["doctor"]
        assert "-> give the container a writable cgroup" in said["doctor"]
    finally:
        up.terminate()
        up.wait()


def _output(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def _spec(folder: Path) -> bytes:
    return (folder / "run.json").read_bytes()
