"""What every kind of cluster asks of queues, and of the work that names them."""

import pytest
from msgspec.structs import replace

from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import Kind, opened, put_queue, work
from tests.clusters.test_contract_work import refuses
from tests.waiting import run


def test_a_queue_keeps_its_age_when_it_changes(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await put_queue(cluster, Queue("a"))
            made_s = cluster.state.queues["a"].created_s
            assert 0 < made_s <= cluster.now_s()
            await scene.submit("clock")
            await scene.start_on("clock")
            await scene.until_state("clock", WorkloadState.SUCCEEDED)
            await cluster.work.put([Queue("a", priority=7), Queue("b")], [])
            assert cluster.state.queues["a"] == Queue("a", priority=7, created_s=made_s)
            assert cluster.state.queues["b"].created_s > made_s

    run(test())


def test_a_queue_that_is_applied_again_as_it_was_changes_nothing(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await put_queue(scene.cluster, Queue("a"))
            await scene.settle()
            told = len(scene.seen)
            await put_queue(scene.cluster, Queue("a"))
            await scene.settle()
            assert len(scene.seen) == told

    run(test())


def test_queues_that_contradict_themselves_are_refused_with_the_field(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            low = Queue("low", gpu=QueueAmounts(quota=4000, limit=2000))
            for batch in ([low], [Queue("fine"), low]):
                with_them = scene.cluster.work.put(batch, [(work("a"), Program())])
                await refuses(with_them, ConfigError, "GPU limit of 2, below its quota of 4", "raise the limit")
            with pytest.raises(ConfigError) as caught:
                await put_queue(scene.cluster, low)
            assert caught.value.field == "spec.resources.gpu.limit"
            assert set(scene.cluster.state.queues) == {"default"}
            assert scene.cluster.records() == []

    run(test())


def test_an_old_mistake_does_not_keep_people_from_other_queues(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            with scene.cluster.state.transaction(0) as change:  # as an earlier version let it in
                change.put_queue(Queue("old", gpu=QueueAmounts(quota=4000, limit=2000)))
            scene.told_state.patch(change.events)
            await put_queue(scene.cluster, Queue("new"))
            still_wrong = Queue("old", gpu=QueueAmounts(quota=4000, limit=1000))
            await refuses(put_queue(scene.cluster, still_wrong), ConfigError, "limit of 1")
            await put_queue(scene.cluster, Queue("old", gpu=QueueAmounts(quota=4000)))

    run(test())


def test_a_queue_takes_the_work_of_its_namespaces_and_users(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            lab = Queue("lab", namespaces=("vision", "speech"))
            await cluster.work.put([lab, Queue("team", parent="lab", users=("ada",))], [])
            good = work("vision/a", queue="team", user="ada")
            await cluster.work.submit([(good, Program())])
            other_user = replace(good, name="vision/b", user="grace")
            no_user = replace(good, name="vision/b", user="")
            elsewhere = replace(good, name="default/b")
            await refuses(
                cluster.work.submit([(other_user, Program())]), RefusedError, "users ada only", "grace's", "spec.users"
            )
            await refuses(cluster.work.submit([(no_user, Program())]), RefusedError, "has no user")
            await refuses(
                cluster.work.submit([(elsewhere, Program())]),
                RefusedError,
                "queue lab",
                "is in default",
                "spec.namespaces",
            )
            assert [record.workload.name for record in cluster.records()] == ["vision/a"]

    run(test())


def test_work_that_ended_comes_back_only_where_it_is_still_welcome(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await put_queue(cluster, Queue("team"))
            await scene.submit("a", queue="team", user="ada")
            await cluster.work.change("cancel", "default/a")
            await put_queue(cluster, Queue("team", users=("grace",)))
            await refuses(cluster.work.change("requeue", "default/a"), RefusedError, "users grace only")

    run(test())
