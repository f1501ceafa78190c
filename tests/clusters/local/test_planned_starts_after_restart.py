"""Planned starts and the deadlines of backfilled work survive a restart of Kaiwo."""

from pathlib import Path

from kaiwo.model.events import PlannedStartChanged, PodChanged
from kaiwo.model.plan import Plan, Start
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import full, whole, work
from tests.clusters.local.restarts import first_events, opened
from tests.waiting import run


def promise(name: str, start_s: int = 600) -> PlannedStart:
    return PlannedStart(full(name), start_s, (PlannedPod("main-0", "node-1", whole(0), 1000, 1024),), 60, 5)


async def told(home: Path) -> tuple[list[PlannedStart], dict[str, int]]:
    """The planned starts and the deadlines of backfilled work in the first events of a new process."""
    events = await first_events(home)
    planned = [event.promise for event in events if isinstance(event, PlannedStartChanged)]
    return planned, {event.pod.workload: event.pod.until_s for event in events if isinstance(event, PodChanged)}


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
