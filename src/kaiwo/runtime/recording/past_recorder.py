"""Record the past of each workload: every change of why it waits, its planned starts, evictions and its end.

In:    the events and plans of the scheduling loop, as they are applied.   Out: rows of past.db, written on a thread.
How: only what an event or a plan names is looked at, so that the cost follows change. What is in the way of a class of
equal work is stored once for the class, and not for each of its workloads.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kaiwo.clusters.local.disk_space import DEFAULT_DISK_LIMITS, why_disk_is_low
from kaiwo.clusters.protocol import PastWork
from kaiwo.explain import in_order_of_telling
from kaiwo.history.past.happenings import (
    Begin,
    End,
    Evicted,
    Gated,
    Happening,
    LifeKey,
    Planned,
    PodsPlaced,
    Stopped,
    Up,
    WaitsInClass,
)
from kaiwo.history.past.past_file import FILE
from kaiwo.history.past.past_reader import PastReader
from kaiwo.history.past.past_writer import KEEP_S, STRAIGHT_S, PastBatch, PastWriter
from kaiwo.history.record_file import set_aside
from kaiwo.history.series.series_writer import Frame
from kaiwo.model.errors import ClusterError, DamagedFileError, NotFoundError
from kaiwo.model.events import (
    ClockMoved,
    Event,
    NominationChanged,
    NominationGone,
    PodChanged,
    PodGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.plan import Plan, Wait
from kaiwo.model.workload import Phase, Workload
from kaiwo.model.workload_record import AttemptRecord, PodPlacement, WorkloadRecord, WorkloadState
from kaiwo.runtime.log import emit, emit_limited
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.overview.workload_table import WorkloadRows, asked_milli
from kaiwo.runtime.recording.consumption_meter import ConsumptionMeter
from kaiwo.runtime.recording.gpu_use_meter import GpuUseMeter

T = TypeVar("T")
LOOK_S = 1.0  # between writes
SET_ASIDE_EVERY_S = 600.0  # a bad disk does not fill itself with damaged files
IDLE_S = 60  # how often the file is told that the scheduler still watches
AT_ONCE = 2_000  # rows of one transaction: readers and the disk must not wait long for it
PLAN_MOVED_S = 60  # a planned start that moves by less is the same
UNSEEN_END = "it ended while no scheduler was there to see how"
_NAME_OF: dict[type, Callable[[Any], str]] = {
    WorkloadChanged: lambda event: event.workload.name,
    WorkloadGone: lambda event: event.name,
    PodChanged: lambda event: event.pod.workload,
    PodGone: lambda event: event.workload,
    NominationChanged: lambda event: event.nomination.workload,
    NominationGone: lambda event: event.workload,
}
UP = Up()


class _Known(msgspec.Struct, gc=False):
    """What was recorded last of a workload that has not ended."""

    number: int
    where: WaitsInClass | Gated | Up
    # Only where the cluster keeps no attempts of its own.
    placed: dict[str, PodPlacement] | None = None
    started_s: int = 0
    attempts: int = 0
    held_milli_s: int = 0
    counted_s: int = 0  # up to which time that is counted


class _Decided(msgspec.Struct, gc=False, frozen=True):
    """The parts of a plan that the thread reads."""

    at_s: int
    waits: tuple[Wait, ...]


class PastRecorder:
    """Lives on the event loop; the file is used on threads."""

    def __init__(self, live: LiveLoop, home: str, keep_s: int = KEEP_S) -> None:
        self._live, self._home, self._path, self._keep_s = live, Path(home), Path(home) / FILE, keep_s
        self._known: dict[str, _Known] = {}
        self._classes: dict[tuple[str, str], WaitsInClass] = {}
        self._planned_s: dict[str, int] = {}
        self._ending: dict[LifeKey, tuple[_Known, int]] = {}  # and for how long each ran, where that is known
        self._batch = PastBatch(0)
        self._decided: list[_Decided] = []
        self._reasons: dict[tuple[str, str], tuple[Reason, str] | None] = {}  # by class; used on the thread
        self._is_current = False  # the file, with what is in the batch, has what is in `_known`
        self._collects = True  # what happens goes into the batch; False: a standby, or after a failure
        self._written_s = 0
        self._is_damaged = False  # the file
        self._set_aside_at = -SET_ASIDE_EVERY_S
        self._flushing = asyncio.Lock()
        self.meter = GpuUseMeter()
        self._consumption = ConsumptionMeter()
        self.rows: Callable[[], WorkloadRows] = WorkloadRows  # of all workloads; the overview has them
        self._thread = ThreadPoolExecutor(1, "kaiwo-past")
        self._writer: PastWriter | None = None
        self.reader = PastReader(self._path)
        self.may_record: Callable[[], bool] = lambda: True  # False: a standby
        live.listeners.append(self)

    @cached_property
    def _kept(self) -> PastWork | None:
        """What the cluster itself keeps of ended work; None: nothing."""
        return self._live.cluster.abilities.past

    # -- what the scheduling loop tells

    def applied(self, events: Sequence[Event]) -> None:
        """These events are in the state now."""
        touched: dict[str, None] = {}
        for event in events:
            name_of = _NAME_OF.get(type(event))
            if name_of is not None:
                name = name_of(event)
                touched[name] = None
                if type(event) is WorkloadGone:
                    self._gone(name, event.run_s)
            elif type(event) is ClockMoved and self._kept is not None:  # else the cluster's objects keep their times
                self._move_times(event.by_s)
        now_s = self._live.cluster.now_s()
        for name in touched:
            workload = self._live.state.workloads.get(name)
            if workload is not None:
                self._look(workload, now_s)

    def decided(self, plan: Plan) -> None:
        """The plan is about to be carried out; the state does not have its effects yet."""
        state, now_s = self._live.state, self._live.cluster.now_s()
        if plan.waits:
            self._decided.append(_Decided(now_s, plan.waits))
        for name in {start.workload for start in plan.starts}:
            # Its back-off may have ended since it was last looked at: from then on it waited in a class.
            workload = state.workloads.get(name)
            if workload is not None:
                self._look(workload, now_s)
        for planned in plan.promises:
            if abs(self._planned_s.get(planned.workload, 0) - planned.start_s) >= PLAN_MOVED_S:
                self._planned_s[planned.workload] = planned.start_s
                told = planned.start_s if planned.is_time_known else 0
                what = Planned(told, planned.nodes[:8], planned.after[:8], planned.delay, planned.delayed_by)
                self._tell(planned.workload, now_s, what)
        for name in plan.unpromised:
            if self._planned_s.pop(name, None) is not None and not any(each.workload == name for each in plan.starts):
                self._tell(name, now_s, Planned(0))
        if plan.evictions:
            self._tell_evictions(plan, now_s)

    # -- what it makes of it

    def _look(self, workload: Workload, now_s: int) -> None:
        name = workload.name
        known, where = self._known.get(name), self._where(name)
        if known is None:
            known = self._known[name] = _Known(self._number_of(workload), where)
            if self._collects:
                self._batch.begun.append(_begin(known.number, workload))
            self._tell(name, now_s, where)
        elif known.where != where:
            known.where = where
            self._tell(name, now_s, where)
        if self._kept is None:
            self._look_at_pods(known, workload, now_s)

    def _where(self, name: str) -> WaitsInClass | Gated | Up:
        backlog = self._live.state.backlog
        if backlog.is_queued(name):
            key = backlog.class_of(name).key
            found = self._classes.get(key)
            if found is None:
                if len(self._classes) > 10_000:
                    self._classes = {}
                found = self._classes[key] = WaitsInClass(*key)
            return found
        gated = backlog.gated.get(name)
        return UP if not gated else Gated(in_order_of_telling(gated)[0])

    def _look_at_pods(self, known: _Known, workload: Workload, now_s: int) -> None:
        pods = self._live.state.pods.get(workload.name, {})
        here = {
            pod.name: PodPlacement(pod.name, pod.node, pod.devices)
            for pod in pods.values()
            if pod.phase in (Phase.RUNNING, Phase.RELEASING)
        }
        before = known.placed or {}
        if here == before:
            return
        self._count_held(known, now_s)
        fresh = tuple(each for name, each in here.items() if before.get(name) != each)
        known.placed = here
        if fresh:
            if not before:
                known.attempts, known.started_s = known.attempts + 1, now_s
            self._tell(workload.name, now_s, PodsPlaced(fresh))
        if not here:
            self._tell(workload.name, now_s, Stopped())

    def _count_held(self, known: _Known, now_s: int) -> None:
        milli = sum(share.milli for pod in (known.placed or {}).values() for share in pod.devices)
        known.held_milli_s += milli * max(0, now_s - known.counted_s)
        known.counted_s = now_s

    def _tell_evictions(self, plan: Plan, now_s: int) -> None:
        by_name: dict[str, list[Any]] = {}
        for each in plan.evictions:
            by_name.setdefault(each.workload, []).append(each)
        for name, evictions in by_name.items():
            first = evictions[0]
            other = self._live.state.workloads.get(first.beneficiary)
            whose = ("", "") if other is None else (other.user, other.queue)
            lost_gpu_s = sum(each.lost_gpu_s for each in evictions)
            nodes = tuple(sorted({each.node for each in evictions if each.node}))[:8]
            what = Evicted(first.cause, len(evictions), first.beneficiary, *whose, lost_gpu_s, nodes)
            self._tell(name, now_s, what)

    def _gone(self, name: str, run_s: int) -> None:
        known = self._known.pop(name, None)
        self._planned_s.pop(name, None)
        if known is not None:
            self._ending[LifeKey(name, known.number)] = known, run_s

    def _tell(self, name: str, at_s: int, what: Happening) -> None:
        known = self._known.get(name)
        if known is not None and self._collects:
            self._batch.happened.append((LifeKey(name, known.number), at_s, what))

    def _number_of(self, workload: Workload) -> int:
        if self._kept is None:
            return workload.submitted_s
        try:
            return self._live.cluster.record(workload.name).submission
        except NotFoundError:  # it was removed meanwhile
            return 1

    def _move_times(self, by_s: int) -> None:
        """The clock was set: what was not written yet happened on the clock as it was."""
        self._batch.moved_s += by_s
        self._batch.happened = [(key, at_s + by_s, what) for key, at_s, what in self._batch.happened]
        self._written_s += by_s

    # -- what is written

    async def run(self) -> None:
        """Record until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                await self.flush()
        finally:
            await self._close()

    def measure(self, frame: Frame, now_s: int) -> None:
        """Add a sample of all devices to what workloads used."""
        numbers = {name: known.number for name, known in self._known.items()} if self.meter.is_due(frame) else {}
        self.meter.add(frame, self._live.state.pods, numbers, now_s)
        self._consumption.add(self.rows(), now_s)

    async def flush(self) -> None:
        """Write what happened since the last time. Failures are logged, and never raised."""
        async with self._flushing:
            if self._live.ready and self.may_record():
                await self._flush(self._live.cluster.now_s())
            else:
                self._forget_batch()

    async def flush_uses(self) -> None:
        """The same, with what was measured since the last minute."""
        self._written_s = 0
        await self.flush()

    async def _flush(self, now_s: int) -> None:
        try:
            if low := why_disk_is_low(self._home, DEFAULT_DISK_LIMITS):
                raise ClusterError(f"the past of workloads is not recorded: {low}")
            if self.reader.has_found_damage:
                self._is_damaged = True
                self._forget_batch()
            if not self._is_current:
                await self._catch_up(now_s)
            batch, self._batch = self._batch, PastBatch(0)
            decided, self._decided = self._decided, []
            is_due = now_s - self._written_s >= IDLE_S
            batch.ended += self._ends(now_s)
            if batch.ended or is_due:
                batch.uses, batch.held = self.meter.take(), self._consumption.take()
            if batch.begun or batch.happened or batch.ended or decided or is_due:
                batch.now_s = self._written_s = now_s
                await self._on_thread(self._write, batch, decided)
        except Exception as error:  # scheduling goes on without its history: log it, and begin anew with what is there
            self._forget_batch()
            emit_limited("past-failed", level="error", cause=f"{type(error).__name__}: {error}"[:300])

    def _forget_batch(self) -> None:
        self._batch, self._decided, self._is_current, self._collects = PastBatch(0), [], False, False
        self._ending.clear()

    async def _catch_up(self, now_s: int) -> None:
        """After the start, or when this replica leads: store what is there, and how the rest ended meanwhile."""
        unended, until_s = await self._on_thread(self._open, now_s)
        self._is_current = True
        if not self._collects:
            self._collects = True
            for name, known in self._known.items():
                workload = self._live.state.workloads.get(name)
                if workload is not None:
                    self._batch.begun.append(_begin(known.number, workload))
                    self._tell(name, now_s, known.where)
        living = {LifeKey(name, known.number) for name, known in self._known.items()}
        ends = [self._end_of(key, now_s) for key in unended if key not in living and key not in self._ending]
        ends += self._ended_since(until_s - STRAIGHT_S, living | {end.key for end in ends} | set(self._ending))
        for end in ends:
            record = self._record(end.key)
            if record is not None:
                self._batch.begun.append(_begin(end.key.number, record.workload))
        self._batch.ended += [end for end in ends if end.ended_s]

    def _ended_since(self, since_s: int, told: set[LifeKey]) -> list[End]:
        """Work that ended while nothing was recorded, where the cluster itself keeps it."""
        if self._kept is None:
            return []
        found = []
        for record in self._live.cluster.records():
            key = LifeKey(record.workload.name, record.submission)
            if record.state.is_over and record.ended_s >= since_s and key not in told:
                found.append(self._end(key, record))
        return found

    def _ends(self, now_s: int) -> list[End]:
        """How those ended that need no more pods. One that is still being stopped is asked for again."""
        found = []
        for key, (known, run_s) in list(self._ending.items()):
            again = self._known.get(key.workload)
            if again is not None and again.number == key.number:  # it waits once more
                del self._ending[key]
                continue
            end = self._end_of(key, now_s, known, run_s)
            if end.ended_s:
                found.append(end)
                del self._ending[key]
        return found

    def _end_of(self, key: LifeKey, now_s: int, known: _Known | None = None, run_s: int = 0) -> End:
        """`ended_s` is 0 while it is being stopped."""
        record = self._record(key)
        if record is not None:
            return self._end(key, record) if record.state.is_over else End(key, 0)
        if known is None:
            return End(key, now_s, message=UNSEEN_END)
        self._count_held(known, now_s)
        state = WorkloadState.SUCCEEDED.value if run_s else ""
        return End(key, now_s, state, 0, "", known.started_s, known.attempts, known.held_milli_s)

    def _record(self, key: LifeKey) -> WorkloadRecord | None:
        if self._kept is None:
            return None
        try:
            return self._kept.submission(key.workload, key.number)
        except NotFoundError:
            return None

    def _end(self, key: LifeKey, record: WorkloadRecord) -> End:
        attempts = () if self._kept is None else self._kept.attempts_of(key.workload, key.number)
        held = held_milli_s(attempts, asked_milli(record.workload), record.ended_s)
        ending = (record.exit_code, record.message, record.started_s, record.attempt, held)
        return End(key, record.ended_s, record.state.value, *ending)

    # -- on the thread

    def _open(self, now_s: int) -> tuple[list[LifeKey], int]:
        self._reasons = {}
        try:
            return self._open_file()
        except DamagedFileError as error:
            self._close_file()
            if time.monotonic() - self._set_aside_at < SET_ASIDE_EVERY_S:
                raise
            self._set_aside_at, self._is_damaged, self.reader.has_found_damage = time.monotonic(), False, False
            emit("past-damaged", level="error", error=str(error), kept=str(set_aside(self._path, now_s)))
            return self._open_file()

    def _open_file(self) -> tuple[list[LifeKey], int]:
        if self._is_damaged:
            raise DamagedFileError(f"{self._path} is damaged")
        if self._writer is None:
            self._writer = PastWriter(self._path, self._keep_s)
        return self._writer.unended(), self._writer.watched_until_s()

    def _write(self, batch: PastBatch, decided: Iterable[_Decided]) -> None:
        for each in decided:
            batch.class_waits += self._new_reasons(each)
        try:
            for part in _in_parts(batch):
                if self._writer is not None:
                    self._writer.write(part)
        except ClusterError as error:
            self._is_damaged = isinstance(error, DamagedFileError)  # the next one opens a new file
            self._close_file()
            raise

    def _new_reasons(self, decided: _Decided) -> list[tuple[str, str, int, Obstacle | None]]:
        """The classes of which something else is in the way now; amounts alone make no difference."""
        found = []
        for wait in decided.waits:
            first = in_order_of_telling(wait.obstacles)[0] if wait.obstacles else None
            reason = None if first is None else (first.reason, first.subject)
            key = (wait.queue, wait.shape)
            if key not in self._reasons or self._reasons[key] != reason:
                self._reasons[key] = reason
                found.append((*key, decided.at_s, first))
        return found

    async def _close(self) -> None:
        if self._collects:
            self._written_s = 0  # write the uses, too
            await self.flush()
        await self._on_thread(self._close_file)
        self._thread.shutdown()

    def _close_file(self) -> None:
        self.reader.close()
        if self._writer is not None:
            with contextlib.suppress(ClusterError):
                self._writer.close()
        self._writer = None

    async def _on_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def held_milli_s(attempts: Iterable[AttemptRecord], gpu_milli: int, now_s: int) -> int:
    """Thousandths of a GPU times seconds that these attempts held. Devices by memory count as what it asked for."""
    held = 0
    for attempt in attempts:
        milli = sum(share.milli for pod in attempt.pods for share in pod.devices) or (gpu_milli if attempt.pods else 0)
        held += milli * max(0, (attempt.ended_s or now_s) - attempt.started_s)
    return held


def _in_parts(batch: PastBatch) -> Iterator[PastBatch]:
    """In transactions of a bounded size: all that begin, then what happened to them, then how they ended."""
    now_s = batch.now_s
    yield PastBatch(now_s, class_waits=batch.class_waits, moved_s=batch.moved_s, held=batch.held)
    for start in range(0, len(batch.begun), AT_ONCE):
        yield PastBatch(now_s, begun=batch.begun[start : start + AT_ONCE])
    for start in range(0, len(batch.happened), AT_ONCE):
        yield PastBatch(now_s, happened=batch.happened[start : start + AT_ONCE])
    uses = list(batch.uses.items())
    for start in range(0, len(uses), AT_ONCE):
        yield PastBatch(now_s, uses=dict(uses[start : start + AT_ONCE]))
    for start in range(0, len(batch.ended), AT_ONCE):
        yield PastBatch(now_s, ended=batch.ended[start : start + AT_ONCE])


def _begin(number: int, workload: Workload) -> Begin:
    return Begin(
        LifeKey(workload.name, number), workload.submitted_s, workload.queue, workload.user, asked_milli(workload)
    )
