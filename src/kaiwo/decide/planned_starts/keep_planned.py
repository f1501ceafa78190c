"""Start, move or drop the planned starts that earlier plans left.

In:    the planned starts, what this cycle evicts already.   Out: starts that are due, the planned starts that are kept,
capacity masks for all other work, and evictions of overdue backfilled work.
Never: delays a planned start in favour of one behind it, or of work that fills a gap.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState, earliest_s
from kaiwo.decide.placement.class_charges import QueueCharge
from kaiwo.decide.placement.place_pods import charge_of_placed
from kaiwo.decide.placement.place_workload import leaders_first
from kaiwo.decide.planned_starts.backfill import BackfillMasks, ProtectedStart, outranks
from kaiwo.decide.planned_starts.delay_cause import delay_cause
from kaiwo.decide.planned_starts.earliest_start import StartSearch
from kaiwo.decide.planned_starts.future_capacity import (
    FutureCapacity,
    PlannedUsage,
    charge_of_start,
    reserved_for_others,
    usage_of,
    usages_of,
)
from kaiwo.decide.planned_starts.future_quota import FutureQuota
from kaiwo.decide.planned_starts.overdue_backfill import next_planned_moment_s, stop_overdue
from kaiwo.model.plan import Eviction, Nomination, Start
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.model.workload import Workload, pod_name, role_of
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.capacity_timeline import OVERDUE_S, reserved_spans, timeline_of
from kaiwo.snapshot.cluster_state import ClusterState


class KeptPlannedStarts(NamedTuple):
    """What became of the planned starts."""

    starts: tuple[Start, ...] = ()  # of workloads whose time has come
    started: frozenset[str] = frozenset()  # these workloads: no turn starts them a second time
    kept: dict[str, PlannedStart] = {}  # by workload: it waits for its planned start, which may have moved
    dropped: tuple[str, ...] = ()  # workloads that wait for none any more
    due: tuple[WaitingClass, ...] = ()  # of these, what may start now if the place is still free at its turn
    masks: BackfillMasks | None = None  # what all other work has to leave free; None: nothing is planned
    evictions: tuple[Eviction, ...] = ()
    look_again_s: int = 0


def keep_planned_starts(cycle: CycleInput, free: CycleState, evicted: Iterable[Eviction] = ()) -> KeptPlannedStarts:
    """Start what is due, move what can be earlier or must be later, and mask the rest for all other work."""
    return _Keeping(cycle, free).run(evicted) if cycle.state.planned_starts else KeptPlannedStarts()


class _Keeping:
    """One cycle's look at the planned starts there are."""

    def __init__(self, cycle: CycleInput, free: CycleState) -> None:
        self._cycle, self._free, self._state, self._now_s = cycle, free, cycle.state, cycle.now_s
        self._capacity = FutureCapacity(free.working, timeline_of(cycle.state))
        self._spans = reserved_spans(cycle.state, cycle.now_s)
        self._quota = FutureQuota(cycle.state, free.working)
        self._kept: list[ProtectedStart] = []  # those that were looked at, the first first
        self._starts: list[Start] = []
        self._started: list[ProtectedStart] = []
        self._dropped: list[str] = []
        self._by_turns: list[ProtectedStart] = []  # are due, and come after others with a right to their place

    def run(self, evicted: Iterable[Eviction]) -> KeptPlannedStarts:
        waiting = []
        for planned in _in_order(self._state):
            workload = self._state.workloads.get(planned.workload)
            if workload is None or not self._still_waits(planned, workload):
                self._dropped.append(planned.workload)
            else:
                waiting.append((planned, workload))
        for at, (planned, workload) in enumerate(waiting):
            self._look_at(planned, workload, [each for each, _ in waiting[at + 1 :]])
        self._start_due()
        kept = {each.planned.workload: each.planned for each in self._kept}
        masks = None
        if self._kept or self._by_turns:  # until their turn, work without such a right does not take their place
            usages = [each.usage for each in self._started]
            masks = BackfillMasks(self._capacity, self._quota, [*self._kept, *self._by_turns], usages)
        evictions, overdue_s = stop_overdue(self._cycle, kept.values(), evicted)
        soon_s = self._now_s + 1 if self._by_turns else 0  # then other work may have what they left
        return KeptPlannedStarts(
            tuple(self._starts),
            frozenset(each.planned.workload for each in self._started),
            kept,
            tuple(self._dropped),
            tuple(self._class_of(each.planned.workload) for each in self._by_turns),
            masks,
            tuple(evictions),
            earliest_s(overdue_s, soon_s, next_planned_moment_s(kept.values(), self._now_s)),
        )

    def _still_waits(self, planned: PlannedStart, workload: Workload) -> bool:
        """It still waits for exactly this, and its queue lets it start."""
        state, name = self._state, workload.name
        if not self._cycle.policy.promises or name in state.nominations or not state.backlog.is_queued(name):
            return False
        found = self._class_of(name)
        if sum(need.needed for need in found.needs) != len(planned.places):
            return False
        if not self._free.charges.takes_work(found.queue):
            return False
        present = state.pods.get(name)
        if present and any(place.pod in present for place in planned.places):
            return False
        names = {role.name for role in workload.roles}
        of_roles = {place.pod.rpartition("-")[0]: place for place in planned.places}  # those of one role are alike
        return all(role in names and _is_same(place, workload) for role, place in of_roles.items())

    def _look_at(self, planned: PlannedStart, workload: Workload, behind: list[PlannedStart]) -> None:
        """The planned start as it is now: where it was, earlier, or later for a reason."""
        ahead = [each.usage for each in self._kept] + reserved_for_others(self._cycle, self._spans, workload)
        usage = usage_of(planned, self._state, max(planned.start_s, self._now_s))
        if usage is not None and self._holds(planned, usage, ahead):
            found: PlannedStart | None = self._earlier(planned, workload, ahead, behind) or planned
        else:
            found = self._later(planned, workload, ahead)
        if found is None:
            self._dropped.append(planned.workload)
            return
        usage = usage_of(found, self._state, max(found.start_s, self._now_s))
        assert usage is not None  # it was found, or it holds
        charge = charge_of_start(self._cycle, self._free, found)
        self._kept.append(ProtectedStart(found, workload, usage, charge))

    def _holds(self, planned: PlannedStart, usage: PlannedUsage, ahead: list[PlannedUsage]) -> bool:
        """Its place is there in time. Work that is about to end has a minute: runs do not end on the very second."""
        for need in self._class_of(planned.workload).needs:
            if need.needed and not self._free.scores.state(need.shape).allowed[usage.rows].all():
                return False
        at_s = planned.start_s
        if at_s <= self._now_s:
            at_s = max(at_s + OVERDUE_S, self._now_s + 1)
        if not self._may_start(planned.workload, [each.charge for each in self._kept])(at_s):
            return False
        return self._capacity.fits(usage._replace(start_s=at_s, end_s=usage.end_s + at_s - usage.start_s), ahead)

    def _may_start(self, name: str, others: list[QueueCharge]) -> Callable[[int], bool]:
        """Whether its queue lets it start at a time, beside what these others pay."""
        charge = self._free.charges.queue_charge(self._class_of(name))
        return lambda at_s: self._quota.may_start(charge, at_s, others)

    def _earlier(
        self, planned: PlannedStart, workload: Workload, ahead: list[PlannedUsage], behind: list[PlannedStart]
    ) -> PlannedStart | None:
        """Another place, if it can start there earlier and no other planned start has to move."""
        is_due = planned.start_s <= self._now_s and self._is_free(planned)
        if is_due or self._free.budget.is_spent or not self._state.backlog.try_all:
            return None  # unless something was freed, nothing can be earlier than it was
        others = ahead + usages_of(self._cycle, behind)
        charges = [each.charge for each in self._kept]
        charges += [charge_of_start(self._cycle, self._free, each) for each in behind]
        found = self._search(workload, charges).earliest(others, before_s=max(planned.start_s, self._now_s + 1))
        return None if found is None else replace(found, made_s=planned.made_s)

    def _later(self, planned: PlannedStart, workload: Workload, ahead: list[PlannedUsage]) -> PlannedStart | None:
        """The next start that those before it leave."""
        before = [each.workload for each in self._kept]
        cause, culprit = delay_cause(self._state, self._now_s, planned, before)
        found = self._search(workload, [each.charge for each in self._kept]).earliest(ahead)
        if found is None:
            return None
        if found.start_s <= planned.start_s:
            return replace(found, made_s=planned.made_s)
        return replace(found, made_s=planned.made_s, delay=cause, delayed_by=culprit)

    def _start_due(self) -> None:
        for each in [each for each in self._kept if each.planned.start_s <= self._now_s]:
            if not self._is_free(each.planned):
                continue
            self._kept.remove(each)
            self._dropped.append(each.planned.workload)
            if self._quota.takes_what_others_are_owed(each.charge) or self._is_outranked(each.workload):
                self._by_turns.append(each)  # work that is owed comes first, else it would reclaim the place again
            elif starts := self._start(each.planned, each.workload):
                self._starts += starts
                self._started.append(each)

    def _is_outranked(self, workload: Workload) -> bool:
        """More important work waits in its queue: a plan does not bind that, so it has its turn first."""
        state, impossible = self._state, self._state.backlog.impossible
        waiting = state.backlog.by_queue.get(workload.queue, {}).values()
        able = [state.workloads[found.waiters.at(0)[1]] for found in waiting if found.key not in impossible]
        return any(outranks(other, workload) for other in able)

    def _is_free(self, planned: PlannedStart) -> bool:
        usage = usage_of(planned, self._state, self._now_s)
        return usage is not None and self._capacity.fits(usage._replace(end_s=self._now_s + 1), ())

    def _start(self, planned: PlannedStart, workload: Workload) -> list[Start]:
        """Start it exactly where it was planned; nothing when that is not allowed any more."""
        working, found = self._free.working, self._class_of(workload.name)
        payer, starts = self._free.charges.payer(found), list[Start]()
        shapes = _shapes_by_role(self._state, workload, found)
        with working.trial() as attempt:
            for place in planned.places:
                shape = shapes[place.pod.rpartition("-")[0]]
                want = self._state.backlog.shapes[shape]
                at = Nomination(workload.name, place.pod, place.node, place.devices)
                placed = self._free.placer.put_exactly(shape, want, at)
                if placed is None or not payer.try_charge(working, charge_of_placed(working, want, [placed])):
                    return []
                starts.append(Start(workload.name, place.pod, placed.node, placed.devices))
            attempt.keep()
        self._free.budget.used += len(starts)
        return leaders_first(workload, starts)

    def _search(self, workload: Workload, others: list[QueueCharge]) -> StartSearch:
        may_start = self._may_start(workload.name, others)
        return StartSearch(self._cycle, self._free, self._capacity, workload, may_start)

    def _class_of(self, name: str) -> WaitingClass:
        return self._state.backlog.find(name)[0]


