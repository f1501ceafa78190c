"""The past of workloads is recorded from events and plans, also where the cluster keeps nothing of ended work."""

import asyncio
from pathlib import Path

import pytest

from kaiwo.history.past.happenings import LifeKey
from kaiwo.history.past.past_file import FILE
from kaiwo.history.past.past_reader import PastQuery
from kaiwo.history.past.timeline import Timeline, read_timeline
from kaiwo.model.events import ClockMoved, Event, PodChanged, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.plan import Eviction, EvictionCause, Plan, Wait
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.model.workload import Phase, Pod
from kaiwo.runtime.recording.past_recorder import UNSEEN_END, PastRecorder
from tests.api.fake_loop import FakeLoop, record

NO_ROOM = Obstacle(Reason.NOT_ENOUGH_FREE_GPUS, 1, 0, "gpus")
NO_QUOTA = Obstacle(Reason.QUEUE_QUOTA, 1, 0, "gpus", "default")
POD = Pod("default/job", "main-0", "n-00000", devices=(Share("gpu-3", 1000, 196_608),))


class Scheduler:
    """A loop of a cluster that keeps nothing of ended work, as Kubernetes is, on a clock that a test moves."""

    def __init__(self, home: Path) -> None:
        self.live = FakeLoop(1)
        self.now_s = 1000
        self.live.cluster.now_s = lambda: self.now_s
        self.past = PastRecorder(self.live, str(home))

    def apply(self, *events: Event, after_s: int = 0) -> None:
        self.now_s += after_s
        self.live.state.patch(events)
        self.past.applied(events)

    def wait_for(self, obstacle: Obstacle, after_s: int = 0) -> None:
        self.now_s += after_s
        queue, shape = self.live.state.backlog.class_of("default/job").key
        self.past.decided(Plan(waits=(Wait(queue, shape, (obstacle,)),)))

    async def timeline(self, number: int = 1000) -> Timeline:
        await self.past.flush()
        found = read_timeline(self.past.reader, LifeKey("default/job", number), self.now_s)
        assert found is not None
        return found


def submitted(at_s: int = 1000) -> WorkloadChanged:
    return WorkloadChanged(record("job", submitted_s=at_s, user="ada").workload)


def test_reasons_attempts_evictions_and_the_end_are_recorded_from_pods(tmp_path: Path) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.apply(submitted())
        it.wait_for(NO_ROOM)
        it.wait_for(NO_ROOM, after_s=50)  # the same reason, whatever the amounts
        it.wait_for(NO_QUOTA, after_s=50)
        planned = PlannedStart("default/job", 2000, (PlannedPod("main-0", "n-00000"),), after=("default/other",))
        it.past.decided(Plan(promises=(planned,)))
        it.apply(PodChanged(POD), after_s=100)
        it.past.decided(
            Plan(evictions=(Eviction("default/job", "main-0", EvictionCause.RECLAIM, "default/other", 60),))
        )
        it.apply(PodGone("default/job", "main-0"), after_s=300)
        it.apply(PodChanged(POD), after_s=30)
        it.apply(
            PodChanged(Pod("default/job", "main-0", "n-00000", Phase.DONE)), WorkloadGone("default/job", 0), after_s=70
        )
        found = await it.timeline()
        waits = [(each.from_s, each.until_s, each.obstacle) for each in found.waits]
        assert waits[:2] == [(1000, 1100, NO_ROOM), (1100, 1200, NO_QUOTA)]
        assert [(each.number, each.started_s, each.ended_s) for each in found.attempts] == [
            (1, 1200, 1500),
            (2, 1530, 1600),
        ]
        assert found.attempts[0].pods[0].devices == POD.devices
        assert [(each.at_s, each.what.beneficiary) for each in found.evictions] == [(1200, "default/other")]  # type: ignore[union-attr]
        assert [each.what.start_s for each in found.planned] == [2000]  # type: ignore[union-attr]
        life = found.life
        assert (life.user, life.attempts, life.evictions, life.ended_s) == ("ada", 2, 1, 1600)
        assert life.held_milli_s == 1000 * (300 + 70)
        assert life.state == "", "a cluster that keeps nothing does not say how it ended"

    asyncio.run(story())


