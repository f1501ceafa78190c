"""What runs use of the machine, read from their cgroups."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kaiwo.clusters.local import cgroups
from kaiwo.clusters.local.cgroups import RunUseMeter
from kaiwo.clusters.local.run_cgroup import RunCgroup
from kaiwo.clusters.protocol import PodUse

KEY = ("default/train", "main-0")


def placed(run: str = "r1", is_process: bool = True) -> Any:
    return SimpleNamespace(
        run=SimpleNamespace(id=run, is_process=is_process), pod=SimpleNamespace(workload=KEY[0], name=KEY[1])
    )


class Machine:
    """One cgroup folder, and a clock that a test sets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.at = folder, 100.0
        monkeypatch.setattr(cgroups.time, "monotonic", lambda: self.at)
        self.meter = RunUseMeter(lambda run_id: RunCgroup([str(folder)]), lambda: [placed()])

    def write(self, cpu_us: int, memory: int, inactive: int = 0, stalled_us: int = 0) -> None:
        (self.folder / "cpu.stat").write_text(f"usage_usec {cpu_us}\nuser_usec 1\n")
        (self.folder / "memory.current").write_text(f"{memory}\n")
        (self.folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
        (self.folder / "cpu.pressure").write_text(
            f"some avg10=0.00 total={stalled_us}\nfull avg10=0.00 total={stalled_us}\n"
        )

    def measure(self) -> dict[tuple[str, str], PodUse]:
        return dict(asyncio.run(self.meter.measure()))


def test_processors_are_counted_between_two_looks_and_memory_without_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.write(1_000_000, 300 << 20, inactive=100 << 20)
    assert machine.measure() == {KEY: PodUse(None, 200)}
    machine.at += 10
    machine.write(16_000_000, 301 << 20)
    assert machine.measure() == {KEY: PodUse(1_500, 301)}


def test_a_run_that_waits_for_processors_does_not_show_its_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.write(0, 1 << 20)
    machine.measure()
    machine.at += 10
    machine.write(1_000_000, 1 << 20, stalled_us=9_000_000)
    assert machine.measure() == {KEY: PodUse(None, 1)}
    machine.at += 10
    machine.write(2_000_000, 1 << 20, stalled_us=9_100_000)
    assert machine.measure() == {KEY: PodUse(100, 1)}


def test_a_run_without_cgroups_is_left_out(tmp_path: Path) -> None:
    nothing = RunUseMeter(lambda run_id: RunCgroup([]), lambda: [placed()])
    simulated = RunUseMeter(lambda run_id: RunCgroup([str(tmp_path)]), lambda: [placed(is_process=False)])
    for meter in (nothing, simulated):
        assert asyncio.run(meter.measure()) == {}


def test_the_first_version_of_cgroups_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    for used_ns in (0, 5_000_000_000):
        (tmp_path / "cpuacct.usage").write_text(f"{used_ns}\n")
        (tmp_path / "memory.usage_in_bytes").write_text(f"{7 << 20}\n")
        found = machine.measure()
        machine.at += 10
    assert found == {KEY: PodUse(500, 7)}
