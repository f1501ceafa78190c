"""`kaiwo up` from inside: what it says, and what it does for the event loop."""

import asyncio
import gc
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kaiwo.app import interpreter_tuning, up
from kaiwo.app.options import UpOptions
from kaiwo.app.up import describe_nodes, running
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.snapshot.snapshot import Snapshot
from tests.api.world import node
from tests.waiting import run


@pytest.fixture(autouse=True)
def interpreter() -> Iterator[None]:
    """As it was before."""
    threshold, switch_s = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(switch_s)
    gc.unfreeze()


def test_it_tells_when_the_token_had_to_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = UpOptions(str(tmp_path), port=0, nodes=2)

    async def greet() -> str:
        async with running(options) as kaiwo:
            up._print_summary(options, kaiwo)
        return capsys.readouterr().out

    assert "note" not in run(greet())
    (tmp_path / "token").chmod(0o644)
    told = [line for line in run(greet()).splitlines() if "note" in line]
    assert told == [f"  note      {tmp_path}/token could be read by other users, so it holds a new token now"]


def test_a_cycle_that_never_ends_is_not_ready(tmp_path: Path) -> None:
    async def ask() -> list[tuple[int, str]]:
        async with running(UpOptions(str(tmp_path), port=0, nodes=2)) as kaiwo, httpx.AsyncClient() as client:
            answers = [await client.get(f"{kaiwo.url}/readyz")]
            kaiwo.loop.busy_since = time.monotonic() - 75
            answers.append(await client.get(f"{kaiwo.url}/readyz"))
            return [(answer.status_code, answer.text) for answer in answers]

    (well, stuck) = run(ask())
    assert well == (200, "ok\n")
    assert stuck[0] == 503
    assert "the scheduling cycle has been running for 75 s" in stuck[1]


def test_cycles_that_keep_failing_are_not_ready_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kaiwo.runtime.loop.scheduling_loop.AFTER_FAILURE_S", 0.01)

    async def ask() -> list[tuple[int, str]]:
        async with running(UpOptions(str(tmp_path), port=0, nodes=2)) as kaiwo, httpx.AsyncClient() as client:
            snapshot = kaiwo.loop.state.snapshot
            scrape = {"Authorization": f"Bearer {kaiwo.context.access.metrics_token}"}

            def broken(_: int) -> Snapshot:
                raise OverflowError("Python int too large to convert to C long")

            kaiwo.loop.state.snapshot = broken  # type: ignore[method-assign]
            while kaiwo.loop.health.failures < 3:
                kaiwo.loop.wake()
                await asyncio.sleep(0.01)
            answers = [
                await client.get(f"{kaiwo.url}/readyz"),
                await client.get(f"{kaiwo.url}/metrics", headers=scrape),
            ]
            kaiwo.loop.state.snapshot = snapshot  # type: ignore[method-assign]
            while kaiwo.loop.health.problem:
                kaiwo.loop.wake()
                await asyncio.sleep(0.01)
            answers.append(await client.get(f"{kaiwo.url}/readyz"))
            return [(answer.status_code, answer.text) for answer in answers]

    (sick, metrics, well) = run(ask())
    assert sick[0] == 503
    assert "scheduling cycles failed, the last one with OverflowError: Python int too large" in sick[1]
    assert re.search(r"^kaiwo_cycle_failures_total [3-9]", metrics[1], re.MULTILINE)
    assert "kaiwo_objects_left_out_total 0.0" in metrics[1]
    assert well == (200, "ok\n")


def test_the_collector_and_the_threads_leave_the_event_loop_alone(tmp_path: Path) -> None:
    async def look() -> tuple[int, float]:
        async with running(UpOptions(str(tmp_path), port=0, nodes=2)):
            return gc.get_freeze_count(), sys.getswitchinterval()

    frozen, switch_s = run(look())
    assert frozen > 10_000
    assert switch_s == pytest.approx(interpreter_tuning.SWITCH_S)


def test_a_loop_that_cannot_begin_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("no events")

    monkeypatch.setattr("kaiwo.clusters.embedded.cluster.EmbeddedCluster.events", broken)

    async def start() -> None:
        async with running(UpOptions(str(tmp_path), port=0, nodes=2)):
            raise AssertionError("it came up")

    with pytest.raises(RuntimeError, match="no events"):
        run(start())


@pytest.mark.parametrize(
    ("nodes", "gpus", "is_virtual", "said"),
    [
        (1, 1, True, "1 virtual node, 1 GPU"),
        (2, 1, False, "2 nodes, 2 GPUs"),
        (1, 8, False, "1 node, 8 GPUs"),
        (3, 0, True, "3 virtual nodes, 0 GPUs"),
    ],
)
def test_the_greeting_counts_as_people_do(nodes: int, gpus: int, is_virtual: bool, said: str) -> None:
    assert describe_nodes([node(f"n-{index}", gpus) for index in range(nodes)], is_virtual) == said


def test_the_greeting_counts_a_gpu_that_is_cut_once() -> None:
    parts = tuple(Gpu(f"gpu-0-p{part}", "MI300X", 24_576, parent="gpu-0", milli=125) for part in range(8))
    cut = Node("n", 1000, 1000, gpus=(*parts, Gpu("gpu-1", "MI300X", 196_608)))
    assert describe_nodes([cut], False) == "1 node, 2 GPUs"
