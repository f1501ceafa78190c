"""The cluster overview while much changes: only the reader who changed something waits for a large update."""

import asyncio
import threading

import pytest

from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.overview import cluster_overview
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.overview.workload_table import MANY, WorkloadRows
from tests.api.fake_loop import FakeLoop, record
from tests.waiting import PATIENCE_S, run, until


def test_a_large_update_is_waited_for_only_by_who_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate = threading.Event(), threading.Event()
    updated = cluster_overview._updated

    def slow(*arguments: object) -> WorkloadRows:
        begun.set()
        assert gate.wait(PATIENCE_S)
        return updated(*arguments)  # type: ignore[arg-type]

    async def test() -> None:
        live = FakeLoop()
        overview = ClusterOverview(live)
        live.put(record("first"))
        assert len(await overview.fresh()) == 1
        monkeypatch.setattr(cluster_overview, "_updated", slow)
        live.put(*(record(f"w{number}") for number in range(MANY + 1)))
        update = asyncio.create_task(overview.fresh())
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        assert len(await overview.fresh()) == 1, "the rows of before are good enough for others"
        live.put(record("mine"))
        overview.mark_changed()
        mine = asyncio.create_task(overview.fresh())
        await until(lambda: overview._lock._waiters, "the reader who wrote to wait")  # type: ignore[attr-defined]
        assert not mine.done()
        gate.set()
        assert (await mine).find("default/mine") is not None
        assert len(await update) == MANY + 3

    run(test())


def test_small_changes_are_seen_at_once() -> None:
    async def test() -> None:
        live = FakeLoop()
        overview = ClusterOverview(live)
        await overview.fresh()
        live.put(record("a"))
        assert len(await overview.fresh()) == 1
        live.put(record("a", WorkloadState.RUNNING))
        assert overview.count_states()["running"] == 0
        await overview.fresh()
        assert overview.count_states()["running"] == 1
        live.drop("default/a")
        assert len(await overview.fresh()) == 0

    run(test())
