"""The default queue: everything while it is alone, leftovers beside other queues, and what an admin gives it."""

import sqlite3
from pathlib import Path

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.webhooks.review_queue import read_queues
from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.model.events import QueueChanged, QueueGone
from kaiwo.model.queue import (
    LEFTOVER_DEFAULT_QUEUE,
    UNBOUNDED,
    UNBOUNDED_DEFAULT_QUEUE,
    UNLIMITED,
    Queue,
    QueueAmounts,
)
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from tests.clusters.kinds import Kind, opened, put_queue
from tests.clusters.local.test_reconcile import kaiwo
from tests.runtime.test_scheduling_loop import run as play
from tests.runtime.test_scheduling_loop import until
from tests.waiting import run

GENEROUS = Queue("default", gpu=UNBOUNDED)


def quota_of_default(opened_cluster: object) -> int:
    return int(opened_cluster.state.queues["default"].gpu.quota)  # type: ignore[attr-defined]


def test_alone_it_has_everything_and_beside_others_it_has_leftovers(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            assert quota_of_default(scene.cluster) == UNLIMITED
            await put_queue(scene.cluster, Queue("lab"))
            assert quota_of_default(scene.cluster) == 0
            await put_queue(scene.cluster, Queue("other"))
            await scene.cluster.work.remove(("lab",), ())
            assert quota_of_default(scene.cluster) == 0
            await scene.cluster.work.remove(("other",), ())
            assert quota_of_default(scene.cluster) == UNLIMITED

    run(test())


def test_what_an_admin_gives_it_stays_even_if_that_is_everything(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await put_queue(scene.cluster, GENEROUS)
            await put_queue(scene.cluster, Queue("lab"))
            assert quota_of_default(scene.cluster) == UNLIMITED
            await put_queue(scene.cluster, Queue("default", gpu=QueueAmounts(2_000)))
            assert quota_of_default(scene.cluster) == 2_000

    run(test())


def test_a_team_gets_its_quota_back_from_work_in_the_default_queue(tmp_path: Path) -> None:
    """Lesson 41: the default queue had an unlimited quota, and every team's quota was void."""

    async def story(loop: SchedulingLoop, simulated: SimulatedCluster) -> None:
        await simulated.work.put(
            [Queue("team", gpu=QueueAmounts(quota=2_000))], [job(f"j{at}", "default") for at in range(4)]
        )
        await until(loop, lambda: len(loop.state.pods) == 4)
        await simulated.work.submit([job(f"t{at}", "team") for at in range(2)])
        await until(loop, lambda: {"default/t0", "default/t1"} <= set(loop.state.pods))
        assert sum(name.startswith("default/j") for name in loop.state.pods) == 2

    play(tmp_path, story)


def test_a_stored_default_queue_that_nobody_changed_is_migrated(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as first:
            await first.work.put([Queue("lab")], [])
        store_default(tmp_path, GENEROUS)  # as 0.1.0 stored it
        async with kaiwo(tmp_path) as later:
            assert later.state.queues["default"] == LEFTOVER_DEFAULT_QUEUE

    run(test())


def test_a_default_queue_that_an_admin_defined_survives_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as first:
            await first.work.put([Queue("lab"), GENEROUS], [])
        async with kaiwo(tmp_path) as later:
            assert quota_of_default(later) == UNLIMITED
        store_default(tmp_path, Queue("default", gpu=QueueAmounts(3_000)))  # changed with 0.1.0
        async with kaiwo(tmp_path) as later:
            assert quota_of_default(later) == 3_000

    run(test())


def test_on_kubernetes_it_follows_the_queue_objects() -> None:
    queues = ClusterCache().queue_cache
    assert queues.items["default"] == UNBOUNDED_DEFAULT_QUEUE
    assert queues.upsert(Queue("lab")) == [QueueChanged(Queue("lab")), QueueChanged(LEFTOVER_DEFAULT_QUEUE)]
    assert queues.upsert(GENEROUS) == [QueueChanged(GENEROUS)]
    assert queues.delete("default") == [QueueChanged(LEFTOVER_DEFAULT_QUEUE)]
    assert queues.delete("lab") == [QueueGone("lab"), QueueChanged(UNBOUNDED_DEFAULT_QUEUE)]
    assert read_queues([]) == {"default": UNBOUNDED_DEFAULT_QUEUE}, "the webhook sees the same queues"


def job(name: str, queue: str) -> tuple[Workload, Program]:
    return Workload(f"default/{name}", (Role(Request(gpus=1)),), queue), Program(simulated_s=600)


def store_default(home: Path, queue: Queue) -> None:
    with sqlite3.connect(home / "state.db") as database:
        database.execute("UPDATE queues SET data = ? WHERE name = 'default'", (msgspec.msgpack.encode(queue),))
    database.close()
