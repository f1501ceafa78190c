"""What every kind of cluster lets people change of workloads that wait or run."""

from typing import Any

from msgspec.structs import replace

from kaiwo.clusters.protocol import ChangedWorkload
from kaiwo.model.errors import KaiwoError
from kaiwo.model.events import WorkloadGone
from kaiwo.model.plan import Nomination, Plan
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import Kind, Scene, opened, put_queue, start_of, whole
from tests.waiting import run


async def set_fields(scene: Scene, name: str, **fields: Any) -> ChangedWorkload:
    (result,) = await scene.cluster.work.set_many([f"default/{name}"], lambda workload: replace(workload, **fields))
    if isinstance(result, KaiwoError):
        raise result
    return result


async def refusal(scene: Scene, name: str, only_of: str | None = None, **fields: Any) -> str:
    def change(workload: Workload) -> Workload:
        return replace(workload, **fields)

    before = scene.cluster.records()
    (result,) = await scene.cluster.work.set_many([f"default/{name}"], change, only_of=only_of)
    assert isinstance(result, KaiwoError)
    assert scene.cluster.records() == before, "a refused change changes nothing"
    return str(result)


def test_waiting_work_is_changed_and_keeps_its_age(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await put_queue(scene.cluster, Queue("lab"))
            await scene.submit("a", user="ada")
            before = scene.workload("a")
            result = await set_fields(scene, "a", queue="lab", priority=7, time_limit_s=60)
            assert result == ChangedWorkload(before, replace(before, queue="lab", priority=7, time_limit_s=60))
            assert scene.workload("a") == result.after
            assert scene.workload("a").submitted_s == before.submitted_s
            await scene.settle()
            assert scene.told_state.workloads["default/a"] == result.after

    run(test())


def test_a_change_is_checked_like_a_submission(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await put_queue(scene.cluster, Queue("lab", max_priority=10))
            await put_queue(scene.cluster, Queue("closed", users=("bob",)))
            await scene.submit("a", user="ada")
            assert "did you mean lab?" in await refusal(scene, "a", queue="lap")
            assert "users bob only" in await refusal(scene, "a", queue="closed")
            assert "allows at most 10" in await refusal(scene, "a", queue="lab", priority=11)
            assert "reservation nope, which does not exist" in await refusal(scene, "a", reservation="nope")
            assert "expire before" in await refusal(scene, "a", expires_s=1)
            assert "belongs to user 'ada'" in await refusal(scene, "a", only_of="bob", priority=-1)
            assert "does not exist" in await refusal(scene, "b", priority=-1)

    run(test())


def test_what_was_planned_for_another_size_is_given_up(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            nomination = Nomination("default/a", "main-0", "node-1", whole(0))
            await scene.cluster.apply(Plan(nominations=(nomination,)))
            assert scene.cluster.state.nominations["default/a"] == (nomination,)
            await set_fields(scene, "a", priority=3)
            assert scene.cluster.state.nominations["default/a"] == (nomination,)
            await scene.settle()
            assert WorkloadGone("default/a") not in scene.seen
            role = scene.workload("a").roles[0]
            await set_fields(scene, "a", roles=(replace(role, request=replace(role.request, gpus=2)),))
            assert "default/a" not in scene.cluster.state.nominations
            await scene.settle()
            assert WorkloadGone("default/a") in scene.seen

    run(test())


def test_a_plan_for_the_size_before_the_change_does_not_start(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            role = scene.workload("a").roles[0]
            await set_fields(scene, "a", roles=(replace(role, request=replace(role.request, gpus=2)),))
            assert await scene.start(start_of("a")) == ()
            assert scene.state("a") is WorkloadState.WAITING

    run(test())


def test_of_running_work_only_priority_and_times_change(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await put_queue(scene.cluster, Queue("lab"))
            await scene.submit("a", program=Program(simulated_s=100_000))
            await scene.start(start_of("a"))
            for fields in ({"queue": "lab"}, {"held": True}, {"reservation": "x"}, {"preemptible": False}):
                assert "only its priority, time and estimate" in await refusal(scene, "a", **fields)
            await set_fields(scene, "a", priority=3, estimate_s=60)
            assert scene.workload("a").priority == 3
            await scene.cluster.work.change("cancel", "default/a")
            await scene.until_state("a", WorkloadState.CANCELLED)
            assert "requeue it" in await refusal(scene, "a", priority=4)

    run(test())


def test_a_shorter_time_limit_ends_simulated_work_earlier(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", program=Program(simulated_s=10**8))
            await scene.start(start_of("a"))
            await set_fields(scene, "a", time_limit_s=600)
            await scene.until_state("a", WorkloadState.FAILED)
            record = scene.cluster.record("default/a")
            assert record.message == "stopped at its time limit of 10 min"
            assert 600 <= record.ended_s - record.started_s < 10_000

    run(test())


def test_a_longer_time_limit_lets_simulated_work_finish(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", program=Program(simulated_s=3000), time_limit_s=600)
            await scene.start(start_of("a"))
            await set_fields(scene, "a", time_limit_s=0)
            await scene.until_state("a", WorkloadState.SUCCEEDED)
            record = scene.cluster.record("default/a")
            assert record.ended_s - record.started_s >= 3000

    run(test())


def test_a_limit_that_has_already_passed_ends_it_now(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("b", program=Program(simulated_s=2000))
            await scene.submit("a", program=Program(simulated_s=10**8))
            await scene.start(start_of("a"), start_of("b", devices=whole(1)))
            await scene.until_state("b", WorkloadState.SUCCEEDED)
            await set_fields(scene, "a", time_limit_s=1000)
            await scene.until_state("a", WorkloadState.FAILED)
            assert scene.cluster.record("default/a").message == "stopped at its time limit of 16 min 40 s"

    run(test())
