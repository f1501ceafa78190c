"""A run gets its part of the devices before it begins, and lets go of it when it is over."""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

from kaiwo.clusters.embedded.lifecycle import Exit
from kaiwo.clusters.local.processes import Processes, RunListener, RunShare
from kaiwo.clusters.local.run_folder import RunSpec
from kaiwo.model.gpus.gpu import Share
from tests.waiting import PATIENCE_S

HALF = (Share("gpu-0", 500, 1000),)


def ignore(_: str) -> None:
    """Nobody asks."""


class Noted:
    """Notes what it is asked; refuses runs whose name says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def prepare(self, run_id: str, devices: Sequence[Share], isolation: str = "", least_grade: str = "") -> RunShare:
        self.calls.append(("prepare", run_id))
        if "refused" in run_id:
            raise OSError("gpu-0 has not enough compute units free")
        return RunShare({"PART": str(devices[0].milli)})

    def grade_of(self, run_id: str) -> str:
        return "cu-mask"

    def release(self, run_id: str) -> None:
        self.calls.append(("release", run_id))

    def keep_only(self, run_ids: Collection[str]) -> None:
        self.calls.append(("keep-only", ",".join(run_ids)))

    def keep_alive(self) -> None:
        self.calls.append(("tend", ""))


def spec(folder: Path, run_id: str, devices: tuple[Share, ...]) -> RunSpec:
    command = ("sh", "-c", "echo part=$PART")
    return RunSpec(command, {}, str(folder), str(folder / f"{run_id}.log"), 0, 1.0, devices=devices)


async def play(folder: Path, run_id: str, devices: tuple[Share, ...]) -> tuple[Noted, list[str]]:
    shares, ends, over = Noted(), list[str](), asyncio.Event()

    def ended(_: str, end: Exit) -> None:
        ends.append(f"code {end.code}")
        over.set()

    def refused(_: str, why: str) -> None:
        ends.append(why)
        over.set()

    processes = Processes(
        folder / "runs", RunListener(started=ignore, overdue=ignore, ended=ended, refused=refused), shares
    )
    processes.run(run_id, spec(folder, run_id, devices))
    await asyncio.wait_for(over.wait(), PATIENCE_S)
    await asyncio.sleep(0)
    while processes._tasks:
        await asyncio.sleep(0.01)
    await processes.close()
    return shares, ends


def test_a_run_has_its_part_in_its_environment_and_releases_it_at_its_end(tmp_path: Path) -> None:
    shares, ends = asyncio.run(play(tmp_path, "r1", HALF))
    assert ends == ["code 0"]
    assert (tmp_path / "r1.log").read_text() == "part=500\n"
    assert shares.calls == [("prepare", "r1"), ("release", "r1")]


def test_a_part_that_cannot_be_had_is_the_reason_why_the_run_does_not_begin(tmp_path: Path) -> None:
    shares, ends = asyncio.run(play(tmp_path, "refused", HALF))
    assert ends == ["its process cannot be started: gpu-0 has not enough compute units free"]
    assert shares.calls[-1] == ("release", "refused")


def test_a_run_without_devices_asks_nobody(tmp_path: Path) -> None:
    shares, ends = asyncio.run(play(tmp_path, "r2", ()))
    assert ends == ["code 0"]
    assert shares.calls == []
