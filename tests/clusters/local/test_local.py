"""The local cluster itself: what survives a restart, large batches, trouble with the disk, the audit log."""

import asyncio
import os
import signal
import sqlite3
import stat
from pathlib import Path

import pytest

from kaiwo.clusters.local import LocalCluster, virtual_nodes
from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.clusters.local.home_folder import Home
from kaiwo.clusters.local.run_folder import RunFolder
from kaiwo.clusters.protocol import NodeFault
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue
from kaiwo.model.recovery import BadNode
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import put_queue, some_nodes, start_of, work
from tests.waiting import run, until


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(2), speed=50.0)
        await put_queue(first, Queue("lab", display_name="The lab"))
        await first.work.submit([(work("a", labels={"team": "x"}), Program(simulated_s=3600)), (work("b"), Program())])
        await first.work.submit([(work("c", queue="lab", after=("a",)), Program(env={"A": "1"}))])
        await first.apply(Plan(starts=(start_of("a"),)))
        await first.work.change("hold", "default/b")
        await first.nodes.cordon("node-2", True, "noise")
        records, now_s = list(first.records()), first.now_s()
        state = set(map(str, first.state.as_events()))
        await first.close()
        second = LocalCluster(tmp_path, some_nodes(2), speed=1.0)
        assert sorted(second.records(), key=str) == sorted(records, key=str)
        assert set(map(str, second.state.as_events())) == state
        assert now_s <= second.now_s() <= now_s + 100
        assert second.state.nodes["node-2"].reason == "noise"
        await second.close()

    run(test())


def test_a_failed_node_is_no_working_one_after_a_restart_with_the_same_nodes(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(3), speed=1.0)
        await first.nodes.fail("node-1", NodeFault("power"))
        await first.nodes.fail("node-2", NodeFault("hung", is_unreachable=True))
        await first.nodes.fail("node-3", NodeFault("hot"))
        await first.nodes.restore("node-3")
        await first.apply(Plan(bad_nodes=(BadNode("node-3", "default/a"),)))
        before = dict(first.state.nodes)
        await first.close()
        second = LocalCluster(tmp_path, some_nodes(3), speed=1.0)
        after = second.state.nodes
        assert {name: node.failure for name, node in after.items()} == {
            name: node.failure for name, node in before.items()
        }
        assert [after[f"node-{at}"].ready for at in (1, 2, 3)] == [False, False, True]
        assert [after[f"node-{at}"].failure.is_fenced for at in (1, 2, 3)] == [True, False, False]
        assert (after["node-1"].reason, after["node-3"].failure.bad_for) == ("power", ("default/a",))
        await second.nodes.restore("node-1")
        assert second.state.nodes["node-1"].ready
        await second.close()

    run(test())


def test_simulated_work_goes_on_where_it_stood(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(1), speed=1.0)
        await first.work.submit([(work("a"), Program(simulated_s=100))])
        await first.apply(Plan(starts=(start_of("a"),)))
        await first.close()
        second = LocalCluster(tmp_path, speed=1000.0)
        await second.start()
        assert second.record("default/a").state is WorkloadState.RUNNING
        await until(lambda: second.record("default/a").state is WorkloadState.SUCCEEDED)
        record = second.record("default/a")
        assert record.ended_s - record.started_s >= 100
        await second.close()

    run(test())


