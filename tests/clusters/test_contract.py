"""What every kind of cluster does: pods, gangs, evictions, attempts."""

import pytest
from msgspec.structs import replace

from kaiwo.model.events import NominationChanged, PodChanged, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import WHOLE_MIB, Kind, opened, put_queue, remove_queue, some_nodes, start_of, whole
from tests.waiting import run


def test_the_first_batch_is_the_whole_state(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            assert set(scene.told_state.nodes) == {"node-1", "node-2"}
            assert set(scene.told_state.queues) == {"default"}

    run(test())


def test_a_second_reader_gets_the_whole_state_and_the_first_one_ends(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            async for batch in scene.cluster.events():
                assert WorkloadChanged(scene.workload("a")) in batch
                break
            await scene.settle()

    run(test())


def test_work_is_submitted_at_the_clusters_time(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            before_s = scene.cluster.now_s()
            await scene.submit("a", submitted_s=7)
            assert before_s <= scene.workload("a").submitted_s <= scene.cluster.now_s()
            assert scene.state("a") is WorkloadState.WAITING

    run(test())


def test_a_started_pod_runs_to_its_end(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            assert await scene.start(start_of("a")) == ("default/a/main-0",)
            await scene.until_state("a", WorkloadState.SUCCEEDED)
            await scene.settle()
            record = scene.cluster.record("default/a")
            assert (record.attempt, record.exit_code) == (1, 0)
            assert record.ended_s - record.started_s >= 60
            phases = [event.pod.phase for event in scene.seen if isinstance(event, PodChanged)]
            assert phases[-2:] == [Phase.RUNNING, Phase.DONE]
            assert PodGone("default/a", "main-0") in scene.seen
            assert WorkloadGone("default/a", record.ended_s - record.started_s) in scene.seen

    run(test())


def test_a_start_applied_twice_starts_once(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            await scene.start(start_of("a"))
            assert await scene.start(start_of("a")) == ()
            assert await scene.start(start_of("a", node="node-2")) == ()
            await scene.settle()
            assert scene.told_state.pods["default/a", "main-0"].node == "node-1"
            assert scene.cluster.record("default/a").attempt == 1

    run(test())


def test_a_gang_starts_together_or_not_at_all(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("gang", pods=2)
            await scene.submit("other")
            await scene.start(start_of("other", devices=whole(1)))
            first, second = start_of("gang", devices=whole(0)), start_of("gang", "main-1", devices=whole(1))
            assert await scene.start(first, second) == ()
            assert scene.state("gang") is WorkloadState.WAITING
            await scene.settle()
            assert ("default/gang", "main-0") not in scene.told_state.pods
            assert "gpu-1" in scene.workload("gang").not_before_why
            assert await scene.start(first) == ()
            assert "only a part" in scene.workload("gang").not_before_why
            assert len(await scene.start(first, replace(second, node="node-2"))) == 2

    run(test())


def test_a_refused_start_waits_longer_each_time(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            pauses = []
            for _ in range(8):
                now_s = scene.cluster.now_s()
                await scene.start(start_of("a", node="nowhere"))
                pauses.append(scene.workload("a").not_before_s - now_s)
            # The clock of a real cluster may tick in between.
            assert all(
                want <= pause <= want + 30 for want, pause in zip((1, 2, 4, 8, 16, 32, 60, 60), pauses, strict=True)
            )
            assert scene.workload("a").not_before_why == "node nowhere is gone"
            await scene.start(start_of("a"))
            await scene.until_state("a", WorkloadState.SUCCEEDED)

    run(test())


@pytest.mark.parametrize(
    ("request_", "devices", "why"),
    [
        (Request(gpus=2), whole(0), "asks for 2 devices"),
        (Request(gpus=2), whole(0) * 2, "asks for 2 devices"),
        (Request(gpus=1), (Share("gpu-0", 500, 0),), "asks for a share of 1 of each device"),
        (Request(gpus=1, gpu_milli=600), (Share("gpu-7", 600, 1),), "gpu-7"),
        (Request(gpus=1, gpu_mib=60_000), (Share("gpu-7", 0, 60_000),), "gpu-7"),
        (Request(gpus=1), whole(9), "no device gpu-9"),
        (Request(gpus=1), whole(6), "not healthy"),
        (Request(cpu_milli=192_000), (), "CPU"),
        (Request(memory_mib=2 << 20), (), "memory"),
        (Request(extended=(("example.com/port", 1),)), (), "example.com/port"),
    ],
)
def test_nothing_is_given_twice_even_when_the_plan_is_wrong(
    kind: Kind, request_: Request, devices: tuple[Share, ...], why: str
) -> None:
    async def test() -> None:
        gpus = [Gpu(f"gpu-{index}", "MI300X", WHOLE_MIB, healthy=index != 6) for index in range(8)]
        async with opened(kind, [Node("node-1", 192_000, 2 << 20, gpus=tuple(gpus))]) as scene:
            half = Request(cpu_milli=1, memory_mib=1, gpus=1, gpu_milli=500)
            await scene.submit("there", request=half)
            await scene.start(start_of("there", devices=(Share("gpu-7", 500, 150_000),)))
            await scene.submit("a", request=request_)
            assert await scene.start(start_of("a", devices=devices)) == ()
            assert why in scene.workload("a").not_before_why
            await scene.settle()
            assert ("default/a", "main-0") not in scene.told_state.pods

    run(test())


def test_two_halves_share_a_device(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            half = Request(gpus=1, gpu_milli=500)
            await scene.submit("a", "b", "c", request=half)
            share = (Share("gpu-0", 500, WHOLE_MIB // 2),)
            assert len(await scene.start(start_of("a", devices=share), start_of("b", devices=share))) == 2
            assert await scene.start(start_of("c", devices=share)) == ()

    run(test())


def test_work_that_is_over_held_or_unknown_does_not_start(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("cancelled", "held")
            await scene.submit("child", after=("held",))
            await scene.cluster.work.change("cancel", "default/cancelled")
            await scene.cluster.work.change("hold", "default/held")
            for name in ("cancelled", "held", "unknown", "child"):
                assert await scene.start(start_of(name)) == ()
            await scene.settle()
            assert scene.told_state.pods == {}
            assert scene.workload("held").not_before_why == "it is held"

    run(test())


def test_a_pod_name_that_the_workload_does_not_have_is_refused(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            for pod in ("main-1", "other-0", "main", "main-00", ""):
                assert await scene.start(start_of("a", pod)) == ()

    run(test())


def test_an_evicted_pod_waits_again_and_it_is_no_failure(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            for attempt in (1, 2, 3):
                await scene.start(start_of("a"))
                await scene.until_state("a", WorkloadState.RUNNING)
                assert await scene.evict("a") == ("default/a/main-0",)
                await scene.until_state("a", WorkloadState.WAITING)
                assert scene.cluster.record("default/a").attempt == attempt
            await scene.settle()
            assert scene.told_state.pods == {}
            assert scene.workload("a").not_before_s == 0
            assert "for default/other" in scene.cluster.record("default/a").message

    run(test())


def test_evicting_one_pod_of_a_gang_stops_all_of_it(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("gang", pods=3)
            await scene.start(*(start_of("gang", f"main-{index}", devices=whole(index)) for index in range(3)))
            assert len(await scene.evict("gang", "main-1")) == 3
            await scene.until_state("gang", WorkloadState.WAITING)

    run(test())


def test_the_surplus_of_an_elastic_gang_goes_alone_and_comes_back(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("elastic", pods=3, minimum=2, program=Program(simulated_s=600))
            await scene.start(*(start_of("elastic", f"main-{index}", devices=whole(index)) for index in range(2)))
            await scene.until_state("elastic", WorkloadState.RUNNING)
            await scene.start(start_of("elastic", "main-2", "node-2"))
            assert await scene.evict("elastic", "main-2") == ("default/elastic/main-2",)
            await scene.until(lambda: len(scene.told_state.pods) == 2)
            assert scene.state("elastic") is WorkloadState.RUNNING
            await scene.start(start_of("elastic", "main-2", "node-2"))
            assert scene.cluster.record("default/elastic").attempt == 1
            await scene.until_state("elastic", WorkloadState.SUCCEEDED)

    run(test())


def test_evicting_what_is_not_there_corrects_the_reader(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            assert await scene.evict("a") == ()
            assert await scene.evict("unknown") == ()
            await scene.settle()
            assert PodGone("default/a", "main-0") in scene.seen

    run(test())


def test_the_time_limit_ends_an_attempt_and_retries_are_counted(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", time_limit_s=90, program=Program(simulated_s=600, retries=1))
            await scene.start(start_of("a"))
            await scene.until(
                lambda: scene.cluster.record("default/a").ended_s or scene.state("a") is WorkloadState.WAITING
            )
            assert scene.state("a") is WorkloadState.WAITING
            assert "time limit of 1 min 30 s" in scene.workload("a").not_before_why
            assert scene.workload("a").not_before_s > 0
            await scene.start(start_of("a"))
            await scene.until_state("a", WorkloadState.FAILED)
            record = scene.cluster.record("default/a")
            assert record.message == "stopped at its time limit of 1 min 30 s"
            assert (record.attempt, record.exit_code) == (2, -15)

    run(test())


def test_a_pod_that_fails_takes_its_gang_along(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("gang", pods=2, minimum=1, time_limit_s=300, program=Program(simulated_s=600))
            await scene.start(start_of("gang"))
            await scene.until_state("gang", WorkloadState.RUNNING)
            await scene.start(start_of("gang", "main-1", devices=whole(1)))
            await scene.until_state("gang", WorkloadState.FAILED)
            await scene.settle()
            assert scene.told_state.pods == {}
            assert "default/gang" not in scene.told_state.workloads

    run(test())


def test_a_gang_that_is_tried_again_gets_its_places_back(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            program = Program(simulated_s=600, retries=1)
            await scene.submit("gang", pods=2, time_limit_s=300, program=program)
            await scene.start(start_of("gang"), start_of("gang", "main-1", devices=whole(1)))
            await scene.until(lambda: scene.state("gang") is WorkloadState.WAITING)
            kept = scene.cluster.state.nominations["default/gang"]
            assert [(each.pod, each.node, each.devices) for each in kept] == [
                ("main-0", "node-1", whole(0)),
                ("main-1", "node-1", whole(1)),
            ]
            assert all(0 < each.lost_s < each.due_s == scene.workload("gang").not_before_s for each in kept)
            await scene.settle()
            assert [event for event in scene.seen if isinstance(event, NominationChanged)][-2:] == [
                NominationChanged(each) for each in kept
            ]
            await scene.start(start_of("gang"), start_of("gang", "main-1", devices=whole(1)))
            assert "default/gang" not in scene.cluster.state.nominations
            await scene.until_state("gang", WorkloadState.FAILED)
            assert not scene.cluster.state.nominations  # it is not tried a third time

    run(test())


def test_a_single_pod_that_is_tried_again_keeps_nothing(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", time_limit_s=90, program=Program(simulated_s=600, retries=1))
            await scene.start(start_of("a"))
            await scene.until(lambda: scene.state("a") is WorkloadState.WAITING)
            assert not scene.cluster.state.nominations

    run(test())


def test_every_change_of_a_record_is_told_by_an_event_that_names_it(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", program=Program(simulated_s=600))
            await scene.submit("b", after=("a",))
            for step in (
                lambda: scene.cluster.work.change("hold", "default/a"),
                lambda: scene.cluster.work.change("release", "default/a"),
                lambda: scene.start(start_of("a")),
                lambda: scene.cluster.work.change("requeue", "default/a"),
                lambda: scene.cluster.work.change("cancel", "default/a"),
                lambda: scene.cluster.work.change("requeue", "default/a"),
                lambda: scene.cluster.work.change("cancel", "default/a"),
                lambda: scene.cluster.work.forget_ended(["default/a"]),
            ):
                await scene.settle()
                del scene.seen[:]
                await step()
                await scene.settle()
                assert any("default/a" in str(event) for event in scene.seen)

    run(test())


def test_queues_are_told_too(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind, some_nodes(1)) as scene:
            await put_queue(scene.cluster, Queue("lab"))
            await scene.settle()
            assert set(scene.told_state.queues) == {"default", "lab"}
            await remove_queue(scene.cluster, "lab")
            await scene.settle()
            assert set(scene.told_state.queues) == {"default"}

    run(test())
