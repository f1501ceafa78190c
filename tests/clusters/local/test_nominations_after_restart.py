"""Nominations survive a restart of Kaiwo."""

from pathlib import Path

from kaiwo.model.events import NominationChanged
from kaiwo.model.plan import Eviction, EvictionCause, Nomination, Plan
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import full, start_of, whole, work
from tests.clusters.local.restarts import first_events, opened
from tests.waiting import run


def nomination(name: str, pod: str = "main-0", node: str = "node-1", gpu: int = 0) -> Nomination:
    return Nomination(full(name), pod, node, whole(gpu), 1000, 1024)


async def told(home: Path) -> list[Nomination]:
    """The nominations in the first events of a new process."""
    return [event.nomination for event in await first_events(home) if isinstance(event, NominationChanged)]


def test_a_new_process_is_told_what_the_old_one_kept(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = opened(tmp_path)
        await cluster.work.submit([(work("old"), Program(simulated_s=10**6)), (work("new", pods=2), Program())])
        await cluster.apply(Plan(starts=(start_of("old"),)))
        kept = (nomination("new"), nomination("new", "main-1", "node-2"))
        eviction = Eviction(full("old"), "main-0", EvictionCause.RECLAIM, full("new"))
        await cluster.apply(Plan(evictions=(eviction,), nominations=kept))
        await cluster.close()
        assert await told(tmp_path) == list(kept)
        cluster = opened(tmp_path)
        moved = nomination("new", "main-1", "node-2", gpu=3)
        await cluster.apply(Plan(nominations=(moved,)))
        await cluster.close()
        assert await told(tmp_path) == [kept[0], moved]

    run(test())


def test_kept_space_ends_with_its_pod_its_plan_or_its_workload(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = opened(tmp_path)
        names = ("starts", "gives-up", "cancelled", "deleted", "stays")
        await cluster.work.submit([(work(name), Program(simulated_s=10**6)) for name in names])
        kept = {name: nomination(name, gpu=gpu) for gpu, name in enumerate(names)}
        await cluster.apply(Plan(nominations=tuple(kept.values())))
        await cluster.apply(Plan(starts=(start_of("starts"),)))
        await cluster.apply(Plan(given_up=((full("gives-up"), "main-0"),)))
        await cluster.work.change("cancel", full("cancelled"))
        await cluster.work.remove([], [full("deleted")])
        gone = Plan(nominations=(nomination("cancelled", gpu=5), nomination("nobody", gpu=6)))
        await cluster.apply(gone)  # decided before the scheduler heard that they ended
        await cluster.close()
        assert await told(tmp_path) == [kept["stays"]]

    run(test())


def test_a_refused_start_keeps_no_space(tmp_path: Path) -> None:
    """The scheduler took the space back when it decided the start; a new process must not know better."""

    async def test() -> None:
        cluster = opened(tmp_path)
        await cluster.work.submit([(work("a"), Program())])
        await cluster.apply(Plan(nominations=(nomination("a"),)))
        assert await cluster.apply(Plan(starts=(start_of("a", node="nowhere"),))) == ()
        await cluster.close()
        assert await told(tmp_path) == []

    run(test())
