"""Adjust what recurring work asks for at its next start, what running pods ask for in place, and act on idle work.

In:    what runs used, and the policy.   Out: smaller requests, with a history that says why.
Never: gives more than was asked for, changes work with the label kaiwo.ai/adjust=off, or stops work that is busy. With
       the policy `advise` nothing is changed here: kaiwo advice tells people.

A workload that failed because it had less than its owner asked for waits again, once, with all that was asked for.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from kaiwo.advise.right_size import Resized, SizeRule
from kaiwo.advise.run_uses import RunUse, RunUses
from kaiwo.advise.size_work import ResizedWorkload, resized_workload
from kaiwo.clusters.plan_checks import is_up
from kaiwo.clusters.protocol import PodUse
from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.history.past.happenings import LifeKey
from kaiwo.model.cluster_write import ClusterWrite
from kaiwo.model.errors import KaiwoError, NotFoundError
from kaiwo.model.events import Event, WorkloadGone
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.runtime.advising.adjustment_file import KEPT, Adjustment, AdjustmentFile, AdjustmentKind, SavedAdjustments
from kaiwo.runtime.advising.use_meter import WorkUseMeter
from kaiwo.runtime.edge_points.ended_work import EndedWork
from kaiwo.runtime.log import emit, emit_limited
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry

ADJUST_LABEL, OFF = "kaiwo.ai/adjust", "off"
WHO = "kaiwo (adjustment)"
SAMPLE_S, LOOK_S = 15, 1.0
SAVE_S = 300  # a kill loses what was learned since, but no adjustment
RESIZE_S = 60  # between looks at running pods
PRESSED_PERCENT = 95  # of what it was given, when it failed


class IdleWork(Protocol):
    """As the meter of GPU use has it."""

    @property
    def held_milli(self) -> int: ...
    @property
    def idle_milli(self) -> int: ...
    @property
    def since_s(self) -> int: ...


class Adjuster:
    """Lives on the event loop."""

    def __init__(self, live: LiveLoop, agents: AgentRegistry, home: str) -> None:
        self._live, self._agents, self._file = live, agents, AdjustmentFile(home)
        saved = self._file.load()
        self.uses = RunUses(saved.kinds)
        self._history: OrderedDict[tuple[str, int, AdjustmentKind], Adjustment] = OrderedDict()
        for each in saved.adjustments:
            self._history[each.workload, each.submission, each.kind] = each
        self._meter = WorkUseMeter(live.cluster, agents)
        self._ended = EndedWork(live.cluster)
        self._gone: list[str] = []
        self._untold: list[Adjustment] = []
        self._to_shrink = saved.to_shrink
        self._is_unsaved = False  # something was adjusted since the file was written
        self._living: dict[str, Workload] = {}  # that run; only where the cluster keeps no records of ended work
        self._sampled_s = self._saved_s = self._resized_s = 0
        self.idle: Callable[[], Mapping[LifeKey, IdleWork]] = dict
        self.may_act: Callable[[], bool] = lambda: True  # False: a standby
        live.listeners.append(self)
        sizing = live.cluster.abilities.sizing
        if sizing is not None:
            sizing.sized = self.sized

    @property
    def history(self) -> Sequence[Adjustment]:
        """The newest last."""
        return list(self._history.values())

    @property
    def rule(self) -> SizeRule:
        return size_rule(self._live.policy)

    # -- what the scheduling loop tells

    def applied(self, events: Sequence[Event]) -> None:
        if self._live.cluster.abilities.past is None:
            self._gone += [event.name for event in events if isinstance(event, WorkloadGone)]

    def decided(self, plan: Plan) -> None:
        """Nothing: a start is seen when its pods are."""

    # -- at the next start

    def sized(self, workload: Workload, submission: int) -> Workload:
        """A workload as it is about to wait, with what it should ask for. Called in the transaction that stores it."""
        asked = self.asked_of(workload.name, submission) or workload.roles
        workload = replace(workload, roles=asked)
        if self._live.policy.adjustment != "act" or is_exempt(workload):
            return workload
        try:
            found = resized_workload(self._live.state, workload, self._runs_of(workload), self.rule)
        except Exception as error:  # a submission must not fail because of this: it gets what it asked for
            emit("adjustment-failed", level="error", workload=workload.name, cause=f"{type(error).__name__}: {error}")
            return workload
        if found is None:
            return workload
        self._tell(workload, submission, AdjustmentKind.NEXT_START, reasons=found.reasons, asked=asked)
        return found.workload

    def asked_of(self, name: str, submission: int) -> tuple[Role, ...]:
        """What the owner of an adjusted workload asked for; empty: it is as it was asked for."""
        for kind in (AdjustmentKind.NEXT_START, AdjustmentKind.IDLE_SHRUNK):
            if (found := self._history.get((name, submission, kind))) is not None:
                return found.asked
        return ()

    def _runs_of(self, workload: Workload) -> Sequence[RunUse]:
        return self.uses.of(run_key_of(workload))

    # -- measuring

    async def run(self) -> None:
        """Measure and act until cancelled; then store what was learned."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                try:
                    await self._look()
                except Exception as error:  # scheduling goes on without adjustments: log it and try again
                    emit_limited("adjuster-failed", level="error", cause=f"{type(error).__name__}: {error}"[:300])
        finally:
            with contextlib.suppress(OSError):
                self._file.save(self._saved())

    async def _look(self) -> None:
        now_s = self._live.cluster.now_s()
        if not self._live.ready or not self.may_act():
            return
        if abs(now_s - self._sampled_s) >= SAMPLE_S and self._live.policy.adjustment != "off":
            self._sampled_s = now_s
            await self.sample(now_s)
        await self.learn_from_ended()
        await self._shrink_stopped()
        self._tell_audit()
        if abs(now_s - self._resized_s) >= RESIZE_S:
            self._resized_s = now_s
            await self.resize_running()
            await self.act_on_idle()
        if self._is_unsaved or abs(now_s - self._saved_s) >= SAVE_S:
            await self._save_now(now_s)

    async def sample(self, now_s: int) -> None:
        source = self._live.cluster.abilities.uses
        uses = await source.measure() if source is not None else {}
        measured = {agent.node for agent in self._agents if agent.sample is not None and not agent.is_lost}
        if not uses and not measured:
            return
        numbers = {
            name: number
            for name, pods in self._live.state.pods.items()
            if name in self._live.state.workloads
            and any(is_up(pod) and (pod.node in measured or (name, pod.name) in uses) for pod in pods.values())
            and (number := self._number_of(name)) is not None
        }
        if self._live.cluster.abilities.past is None:
            self._living |= {name: self._live.state.workloads[name] for name in numbers}
        await self._live.ask(lambda state: self._meter.add(state, uses, numbers, now_s))

    def _number_of(self, name: str) -> int | None:
        if self._live.cluster.abilities.past is None:
            return self._live.state.workloads[name].submitted_s
        try:
            return self._live.cluster.record(name).submission
        except NotFoundError:
            return None

    async def learn_from_ended(self) -> None:
        gone, self._gone = self._gone, []
        for name in gone:
            workload = self._living.pop(name, None)
            if workload is not None:
                self._learn(workload, workload.submitted_s, False, 0)
        past = self._live.cluster.abilities.past
        if past is None:
            return
        for record in self._ended.news():
            workload, name = record.workload, record.workload.name
            failed = record.state is WorkloadState.FAILED
            attempts = past.attempts_of(name, record.submission)
            use = self._learn(workload, record.submission, failed, attempts[-1].peak_mib if attempts else 0)
            if failed and use is not None and was_pressed(use):
                await self._restore(record)

    def _learn(self, workload: Workload, number: int, failed: bool, peak_mib: int) -> RunUse | None:
        asked = self.asked_of(workload.name, number) or workload.roles
        wanted = replace(workload, roles=asked)
        now_s, state = self._live.cluster.now_s(), self._live.state
        found = self._meter.take(LifeKey(workload.name, number), wanted, failed, peak_mib, state, now_s)
        if found is None:
            return None
        self.uses.add(run_key_of(wanted), found)
        return found

    async def _restore(self, record: WorkloadRecord) -> None:
        """Once: the run that failed is remembered, so that `sized` gives all that was asked for."""
        workload, number = record.workload, record.submission
        if (workload.name, number, AdjustmentKind.RESTORED) in self._history:
            return
        refused = ""
        try:
            await self._live.cluster.abilities.work.change("requeue", workload.name, WHO)
        except KaiwoError as error:
            refused = str(error)
        self._tell(workload, number, AdjustmentKind.RESTORED, refused=refused)

    # -- running pods, in place

    async def resize_running(self) -> None:
        """CPU and memory only: a GPU share is read when a process starts."""
        resizer, live = self._live.cluster.abilities.resizer, self._live
        if resizer is None or live.policy.adjustment != "act":
            return
        for name, workload in list(live.state.workloads.items()):
            pods = [pod for pod in live.state.pods.get(name, {}).values() if is_up(pod)]
            number = workload.submitted_s
            is_known = (name, number, AdjustmentKind.IN_PLACE) in self._history
            if not pods or is_known or is_exempt(workload) or not self._runs_of(workload):
                continue
            found = resized_workload(live.state, workload, self._runs_of(workload), self.rule, resizes_gpus=False)
            if found is None:
                continue
            given = {each.amount: each.given for each in found.reasons}
            amounts, refused = PodUse(given.get("cpu_milli"), given.get("memory_mib")), ""
            try:
                for pod in pods:
                    await resizer.resize(name, pod.name, amounts, "it fits what the same work used before")
            except KaiwoError as error:
                refused = str(error)
            reasons, asked = found.reasons, workload.roles
            self._tell(workload, number, AdjustmentKind.IN_PLACE, reasons=reasons, asked=asked, refused=refused)

    # -- idle work

    async def act_on_idle(self) -> None:
        """Warn first; what the policy says after as long again. Work that used a GPU meanwhile is not idle any more."""
        policy, idle, now_s = self._live.policy, self.idle(), self._live.cluster.now_s()
        for key in [key for key in self._history if key[2] is AdjustmentKind.IDLE_WARNING]:
            if LifeKey(key[0], key[1]) not in idle:
                del self._history[key]
        for life, hold in idle.items() if policy.idle_action != "off" else ():
            workload = self._live.state.workloads.get(life.workload)
            idle_s = now_s - hold.since_s
            if workload is None or is_exempt(workload) or hold.idle_milli < hold.held_milli:
                continue
            warned = self._history.get((life.workload, life.number, AdjustmentKind.IDLE_WARNING))
            if warned is None and idle_s >= policy.idle_after_s:
                self._tell(workload, life.number, AdjustmentKind.IDLE_WARNING, idle_s=idle_s)
            elif warned is not None and now_s - warned.at_s >= policy.idle_after_s:
                await self._act_on(policy, workload, life, idle_s)

    async def _act_on(self, policy: Policy, workload: Workload, life: LifeKey, idle_s: int) -> None:
        kinds = {"shrink": AdjustmentKind.IDLE_SHRUNK, "release": AdjustmentKind.IDLE_RELEASED}
        kind, work, refused = kinds.get(policy.idle_action), self._live.cluster.abilities.work, ""
        reasons: tuple[Resized, ...] = ()
        if kind is None or not workload.preemptible or (life.workload, life.number, kind) in self._history:
            return
        try:
            if kind is AdjustmentKind.IDLE_RELEASED:
                await work.change("requeue", life.workload, WHO)
                await work.change("hold", life.workload, WHO)
            else:
                smaller = self._smaller(workload, life)
                if smaller is None:
                    return
                reasons = smaller.reasons
                # It is held until it has stopped and can be changed: a Kaiwo that is killed meanwhile must still know.
                self._to_shrink[life.workload] = smaller.workload.roles
                await self._save_now(self._live.cluster.now_s())
                await work.change("requeue", life.workload, WHO)
                await work.change("hold", life.workload, WHO)
        except (KaiwoError, OSError) as error:
            refused = str(error)
            self._to_shrink.pop(life.workload, None)
        facts = {"idle_s": idle_s, "asked": workload.roles, "refused": refused, "reasons": reasons}
        self._tell(workload, life.number, kind, **facts)

    def _smaller(self, workload: Workload, life: LifeKey) -> ResizedWorkload | None:
        """By its kind's runs; of work that runs for the first time, by what it has used so far."""
        state, runs, rule = self._live.state, self._runs_of(workload), self.rule
        if len(runs) < rule.least_runs:
            so_far = self._meter.so_far(life, workload, state)
            runs, rule = (so_far,) if so_far is not None else (), rule._replace(least_runs=1)
        return resized_workload(state, workload, runs, rule)

    async def _shrink_stopped(self) -> None:
        work = self._live.cluster.abilities.work
        for name, roles in list(self._to_shrink.items()):
            try:
                state = self._live.cluster.record(name).state
                if state is WorkloadState.HELD:
                    (done,) = await work.set_many((name,), partial(_with_roles, roles=roles), WHO)
                    await work.change("release", name, WHO)
                    if isinstance(done, KaiwoError):
                        emit("adjustment-refused", level="warning", workload=name, cause=str(done))
                if state is not WorkloadState.STOPPING:
                    del self._to_shrink[name]
                    self._is_unsaved = True
            except NotFoundError:
                del self._to_shrink[name]
                self._is_unsaved = True

    # -- what is remembered

    def _tell(self, workload: Workload, submission: int, kind: AdjustmentKind, **facts: object) -> None:
        at_s = self._live.cluster.now_s()
        told = Adjustment(at_s, workload.name, submission, workload.user, workload.queue, kind)
        told = replace(told, **facts)
        self._history.pop((workload.name, submission, kind), None)
        self._history[workload.name, submission, kind] = told
        while len(self._history) > KEPT:
            self._history.popitem(last=False)
        self._untold.append(told)
        self._is_unsaved = True
        emit("adjusted", workload=workload.name, kind=kind.value, refused=told.refused)

    def _tell_audit(self) -> None:
        """On the event loop: a start may be sized on the thread that stores it."""
        untold, self._untold = self._untold, []
        for each in untold:
            reason = ", ".join(f"{one.amount} {one.asked} -> {one.given} (peak {one.peak})" for one in each.reasons)
            outcome = "refused" if each.refused else "done"
            write = ClusterWrite(f"adjust-{each.kind.value}", f"workload/{each.workload}", reason, outcome=outcome)
            self._live.cluster.on_write(write)

    async def _save_now(self, now_s: int) -> None:
        """OSError when the disk is full: it is tried again at the next look."""
        self._saved_s, self._is_unsaved = now_s, False
        try:
            await asyncio.to_thread(self._file.save, self._saved())
        except OSError:
            self._is_unsaved = True
            raise

    def _saved(self) -> SavedAdjustments:
        return SavedAdjustments(self.uses.save(), tuple(self.history), dict(self._to_shrink))


def _with_roles(workload: Workload, roles: tuple[Role, ...]) -> Workload:
    return replace(workload, roles=roles)


def size_rule(policy: Policy) -> SizeRule:
    return SizeRule(policy.adjust_headroom_percent, policy.adjust_after_runs)


def is_exempt(workload: Workload) -> bool:
    return workload.labels.get(ADJUST_LABEL) == OFF


def was_pressed(use: RunUse) -> bool:
    """It had less memory than its owner asked for, and used all of it: that may be why it failed."""
    return any(
        0 < (given := getattr(use.given, name)) < getattr(use.asked, name)
        and getattr(use.peak, name) * 100 >= given * PRESSED_PERCENT
        for name in ("gpu_mib", "memory_mib")
    )
