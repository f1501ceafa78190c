"""What every kind of cluster asks of queues, and of the work that names them."""

import pytest
from msgspec.structs import replace

from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import Kind, opened, run, work
from tests.clusters.test_contract_work import refuses


def test_a_queue_keeps_its_age_when_it_changes(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await cluster.put_queue(Queue("a"))
            made_s = cluster.world.queues["a"].created_s
            assert 0 < made_s <= cluster.now_s()
            await scene.submit("clock")
            await scene.start_on("clock")
            await scene.until_state("clock", WorkloadState.SUCCEEDED)
            await cluster.put([Queue("a", priority=7), Queue("b")], [])
            assert cluster.world.queues["a"] == Queue("a", priority=7, created_s=made_s)
            assert cluster.world.queues["b"].created_s > made_s

    run(test())


def test_a_queue_that_is_applied_again_as_it_was_changes_nothing(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.put_queue(Queue("a"))
            await scene.settle()
            told = len(scene.seen)
            await scene.cluster.put_queue(Queue("a"))
            await scene.settle()
            assert len(scene.seen) == told

    run(test())


def test_queues_that_contradict_themselves_are_refused_with_the_field(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            low = Queue("low", gpu=QueueAmounts(quota=4000, limit=2000))
            for batch in ([low], [Queue("fine"), low]):
                with_them = scene.cluster.put(batch, [(work("a"), Program())])
                await refuses(with_them, ConfigError, "GPU limit of 2, below its quota of 4", "raise the limit")
            with pytest.raises(ConfigError) as caught:
                await scene.cluster.put_queue(low)
            assert caught.value.field == "spec.resources.gpu.limit"
            assert set(scene.cluster.world.queues) == {"default"}
            assert scene.cluster.records() == []

    run(test())


def test_an_old_mistake_does_not_keep_people_from_other_queues(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            with scene.cluster.world.changing(0) as change:  # as an earlier version let it in
                change.put_queue(Queue("old", gpu=QueueAmounts(quota=4000, limit=2000)))
            scene.told_state.patch(change.events)
            await scene.cluster.put_queue(Queue("new"))
            still_wrong = Queue("old", gpu=QueueAmounts(quota=4000, limit=1000))
            await refuses(scene.cluster.put_queue(still_wrong), ConfigError, "limit of 1")
            await scene.cluster.put_queue(Queue("old", gpu=QueueAmounts(quota=4000)))

    run(test())


def test_a_queue_takes_the_work_of_its_namespaces_and_users(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            lab = Queue("lab", namespaces=("vision", "speech"))
            await cluster.put([lab, Queue("team", parent="lab", users=("ada",))], [])
            good = work("vision/a", queue="team", user="ada")
            await cluster.submit([(good, Program())])
            other_user = replace(good, name="vision/b", user="grace")
            no_user = replace(good, name="vision/b", user="")
            elsewhere = replace(good, name="default/b")
            await refuses(
                cluster.submit([(other_user, Program())]), RefusedError, "users ada only", "grace's", "spec.users"
            )
            await refuses(cluster.submit([(no_user, Program())]), RefusedError, "has no user")
            await refuses(
                cluster.submit([(elsewhere, Program())]), RefusedError, "queue lab", "is in default", "spec.namespaces"
            )
            assert [record.workload.name for record in cluster.records()] == ["vision/a"]

    run(test())


def test_work_that_ended_comes_back_only_where_it_is_still_welcome(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await cluster.put_queue(Queue("team"))
            await scene.submit("a", queue="team", user="ada")
            await cluster.cancel("default/a")
            await cluster.put_queue(Queue("team", users=("grace",)))
            await refuses(cluster.requeue("default/a"), RefusedError, "users grace only")

    run(test())