def test_a_back_off_that_ends_by_itself_is_followed_by_what_is_in_the_way_then(tmp_path: Path) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.apply(WorkloadChanged(record("job", submitted_s=1000, not_before_s=1060).workload))
        it.now_s = 1100
        it.live.state.snapshot(it.now_s)  # the gate is over
        it.wait_for(NO_ROOM)
        it.apply(submitted(), after_s=100)
        it.apply(PodChanged(POD), after_s=100)
        found = await it.timeline()
        reasons = [None if each.obstacle is None else each.obstacle.reason for each in found.waits]
        assert (reasons[0], found.waits[0].until_s) == (Reason.NOT_BEFORE, 1060)
        assert reasons[-1] is Reason.NOT_ENOUGH_FREE_GPUS
        assert found.waits[-1].until_s == 1300

    asyncio.run(story())


def test_a_name_that_is_used_again_begins_another_life(tmp_path: Path) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.apply(submitted())
        it.apply(WorkloadGone("default/job", 12), submitted(1500), after_s=500)
        await it.past.flush()
        assert it.past.reader.numbers_of("default/job") == [1000, 1500]
        assert (await it.timeline(1000)).life.state == "succeeded"
        assert (await it.timeline(1500)).life.ended_s == 0

    asyncio.run(story())


def test_what_ended_while_no_scheduler_was_there_has_an_end_that_nobody_saw(tmp_path: Path) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.apply(submitted())
        await it.past._close()
        later = Scheduler(tmp_path)
        later.now_s = 9000
        found = await later.timeline()
        assert (found.life.ended_s, found.life.state, found.life.message) == (9000, "", UNSEEN_END)
        assert found.unwatched == [(1000, 9000)]

    asyncio.run(story())


def test_a_standby_writes_nothing_and_a_new_leader_knows_what_waits(tmp_path: Path) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.past.may_record = lambda: False
        it.apply(submitted())
        await it.past.flush()
        assert it.past.reader.numbers_of("default/job") == []
        it.past.may_record = lambda: True
        it.now_s = 1500
        await it.past.flush()
        it.wait_for(NO_ROOM)
        it.now_s = 1600
        assert [(each.from_s, each.obstacle) for each in (await it.timeline()).waits] == [(1500, NO_ROOM)]

    asyncio.run(story())


def test_a_damaged_file_is_set_aside_and_recording_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / FILE).write_bytes(b"garbage" * 3000)
        it = Scheduler(tmp_path)
        it.apply(submitted())
        assert (await it.timeline()).life.user == "ada"
        assert list(tmp_path.glob(f"{FILE}.damaged-*"))

    asyncio.run(story())


@pytest.mark.parametrize(("age_s", "is_kept"), [(29 * 86_400, True), (31 * 86_400, False)])
def test_the_past_is_kept_for_a_time(tmp_path: Path, age_s: int, is_kept: bool) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.apply(submitted())
        it.apply(WorkloadGone("default/job", 12), after_s=10)
        await it.past.flush()
        it.now_s += age_s
        await it.past.flush()
        assert len(it.past.reader.ended(PastQuery()).lives) == is_kept

    asyncio.run(story())


def test_times_of_objects_that_keep_theirs_do_not_follow_the_clock(tmp_path: Path) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.apply(submitted())
        it.wait_for(NO_ROOM)
        await it.past.flush()
        it.past.applied([ClockMoved(5000)])
        it.apply(PodChanged(POD), after_s=100)
        assert [(each.from_s, each.until_s) for each in (await it.timeline()).waits] == [(1000, 1100)]

    asyncio.run(story())


def test_all_times_follow_a_clock_that_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        it = Scheduler(tmp_path)
        it.apply(submitted())
        it.wait_for(NO_ROOM)
        await it.past.flush()
        it.now_s += 5000
        with monkeypatch.context() as patch:  # a cluster that keeps ended work moves the times of its objects, too
            patch.setattr(it.past, "_kept", object())
            it.past.applied([ClockMoved(5000)])
        it.apply(PodChanged(POD), after_s=100)
        found = await it.timeline()
        assert [(each.from_s, each.until_s) for each in found.waits] == [(6000, 6100)]

    asyncio.run(story())
