"""Planned starts, and the mark of who fills a gap, outlive the process that planned them."""

from pathlib import Path

from kaiwo.clusters.local import LocalCluster
from kaiwo.model.events import PlannedStartChanged, PodChanged
from kaiwo.model.plan import Plan, Start
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import full, some_nodes, whole, work
from tests.waiting import run


def promise(name: str, start_s: int = 600) -> PlannedStart:
    return PlannedStart(full(name), start_s, (PlannedPod("main-0", "node-1", whole(0), 1000, 1024),), 60, 5)


def opened(home: Path) -> LocalCluster:
    return LocalCluster(home, some_nodes(2), speed=1000.0, grace_s=1.0)


async def told(home: Path) -> tuple[list[PlannedStart], dict[str, int]]:
    """What the first batch of a new process says of planned starts, and of gaps."""
    cluster = opened(home)
    try:
        async for batch in cluster.events():
            promises = [event.promise for event in batch if isinstance(event, PlannedStartChanged)]
            gaps = {event.pod.workload: event.pod.until_s for event in batch if isinstance(event, PodChanged)}
            return promises, gaps
        raise AssertionError("there was no first batch")
    finally:
        await cluster.close()


def test_a_new_process_is_told_what_the_old_one_promised(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = opened(tmp_path)
        await cluster.work.submit([(work("gang"), Program()), (work("filler"), Program(simulated_s=10**6))])
        start = Start(full("filler"), "main-0", "node-1", whole(0), until_s=500)
        await cluster.apply(Plan(starts=(start,), promises=(promise("gang"),)))
        await cluster.apply(Plan(promises=(promise("gang", 300),)))
        await cluster.close()
        assert await told(tmp_path) == ([promise("gang", 300)], {full("filler"): 500})

    run(test())


def test_a_promise_ends_with_its_plan_or_its_workload(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = opened(tmp_path)
        names = ("withdrawn", "cancelled", "deleted", "stays")
        await cluster.work.submit([(work(name), Program()) for name in names])
        await cluster.apply(Plan(promises=tuple(promise(name) for name in names)))
        await cluster.apply(Plan(unpromised=(full("withdrawn"),)))
        await cluster.work.change("cancel", full("cancelled"))
        await cluster.work.remove([], [full("deleted")])
        await cluster.apply(Plan(promises=(promise("cancelled"), promise("nobody"))))  # planned before it was heard
        await cluster.close()
        assert (await told(tmp_path))[0] == [promise("stays")]

    run(test())
