"""Many changes at once: how often the thread is woken and the disk is flushed, and who is told what."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kaiwo.clusters.embedded.state import Transaction
from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local.group_commit import GroupCommit
from kaiwo.model.errors import ClusterError, RefusedError
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import some_nodes, work
from tests.waiting import run

MODULE = "kaiwo.clusters.local.group_commit"
NAMES = [f"w{number:02d}" for number in range(20)]


def count_calls(owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows by one with each call of a method."""
    calls: list[None] = []
    real: Callable[..., object] = getattr(owner, name)

    def counted(*arguments: object) -> object:
        calls.append(None)
        return real(*arguments)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_changes_that_come_together_need_one_visit_of_the_thread_and_one_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.LONGEST_VISIT_S", 60.0)  # also on a busy machine

    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), speed=1000.0)
        await cluster.work.submit([(work(name), Program(simulated_s=30)) for name in NAMES])
        visits = count_calls(cluster._commits, "_commit_some", monkeypatch)
        flushes = count_calls(cluster._commits._flush, "_flush", monkeypatch)
        await asyncio.gather(*(cluster.work.change("cancel", f"default/{name}") for name in NAMES))
        assert (len(visits), len(flushes)) == (1, 1)
        assert {record.state for record in cluster.records()} == {WorkloadState.CANCELLED}
        await cluster.work.submit([(work("alone"), Program())])
        assert (len(visits), len(flushes)) == (2, 2), "an acknowledged submit is always flushed"
        await cluster.close()

    run(test())


def test_a_long_visit_ends_so_that_others_get_their_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.LONGEST_VISIT_S", -1.0)

    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), speed=1000.0)
        visits = count_calls(cluster._commits, "_commit_some", monkeypatch)
        await asyncio.gather(*(cluster.work.submit([(work(name), Program())]) for name in NAMES))
        assert len(visits) == len(NAMES)
        assert [record.workload.name for record in cluster.records()] == [f"default/{name}" for name in NAMES]
        await cluster.close()

    run(test())


def test_one_that_is_refused_neither_stops_the_others_nor_is_it_stored(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), speed=1000.0)

        def refuse(transaction: Transaction) -> None:
            transaction.drop_queue("default")
            raise RefusedError("no")

        answers = await asyncio.gather(
            cluster.work.submit([(work("before"), Program())]),
            cluster.transact(refuse),
            cluster.work.submit([(work("after"), Program())]),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [type(None), RefusedError, type(None)]
        assert "default" in cluster.state.queues
        assert len(cluster.records()) == 2
        await cluster.close()
        again = LocalCluster(tmp_path)
        assert sorted(record.workload.name for record in again.records()) == ["default/after", "default/before"]
        await again.close()

    run(test())


def test_nobody_is_told_that_it_is_safe_when_the_flush_failed_and_it_is_carried_out_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), speed=1000.0)
        await cluster.start()
        carried_out = count_calls(cluster._commits, "_carry_out", monkeypatch)

        def fail() -> None:
            raise ClusterError("the disk is gone")

        monkeypatch.setattr(cluster._commits._flush, "_flush", fail)
        acts = [cluster.work.submit([(work(name), Program())]) for name in ("a", "b")]
        answers = await asyncio.gather(*acts, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["the disk is gone", "the disk is gone"]
        assert len(carried_out) == 2
        await cluster.close()

    run(test())


def test_the_order_is_kept_and_the_answer_waits_for_the_flush(tmp_path: Path) -> None:
    log: list[str] = []

    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), speed=1000.0)
        commit, carry_out = cluster._commits._commit, cluster._commits._carry_out
        flush = cluster._commits._flush._flush

        def written(act: Callable[[Transaction], object]) -> object:
            log.append("commit")
            return commit(act)

        def flushed() -> None:
            log.append("flush")
            flush()

        commits = GroupCommit(written, flushed, cluster._publish, carry_out)  # type: ignore[arg-type]
        numbers = [commits.run(lambda transaction, n=n: log.append(f"act {n}") or n, True) for n in range(3)]  # type: ignore[misc]
        assert await asyncio.gather(*numbers) == [0, 1, 2]
        await commits.close()
        with pytest.raises(ClusterError, match="closed"):
            await commits.run(lambda transaction: None, True)
        await cluster.close()

    run(test())
    assert [line for line in log if line.startswith("act")] == ["act 0", "act 1", "act 2"]
