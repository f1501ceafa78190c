"""What there is to see, while much changes: nobody waits but whoever changed something."""

import asyncio
import threading

import pytest

from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.overview import cluster_overview as board_module
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.overview.workload_table import MANY, WorkloadRows
from tests.api.fake_loop import FakeLoop, record
from tests.waiting import run


def test_a_large_update_is_waited_for_only_by_who_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    updated = board_module._updated

    def slow(*arguments: object) -> WorkloadRows:
        assert gate.wait(20)
        return updated(*arguments)  # type: ignore[arg-type]

    async def test() -> None:
        live = FakeLoop()
        board = ClusterOverview(live)
        live.put(record("first"))
        assert len(await board.fresh()) == 1
        monkeypatch.setattr(board_module, "_updated", slow)
        live.put(*(record(f"w{number}") for number in range(MANY + 1)))
        update = asyncio.create_task(board.fresh())
        await asyncio.sleep(0.01)
        assert len(await board.fresh()) == 1, "the rows of before are good enough for others"
        live.put(record("mine"))
        board.mark_changed()
        mine = asyncio.create_task(board.fresh())
        await asyncio.sleep(0.01)
        assert not mine.done()
        gate.set()
        assert (await mine).find("default/mine") is not None
        assert len(await update) == MANY + 3

    run(test())


def test_small_changes_are_seen_at_once() -> None:
    async def test() -> None:
        live = FakeLoop()
        board = ClusterOverview(live)
        await board.fresh()
        live.put(record("a"))
        assert len(await board.fresh()) == 1
        live.put(record("a", WorkloadState.RUNNING))
        assert board.count_states()["running"] == 0
        await board.fresh()
        assert board.count_states()["running"] == 1
        live.drop("default/a")
        assert len(await board.fresh()) == 0

    run(test())