STUBBORN = Program(command=("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_process_past_its_time_limit_is_stopping_until_it_is_killed(tmp_path: Path, is_restarted: bool) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), grace_s=2.0)
        await cluster.work.submit([(work("a", time_limit_s=1), STUBBORN)])
        await cluster.apply(Plan(starts=(start_of("a"),)))
        await until(lambda: cluster.record("default/a").state is WorkloadState.RUNNING)
        if is_restarted:
            await cluster.close()
            cluster = LocalCluster(tmp_path)
            await cluster.start()
        await until(lambda: cluster.record("default/a").state is not WorkloadState.RUNNING)
        record = cluster.record("default/a")
        assert (record.state, record.message) == (WorkloadState.STOPPING, "stopped at its time limit of 1 s")
        await until(lambda: cluster.record("default/a").state.is_over)
        record = cluster.record("default/a")
        assert (record.state, record.exit_code) == (WorkloadState.FAILED, -signal.SIGKILL)
        assert record.message == "stopped at its time limit of 1 s"
        await cluster.close()

    run(test())


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_process_that_is_cancelled_keeps_its_exit_code(tmp_path: Path, is_expired: bool) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        program = Program(command=("sleep", "60"))
        await cluster.work.submit([(work("a", expires_s=cluster.now_s() + 1000), program), (work("never"), program)])
        await cluster.apply(Plan(starts=(start_of("a"),)))
        await until(lambda: cluster.record("default/a").state is WorkloadState.RUNNING)
        await (
            cluster.apply(Plan(expired=("default/a",))) if is_expired else cluster.work.change("cancel", "default/a")
        )
        await until(lambda: cluster.record("default/a").state is WorkloadState.CANCELLED)
        assert cluster.record("default/a").exit_code == -signal.SIGTERM
        await cluster.work.change("cancel", "default/never")
        assert cluster.record("default/never").exit_code == 0
        await cluster.work.change("requeue", "default/a")
        assert cluster.record("default/a").exit_code == 0
        await cluster.close()

    run(test())


@pytest.mark.parametrize(("speed", "limit_s", "least_s"), [(60.0, 120, 1.9), (0.5, 1, 1.9)])
def test_a_time_limit_is_counted_in_the_clusters_time(
    tmp_path: Path, speed: float, limit_s: int, least_s: float
) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), speed=speed)
        await cluster.work.submit([(work("a", time_limit_s=limit_s), Program(command=("sleep", "60")))])
        await cluster.apply(Plan(starts=(start_of("a"),)))
        await until(lambda: cluster.record("default/a").state.is_over)
        record = cluster.record("default/a")
        assert (record.state, record.exit_code) == (WorkloadState.FAILED, -signal.SIGTERM)
        assert limit_s <= record.ended_s - record.started_s + 1  # whole seconds of a slow or fast clock
        end = RunFolder(next((tmp_path / "runs").iterdir())).exit_record()
        assert end is not None
        assert least_s <= end.ended - end.started
        await cluster.close()

    run(test())