def _is_same(place: PlannedPod, workload: Workload) -> bool:
    want = role_of(workload, place.pod).request
    has = (place.cpu_milli, place.memory_mib, place.extended, len(place.devices))
    return has == (want.cpu_milli, want.memory_mib, want.extended, want.gpus)


def _shapes_by_role(state: ClusterState, workload: Workload, found: WaitingClass) -> dict[str, int]:
    """The needs of a class are those of the roles that miss pods, in their order."""
    present = state.pods.get(workload.name, {})
    missing = [role for role in workload.roles if any(pod_name(role, at) not in present for at in range(role.count))]
    return {role.name: need.shape for role, need in zip(missing, found.needs, strict=True)}


def _in_order(state: ClusterState) -> list[PlannedStart]:
    """The oldest first; in one queue the more important before that."""
    oldest = sorted(state.planned_starts.values(), key=lambda each: (each.made_s, each.workload))
    lines: dict[str, list[PlannedStart]] = {}
    for each in oldest:
        lines.setdefault(_queue_of(state, each), []).append(each)
    turns: dict[str, Iterator[PlannedStart]] = {
        queue: iter(sorted(line, key=lambda each: -_priority_of(state, each))) for queue, line in lines.items()
    }
    return [next(turns[_queue_of(state, each)]) for each in oldest]


def _queue_of(state: ClusterState, planned: PlannedStart) -> str:
    workload = state.workloads.get(planned.workload)
    return workload.queue if workload is not None else ""


def _priority_of(state: ClusterState, planned: PlannedStart) -> int:
    workload = state.workloads.get(planned.workload)
    return workload.priority if workload is not None else 0
