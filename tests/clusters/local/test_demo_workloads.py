"""The sample work is what it says it is, and goes away without a trace."""

import asyncio

import pytest

from kaiwo.clusters.local import demo_workloads, virtual_nodes
from kaiwo.clusters.local.demo_workloads import clear_demo, keep_submitting, submit_demo
from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import start_of, work
from tests.waiting import run


def test_the_sample_has_work_of_all_kinds() -> None:
    items = demo_workloads.sample()
    requests = [role.request for workload, _ in items for role in workload.roles]
    assert all(workload.labels["kaiwo.ai/demo"] == "true" for workload, _ in items)
    assert {workload.kind for workload, _ in items} == {"training", "batch", "inference", "notebook"}
    assert any(request.is_whole for request in requests)
    assert any(request.is_fraction for request in requests)
    assert any(request.is_memory for request in requests)
    assert any(request.gpus == 0 for request in requests)
    assert any(sum(role.needed for role in workload.roles) > 1 for workload, _ in items)
    assert any(workload.after for workload, _ in items)
    assert any(workload.held for workload, _ in items)
    assert any("kaiwo.ai/array-index" in workload.labels for workload, _ in items)
    assert all(2 * 60 <= program.simulated_s <= 40 * 60 for _, program in items)


def test_it_can_be_submitted_twice_and_cleared_while_others_stay() -> None:
    async def test() -> None:
        cluster = SimulatedCluster(virtual_nodes())
        names = await submit_demo(cluster)
        assert len(names) == len(demo_workloads.sample())
        assert await submit_demo(cluster) == ()
        await cluster.work.submit([(work("mine"), Program())])
        await cluster.apply(Plan(starts=(start_of("demo/tokenize-corpus", devices=()),)))
        cleared = await clear_demo(cluster)
        assert set(cleared.names) == set(names)
        assert cleared.stopping == ()
        assert set(cleared.queues) == {queue.name for queue in demo_workloads.QUEUES}
        assert [record.workload.name for record in cluster.records()] == ["default/mine"]
        assert set(cluster.state.queues) == {"default"}
        assert cluster.state.pods == {}

    run(test())


def test_a_queue_that_others_use_stays() -> None:
    async def test() -> None:
        cluster = SimulatedCluster(virtual_nodes())
        await submit_demo(cluster)
        await cluster.work.submit([(work("mine", queue="vision"), Program())])
        await clear_demo(cluster)
        assert set(cluster.state.queues) == {"default", "research", "vision"}

    run(test())


def test_a_queue_that_was_there_before_is_neither_changed_nor_removed() -> None:
    async def test() -> None:
        mine = Queue("production", display_name="My own", gpu=QueueAmounts(quota=5000))
        cluster = SimulatedCluster(virtual_nodes(), [mine])
        await submit_demo(cluster)
        assert cluster.state.queues["production"] == mine
        await clear_demo(cluster)
        assert set(cluster.state.queues) == {"default", "production"}

    run(test())


def test_new_jobs_trickle_in_until_too_many_wait_or_the_demo_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(demo_workloads, "POLL_S", 0)
        cluster = SimulatedCluster(virtual_nodes())
        await submit_demo(cluster)
        for record in cluster.records():
            if record.workload.name != demo_workloads.ANCHOR:
                await cluster.work.change("cancel", record.workload.name)
        task = asyncio.create_task(keep_submitting(cluster))
        await pass_time(cluster, 200)
        assert living(cluster) == {
            demo_workloads.ANCHOR,
            *(f"demo/job-{index}" for index in range(demo_workloads.MAX_WAITING)),
        }
        for name in living(cluster) - {demo_workloads.ANCHOR}:
            await cluster.work.change("cancel", name)
        await pass_time(cluster, 2)
        assert living(cluster) == {demo_workloads.ANCHOR, "demo/job-0", "demo/job-1"}
        await clear_demo(cluster)
        await pass_time(cluster, 2)
        assert task.done()
        assert not cluster.records()

    run(test())


async def pass_time(cluster: SimulatedCluster, jobs: int) -> None:
    for _ in range(jobs):
        cluster.advance(demo_workloads.NEW_JOB_S)
        for _ in range(4):
            await asyncio.sleep(0)


def living(cluster: SimulatedCluster) -> set[str]:
    return {record.workload.name for record in cluster.records() if not record.state.is_over}