def test_a_command_that_ends_by_itself_at_its_time_limit_is_counted_once(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        await cluster.work.submit([(work("a", time_limit_s=1), Program(command=("sleep", "60"), retries=1))])
        await cluster.apply(Plan(starts=(start_of("a"),)))
        await until(lambda: cluster.record("default/a").state is WorkloadState.WAITING)
        await until(lambda: cluster.now_s() >= cluster.record("default/a").workload.not_before_s)
        await cluster.apply(Plan(starts=(start_of("a"),)))
        await until(lambda: cluster.record("default/a").state.is_over)
        assert (cluster.record("default/a").state, cluster.record("default/a").attempt) == (WorkloadState.FAILED, 2)
        await cluster.close()

    run(test())


def test_versions_grow_over_restarts(tmp_path: Path) -> None:
    async def test() -> None:
        versions = []
        for name in ("a", "b"):
            cluster = LocalCluster(tmp_path)
            await cluster.work.submit([(work(name), Program())])
            versions.append(cluster.record(f"default/{name}").version)
            await cluster.close()
        assert versions[0] < versions[1]

    run(test())


def test_other_nodes_can_be_asked_for_at_the_next_start(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(2))
        await first.work.submit([(work("a"), Program()), (work("b"), Program())])
        await first.apply(Plan(starts=(start_of("a"), start_of("b", node="node-2"))))
        await first.close()
        second = LocalCluster(tmp_path, some_nodes(1))
        await second.start()
        assert set(second.state.nodes) == {"node-1"}
        assert second.record("default/a").state is WorkloadState.RUNNING
        assert second.record("default/b").state is WorkloadState.WAITING
        await second.close()

    run(test())


def test_a_real_machine_is_looked_at_again_but_not_lost(tmp_path: Path) -> None:
    async def test() -> None:
        def real(gpus: int) -> list[Node]:
            return [Node("box", 8000, 1024, gpus=tuple(Gpu(f"gpu-{index}", "H100", 80) for index in range(gpus)))]

        for found, gpus in ((real(2), 2), (real(1), 1), (virtual_nodes(), 1)):
            cluster = LocalCluster(tmp_path, default_nodes=lambda found=found: found)
            assert not cluster.is_virtual
            assert len(cluster.state.nodes["box"].gpus) == gpus
            await cluster.close()

    run(test())


def test_a_large_batch_keeps_the_loop_alive_and_is_one_event_batch(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        batches: list[int] = []

        async def read() -> None:
            async for batch in cluster.events():
                batches.append(sum(isinstance(event, WorkloadChanged) for event in batch))

        reader = asyncio.create_task(read())
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turner = asyncio.create_task(turn())
        await cluster.work.submit([(work(f"w-{index}"), Program()) for index in range(5000)])
        turner.cancel()
        await until(lambda: 5000 in batches)
        assert turns > 10
        assert len(cluster.records()) == 5000
        await cluster.close()
        await reader

    run(test())


def test_a_caller_that_gives_up_does_not_break_a_large_batch(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        big = asyncio.create_task(cluster.work.submit([(work(f"w-{index}"), Program()) for index in range(3000)]))
        await asyncio.sleep(0.01)
        big.cancel()
        await cluster.work.submit([(work("small"), Program())])
        assert len(cluster.records()) in (1, 3001)
        await cluster.close()
        again = LocalCluster(tmp_path)
        assert len(again.records()) == len(cluster.records())
        await again.close()

    run(test())


def test_what_cannot_be_kept_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), speed=1000.0)
        await cluster.work.submit([(work("a"), Program(simulated_s=30))])
        await cluster.apply(Plan(starts=(start_of("a"),)))
        save = cluster._store.save

        def fail(change: object) -> None:
            raise ClusterError("the disk is full")

        monkeypatch.setattr("kaiwo.clusters.local.cluster.RETRY_S", 0.01)
        cluster._store.save = fail  # type: ignore[method-assign]
        with pytest.raises(ClusterError, match="full"):
            await cluster.work.submit([(work("b"), Program())])
        assert [record.workload.name for record in cluster.records()] == ["default/a"]
        await until(lambda: cluster._run_events, "the end of a, which cannot be kept")
        assert cluster.record("default/a").state is WorkloadState.RUNNING
        cluster._store.save = save  # type: ignore[method-assign]
        await until(lambda: cluster.record("default/a").state is WorkloadState.SUCCEEDED)
        await cluster.close()

    run(test())


def test_a_damaged_or_newer_store_is_refused_with_a_way_out(tmp_path: Path) -> None:
    LocalCluster(tmp_path).home.close()
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(ClusterError, match="newer Kaiwo"):
        LocalCluster(tmp_path)
    for path in tmp_path.glob("state.db*"):
        path.write_bytes(b"garbage" * 1000)
    with pytest.raises(ClusterError, match=r"state\.db is damaged .*kaiwo restore"):
        LocalCluster(tmp_path)


def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match="KAIWO_HOME"):
        LocalCluster(tmp_path / "file" / "home")


def test_what_earlier_versions_left_readable_is_closed(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir(mode=0o755)
    for name in ("audit.jsonl", "audit.jsonl.1", "run-times.jsonl", "past-use.json"):
        (tmp_path / name).write_text("{}\n")
        (tmp_path / name).chmod(0o644)
    home = Home(tmp_path)
    home.close()
    open_to_others = [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077]
    assert open_to_others == []


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_speed_is_refused(tmp_path: Path, speed: float) -> None:
    with pytest.raises(ConfigError, match="--speed is"):
        LocalCluster(tmp_path, speed=speed)


def test_only_the_owner_can_read_the_state(tmp_path: Path) -> None:
    home = tmp_path / "home"
    LocalCluster(home).home.close()
    for path in (home, home / "runs", home / "state.db"):
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path


def test_virtual_nodes_say_so(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, default_nodes=virtual_nodes, speed=2.0)
    assert cluster.is_virtual
    assert cluster.clock.speed == 2.0
    assert all(node.labels[VIRTUAL_LABEL] == "true" for node in cluster.state.nodes.values())
    cluster.home.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_home_of_another_user_is_refused_and_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    with pytest.raises(ClusterError, match=rf"{home} belongs to another user \(uid 65534\).*set KAIWO_HOME"):
        LocalCluster(home, some_nodes(1))
    assert list(home.iterdir()) == []
