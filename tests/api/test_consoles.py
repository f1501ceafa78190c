"""Whether the submitting process becomes a workload's standard input, and what follows from that."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kaiwo.api.security.process_identity import process_identity
from kaiwo.model.plan import Eviction, EvictionCause, Plan
from tests.api.world import World, world
from tests.waiting import PATIENCE_S, run, until


async def submit(kaiwo: World, name: str, input_from: str, **fields: Any) -> list[str]:
    answer = await kaiwo.post("/workloads", {"name": name, **fields}, input_from=input_from)
    assert answer.status_code == 201, answer.text
    return answer.json()["warnings"]


@pytest.mark.parametrize(
    ("input_from", "fields", "why"),
    [
        ("elsewhere", {"command": ["cat"]}, "runs on another machine"),
        (process_identity(), {"command": ["cat"], "retries": 1}, "work with retries may start again"),
        (process_identity(), {"simulate": "1h"}, "no process runs for it"),
    ],
)
def test_an_input_that_cannot_be_connected_is_said_and_left_empty(
    tmp_path: Path, input_from: str, fields: dict[str, Any], why: str
) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            (warning,) = await submit(kaiwo, "x", input_from, **fields)
            assert warning.startswith("it cannot read from your terminal: ")
            assert why in warning
            assert (await kaiwo.get("/workloads/default/x/console")).json() == {"is_interactive": False, "folder": ""}
            if "command" in fields:
                await kaiwo.until_state("x", "succeeded")

    run(work())


def test_work_with_an_input_is_stopped_for_others_only_for_good(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            assert await submit(kaiwo, "x", process_identity(), command=["cat"]) == []
            folder = await until_folder(kaiwo, "x")
            _, writer = await asyncio.open_unix_connection(f"{folder}/console")
            writer.write(b"h" + (20).to_bytes(4, "big") + b'{"terminal": false }')
            await kaiwo.until_state("x", "running")
            assert not Path(folder, "console").exists(), "it takes one person"
            eviction = Eviction("default/x", "main-0", EvictionCause.PREEMPT, "default/other")
            await kaiwo.cluster.apply(Plan(evictions=(eviction,)))
            await kaiwo.until_state("x", "failed")
            record = kaiwo.cluster.record("default/x")
            assert (record.exit_code, record.attempt) == (-15, 1)
            assert record.message == "stopped by the scheduler (preempt for default/other)"
            again = await kaiwo.post("/workloads/default/x/requeue")
            assert again.status_code == 409
            assert "which is over; run it again" in again.json()["message"]
            writer.close()

    run(work())


def test_nobody_comes_to_an_input_that_was_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (Path("src/kaiwo/clusters/local/supervisor.py"), Path("src/kaiwo/clusters/local/supervisor_console.py"))
    for path in script:
        text = path.read_text().replace("CLIENT_WAIT_S = 60.0", "CLIENT_WAIT_S = 0.2")
        (tmp_path / path.name).write_text(text)
    monkeypatch.setattr("kaiwo.clusters.local.processes.SCRIPT", tmp_path / "supervisor.py")

    async def work() -> None:
        async with world(tmp_path / "home") as kaiwo:
            await submit(kaiwo, "x", process_identity(), command=["touch", str(tmp_path / "ran")])
            await kaiwo.until_state("x", "failed")
            assert kaiwo.cluster.record("default/x").message == "pod main-0: its user disconnected before it began"

    run(work())
    assert not (tmp_path / "ran").exists()


async def until_folder(kaiwo: World, name: str) -> str:
    found = ""

    async def look() -> None:
        nonlocal found
        while not found or not Path(found, "console").exists():
            found = (await kaiwo.get(f"/workloads/default/{name}/console")).json()["folder"]
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), PATIENCE_S)
    await until(lambda: Path(found, "console").exists())
    assert Path(found, "console").stat().st_mode & 0o777 == 0o600
    return found
