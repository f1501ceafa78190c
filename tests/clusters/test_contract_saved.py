"""What every kind of cluster keeps of work that says it has saved what it did."""

from kaiwo.model.errors import NotFoundError, RefusedError
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import Kind, full, opened, start_of, work
from tests.clusters.test_contract_work import refuses
from tests.waiting import run

LONG = Program(simulated_s=10**6)


def told(events: list[object], name: str) -> list[Workload]:
    return [event.workload for event in events if isinstance(event, WorkloadChanged) and event.workload.name == name]


def test_the_scheduler_is_told_when_work_was_saved_and_of_nothing_else(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("train", program=LONG)
            await scene.start(start_of("train"))
            await scene.until_state("train", WorkloadState.RUNNING)
            await scene.settle()
            seen, before_s = len(scene.seen), scene.cluster.now_s()
            saved_s = await scene.cluster.work.checkpoint(full("train"), who="ada")
            await scene.settle()
            assert before_s <= saved_s <= scene.cluster.now_s()
            assert [type(event) for event in scene.seen[seen:]] == [WorkloadChanged]
            assert told(scene.seen, full("train"))[-1].checkpoint_s == saved_s
            assert scene.workload("train").checkpoint_s == saved_s

    run(test())


def test_the_latest_time_counts_and_none_is_still_to_come(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("train", program=LONG)
            await scene.start(start_of("train"))
            cluster, at_s = scene.cluster, scene.cluster.now_s()
            assert await cluster.work.checkpoint(full("train"), at_s - 50) == at_s - 50
            assert await cluster.work.checkpoint(full("train"), at_s - 90) == at_s - 50
            assert at_s <= await cluster.work.checkpoint(full("train"), at_s + 10**9) <= cluster.now_s()

    run(test())


def test_work_that_was_saved_stays_saved_when_it_is_stopped(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("train", program=LONG)
            await scene.start(start_of("train"))
            await scene.until_state("train", WorkloadState.RUNNING)
            saved_s = await scene.cluster.work.checkpoint(full("train"))
            await scene.cluster.work.change("requeue", full("train"))
            await scene.until_state("train", WorkloadState.WAITING)
            assert scene.workload("train").checkpoint_s == saved_s
            await scene.start(start_of("train"))
            await scene.evict("train")
            await scene.until_state("train", WorkloadState.WAITING)
            assert scene.workload("train").checkpoint_s == saved_s

    run(test())


def test_work_that_comes_anew_under_the_name_has_saved_nothing(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("train", program=LONG)
            await scene.start(start_of("train"))
            await scene.cluster.work.checkpoint(full("train"))
            await scene.cluster.work.change("cancel", full("train"))
            await scene.until_state("train", WorkloadState.CANCELLED)
            await scene.submit("train", program=LONG)
            assert scene.workload("train").checkpoint_s == 0

    run(test())


def test_a_file_that_says_a_time_to_come_is_cut_at_the_door(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            now_s = scene.cluster.now_s()
            items = [(work("old", checkpoint_s=now_s - 5), LONG), (work("new", checkpoint_s=now_s + 10**9), LONG)]
            await scene.cluster.work.submit(items)
            assert scene.workload("old").checkpoint_s == now_s - 5
            assert now_s <= scene.workload("new").checkpoint_s <= scene.cluster.now_s()

    run(test())


def test_who_never_ran_or_is_over_has_nothing_to_save(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("train", program=LONG)
            await refuses(
                scene.cluster.work.checkpoint(full("train")), RefusedError, "has not run yet", "wait until it runs"
            )
            await refuses(scene.cluster.work.checkpoint(full("ghost")), NotFoundError, "default/ghost")
            await scene.cluster.work.change("cancel", full("train"))
            await refuses(scene.cluster.work.checkpoint(full("train")), RefusedError, "has ended")
            assert scene.workload("train").checkpoint_s == 0

    run(test())
