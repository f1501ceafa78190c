"""The loop that joins a cluster to `decide`: events in, one plan a cycle, the plan out, and a journal of it all.

`decide` never runs on the event loop. The state is changed on the event loop only, in small slices, so that leases,
probes and streams stay alive; while `decide` or a question reads it in a thread, it does not change.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec.structs import replace

from kaiwo.clusters.protocol import Cluster
from kaiwo.decide.cycle import BUILTIN
from kaiwo.history.journal_writer import Journal
from kaiwo.model.events import ClockMoved, Event, ProgressReported, WorkloadGone
from kaiwo.model.plan import Note, Plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.counted_nodes import CountedNodes
from kaiwo.runtime.loop.cycle_phases import CyclePhases
from kaiwo.runtime.loop.cycle_runner import CycleRunner, CycleSummary
from kaiwo.runtime.loop.event_intake import EventIntake
from kaiwo.runtime.loop.learned_run_times import RunTimes
from kaiwo.runtime.loop.loop_metrics import Allocations, Health
from kaiwo.runtime.loop.loop_protocol import LoopListener
from kaiwo.runtime.loop.past_usage_tracker import SAMPLE_S, PastUsageTracker
from kaiwo.runtime.loop.performance_tracker import PerformanceTracker
from kaiwo.runtime.loop.price_refresh import are_prices_due, refreshed_prices
from kaiwo.runtime.loop.recovery_history import RecoveryHistory
from kaiwo.runtime.loop.start_gate import (
    OpenGate,
    StartGate,
    checked_plan,
    nominations_of_starts,
    placements_of,
    refusal_events,
)
from kaiwo.snapshot.cluster_state import ClusterState

T = TypeVar("T")

SLICE = 200  # events patched before the event loop gets a turn: about 2 ms
GATHER_S = 0.005  # events that come within this time share a cycle
RECHECK_S = 0.25  # how often the end of a back-off is checked
CLOCK_CHECK_S = 5.0  # how often an idle loop looks whether the system's clock was changed
AFTER_FAILURE_S = 1.0


class SchedulingLoop:
    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        policy: Policy = DEFAULT_POLICY,
        plugins: Registry = BUILTIN,
        may_decide: Callable[[], bool] = lambda: True,  # False: a standby; call `wake` when this changes
        past_use: PastUsageTracker | None = None,  # None: it does not count
        run_times: RunTimes | None = None,  # None: nothing is learned
        performance: PerformanceTracker | None = None,  # None: what is measured is not stored
    ) -> None:
        self._performance = performance or PerformanceTracker(policy)
        self._past_use, self.run_times = past_use, run_times
        self.cluster, self.journal, self.policy, self.plugins = cluster, journal, policy, plugins
        self._may_decide = may_decide
        # Where nothing else is due, the system's clock may still be changed.
        self._wall_clock = cluster.abilities.wall_clock
        self._idle_s = CLOCK_CHECK_S if self._wall_clock is not None else None
        self._runner = CycleRunner(journal, policy, plugins)
        self.state = self._runner.state
        self.last_cycle: CycleSummary | None = None
        self.evicted: Counter[tuple[str, str]] = Counter()  # pods by queue and cause
        self.allocations = Allocations()
        self.recoveries = RecoveryHistory()
        self.ready = False
        self.revision = 0
        self.health = Health()
        self.phases = CyclePhases()
        self._intake = EventIntake(self.state, self.health)
        self.busy_since: float | None = None  # by the monotonic clock, while a cycle is being decided
        self.counted = CountedNodes()  # resources that plugins count
        self.gate: StartGate = OpenGate()  # plugins that may refuse starts
        self.listeners: list[LoopListener] = []
        self._inbox: list[Sequence[Event]] = []
        self._wake = asyncio.Event()
        self._state_lock = asyncio.Lock()
        self._question_lock = asyncio.Lock()  # the loop waits for one question at a time, however many were asked
        self._waiters: list[asyncio.Future[None]] = []
        self._clock_moves = 0  # changes of the system's clock whose events have not been applied yet
        # One thread: the journal has one writer, and the event loop shares the interpreter with one of them, not three.
        self._thread = ThreadPoolExecutor(1, "kaiwo-decide")

    async def run(self) -> None:
        """Run until cancelled, or until the cluster's events end."""
        reader = asyncio.create_task(self._read())
        try:
            while not (reader.done() and not self._inbox):
                await self._wait_for_work()
                may_decide = self._may_decide()  # checked first: all events up to then are applied before a cycle
                if self._inbox:
                    with self.phases.measure("events"):
                        await self._apply_inbox()
                if may_decide:
                    await self._guarded_cycle()
                elif self.ready:
                    await self._is_clock_moving()  # a standby shows the time, too
            reader.result()
        finally:
            reader.cancel()
            self._thread.shutdown(wait=True)
            if self.run_times is not None:
                self.run_times.save()
            self._performance.save(self.state)
            self.journal.close()

    def wake(self) -> None:
        self._wake.set()

    async def changed(self, after: int) -> int:
        while self.revision <= after:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self.revision

    async def add_events(self, events: Sequence[Event]) -> None:
        while not self.ready:  # the first batch is the cluster's whole state; nobody is told when it is journaled
            await asyncio.sleep(GATHER_S)
        self._inbox.append(tuple(events))
        self._wake.set()

    def clock(self) -> tuple[int, int]:
        """The cluster's time, and the number of the last cycle."""
        return self.cluster.now_s(), self.last_cycle.number if self.last_cycle is not None else 0

    def recent_notes(self) -> Sequence[Note]:
        """What the last cycle noted, such as a plugin that was set aside."""
        return self.last_cycle.notes if self.last_cycle is not None else ()

    async def use_policy(self, policy: Policy) -> None:
        async with self._state_lock:
            await self._on_thread(self._runner.use_policy, policy)
            self.policy = policy
        self._notify()
        self._wake.set()

    async def ask(self, question: Callable[[ClusterState], T]) -> T:
        """Run this in a thread while the state does not change."""
        async with self._question_lock, self._state_lock:
            return await self._on_thread(question, self.state)

    async def _read(self) -> None:
        try:
            async for batch in self.cluster.events():
                self._inbox.append(batch)
                self._wake.set()
        finally:
            self._wake.set()

    async def _wait_for_work(self) -> None:
        """Wait until there are events, a back-off may be over, or a search is unfinished."""
        backlog = self.state.backlog
        # Where nothing waits, there is nothing to try: the loop looked a hundred times a second for it.
        is_freed = backlog.try_all and (backlog.by_key or self.state.needs_cycle)
        has_open = backlog.to_try or backlog.pending_actions or is_freed
        if not (has_open and self.ready and self._may_decide()):
            is_resting = bool(self.state.failures.resting)  # some node takes work again after a time
            is_time_due = backlog.next_due_s is not None or self.state.look_again_s > 0 or is_resting
            timeout = RECHECK_S if is_time_due else SAMPLE_S if self._past_use is not None else self._idle_s
            # Not `wait_for`: when the event is set in the same turn, Python 3.11's swallows a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
        await asyncio.sleep(GATHER_S)
        self._wake.clear()

    async def _apply_inbox(self) -> None:
        batches, self._inbox = self._inbox, []
        for batch in batches:
            batch = self.counted.add_to(batch)
            if self.run_times is not None:
                batch = await self._on_thread(self.run_times.add_run_times, batch, self.cluster.now_s())
            if self.ready:  # the first batch is what existed before
                self.allocations.count_events(self.state, batch)
            else:
                batch = [*batch, *self._performance.known_before()]
            applied = await self._patch(batch)
            if batch and isinstance(batch[-1], ClockMoved):
                self._clock_moves -= 1
                if self._past_use is not None:
                    self._past_use.move_times(batch[-1].by_s)
            await self._on_thread(self._runner.journal_events, applied)
            self.ready = True  # the first batch is the whole state: nothing is decided before it
            if any(isinstance(event, ProgressReported | WorkloadGone) for event in applied):
                await self._measure_performance(applied)

    async def _measure_performance(self, applied: Sequence[Event]) -> None:
        async with self._state_lock:
            measured = await self._on_thread(self._performance.measure, self.state, applied)
        if measured is not None:
            await self._on_thread(self._runner.journal_events, await self._patch([measured]))

    async def _patch(self, events: Sequence[Event]) -> list[Event]:
        applied: list[Event] = []
        async with self._state_lock:
            for start in range(0, len(events), SLICE):
                applied += self._intake.apply(events[start : start + SLICE])
                await asyncio.sleep(0)
            while self._intake.requeue_moved(SLICE):
                await asyncio.sleep(0)
            for listener in self.listeners:
                for start in range(0, len(applied), SLICE):
                    listener.applied(applied[start : start + SLICE])
                    if start + SLICE < len(applied):
                        await asyncio.sleep(0)
        self._notify()
        return applied

    async def _guarded_cycle(self) -> None:
        try:
            await self._cycle()
            self.health.cycle_ended()
        except Exception as error:  # a failed cycle must not stop the scheduler: it is counted, logged and tried again
            words = self.health.cycle_failed(error)
            emit("cycle-failed", level="error", error=words, failures=self.health.failures)
            await asyncio.sleep(AFTER_FAILURE_S)

    async def _cycle(self) -> None:
        if not self.ready or await self._is_clock_moving():
            return
        measure = self.phases.measure
        with measure("prepare"):
            if self._past_use is not None:
                await self._update_past_usage(self._past_use)
            await self._refresh_prices()
            async with self._state_lock:
                if self._runner.is_order_old:
                    await self._on_thread(self._runner.renew_order)
                snapshot = self.state.snapshot(self.cluster.now_s())
                if self._runner.is_idle:  # inside: plugins change only while the lock is held
                    return
        self.busy_since = time.monotonic()
        try:
            with measure("decide"):
                decision = await self._on_thread(self._runner.decide, snapshot)
        finally:
            self.busy_since = None
        with measure("assume"):
            async with self._state_lock:
                self._runner.record(decision)
                self._count(decision.plan)
            plan, gate = with_places(self.state, decision.plan), self.gate
            kept = nominations_of_starts(self.state, plan) if not gate.is_open else ()
            for listener in self.listeners:
                listener.decided(plan)
            await self._patch(decision.assumed)
        self.last_cycle = decision.summary
        self._notify()
        placements = placements_of(self.state, plan) if plan.starts and not gate.is_open else ()
        if placements:
            with measure("permit"):
                answer = await gate.check(placements, snapshot.now_s)
                if refused := refusal_events(plan, answer, kept, snapshot.now_s):
                    await self._on_thread(self._runner.journal_events, await self._patch(refused))
                plan = checked_plan(plan, answer)
                placements = tuple(each for each in placements if each.workload not in answer.refused)
        if not plan.is_empty or plan.given_up:
            with measure("apply"):
                await self.cluster.apply(plan)
        self.phases.cycle_ended(decision.summary)
        if placements:
            await gate.started(placements, snapshot.now_s)

    async def _is_clock_moving(self) -> bool:
        """Whether the system's clock was changed and the state does not have the moved times yet."""
        clock = self._wall_clock
        if clock is not None and not self._clock_moves and await clock.follow_system_clock():
            self._clock_moves += 1
        return self._clock_moves > 0

    async def _update_past_usage(self, past_use: PastUsageTracker) -> None:
        async with self._state_lock:
            self.state.refresh_tables()
            usage = await self._on_thread(past_use.update, self.state, self.cluster.now_s())
        if usage is not None:
            await self._on_thread(self._runner.journal_events, await self._patch([usage]))

    async def _refresh_prices(self) -> None:
        async with self._state_lock:
            self.state.refresh_tables()
            if self._runner.is_idle or not are_prices_due(self.state, self._runner.policy):
                return
            prices = await self._on_thread(refreshed_prices, self.state)
        if prices is not None:
            await self._on_thread(self._runner.journal_events, await self._patch([prices]))

    def _count(self, plan: Plan) -> None:
        self.allocations.count_plan(plan)
        self.allocations.count_waits(plan, self.state, self.cluster.now_s())
        self.allocations.count_promises(plan, self.state, self.cluster.now_s())
        self.recoveries.count_plan(self.state, plan, self.cluster.now_s())
        for eviction in plan.evictions:
            workload = self.state.workloads.get(eviction.workload)
            if workload is not None:
                self.evicted[workload.queue, eviction.cause.value] += 1

    async def _on_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _notify(self) -> None:
        self.revision += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def with_places(state: ClusterState, plan: Plan) -> Plan:
    """The plan, each eviction with the place that it is about: by now, the cluster may know its pod by another name."""
    if not plan.evictions:
        return plan
    seen = ((each, state.pods.get(each.workload, {}).get(each.pod)) for each in plan.evictions)
    evictions = tuple(each if pod is None else replace(each, node=pod.node, devices=pod.devices) for each, pod in seen)
    return replace(plan, evictions=evictions)


async def first_of(event: Coroutine[Any, Any, object], scheduling: "asyncio.Task[None]") -> None:
    """Wait for the event; if the scheduling loop ends first, raise its error."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait([waiting, scheduling], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if scheduling.done():
        scheduling.result()
