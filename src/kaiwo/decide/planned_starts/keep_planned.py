"""Keep planned starts, and move them.

In:    the desk, with the promises that the last plans left.   Out: starts that are due, promises that moved, shades.
Never: delays a promise for the sake of one behind it, or of work that fills a gap.
"""

from collections.abc import Callable

from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.placement.place_pods import paid_for
from kaiwo.decide.placement.place_workload import leaders_first
from kaiwo.decide.planned_starts.backfill import BackfillMasks, Bound, outranks
from kaiwo.decide.planned_starts.delay_cause import blame
from kaiwo.decide.planned_starts.earliest_start import Search
from kaiwo.decide.planned_starts.future_capacity import PlannedUsage, Space, take_of
from kaiwo.decide.planned_starts.future_quota import Dues, QueueCharge
from kaiwo.decide.planned_starts.overdue_backfill import stop_overdue, wake_for
from kaiwo.decide.planned_starts.planned_usage import due_of, in_order, reserved_for_others, takes_of
from kaiwo.model.plan import Nomination, Start
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.model.workload import Workload, pod_name, role_of
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.capacity_timeline import OVERDUE_S, reserved_spans, timeline_of


def keep_promises(desk: CycleState) -> None:
    """Start what is due, move what can be earlier or must be later, and tell everybody else what they have to mind."""
    if desk.state.planned_starts:
        _Keeper(desk).run()


class _Keeper:
    """One cycle's look at the promises there are."""

    def __init__(self, desk: CycleState) -> None:
        self._desk, self._now_s = desk, desk.working.now_s
        self._space = Space(desk.working, timeline_of(desk.state))
        self._spans = reserved_spans(desk.state, self._now_s)
        self._dues = Dues(desk.state, desk.working)
        self._kept: list[Bound] = []  # those that were looked at, the first first
        self._by_turns: list[Bound] = []  # those that are due, and come after others who have a right to their place
        self._begun: list[PlannedUsage] = []

    def run(self) -> None:
        desk = self._desk
        waiting = []
        for promise in in_order(desk.state):
            workload = desk.state.workloads.get(promise.workload)
            if workload is None or not _still_waits(desk, promise, workload):
                desk.unpromised.append(promise.workload)
            else:
                waiting.append((promise, workload))
        for at, (promise, workload) in enumerate(waiting):
            self._look_at(promise, workload, [each for each, _ in waiting[at + 1 :]])
        self._start_due()
        desk.promised = {bound.promise.workload: bound.promise for bound in self._kept}
        if self._kept or self._by_turns:  # until the turn of these, nobody without such a right takes their place
            desk.shades = BackfillMasks(self._space, self._dues, [*self._kept, *self._by_turns], self._begun)
        stop_overdue(desk)
        wake_for(desk)

    def _look_at(self, promise: PlannedStart, workload: Workload, behind: list[PlannedStart]) -> None:
        """The promise as it is now: where it was, earlier, or later for a reason."""
        ahead = [bound.take for bound in self._kept] + self._reserved(workload)
        take = take_of(promise, self._desk.state, max(promise.start_s, self._now_s))
        if take is not None and self._holds(promise, workload, take, ahead):
            found: PlannedStart | None = self._earlier(promise, workload, ahead, behind) or promise
        else:
            found = self._later(promise, workload, ahead)
        if found is None:
            self._desk.unpromised.append(promise.workload)
            return
        take = take_of(found, self._desk.state, max(found.start_s, self._now_s))
        assert take is not None  # it was found, or it holds
        self._kept.append(Bound(found, workload, take, due_of(self._desk, found)))

    def _holds(self, promise: PlannedStart, workload: Workload, take: PlannedUsage, ahead: list[PlannedUsage]) -> bool:
        """Its place is there in time. Those who are about to go have a minute, as nobody ends on the very second."""
        desk = self._desk
        found, _ = desk.state.backlog.find(promise.workload)
        for shape, _, needed in found.needs:
            if needed and not desk.book.state(shape).allowed[take.rows].all():
                return False
        at_s = promise.start_s
        if at_s <= self._now_s:
            at_s = max(at_s + OVERDUE_S, self._now_s + 1)
        if not self._lets(promise.workload, [bound.due for bound in self._kept])(at_s):
            return False
        return self._space.fits(take._replace(start_s=at_s, end_s=take.end_s + at_s - take.start_s), ahead)

    def _lets(self, name: str, others: list[QueueCharge]) -> Callable[[int], bool]:
        """Whether its queue lets it start at a time, beside what these others pay."""
        found, _ = self._desk.state.backlog.find(name)
        due = self._desk.due_of(found)
        return lambda at_s: self._dues.let_start(due, at_s, others)

    def _earlier(
        self, promise: PlannedStart, workload: Workload, ahead: list[PlannedUsage], behind: list[PlannedStart]
    ) -> PlannedStart | None:
        """Another place, if it can start there earlier and nobody's promise has to move."""
        is_due = promise.start_s <= self._now_s and self._is_free(promise)
        if is_due or self._desk.is_spent or not self._desk.state.backlog.try_all:
            return None  # unless something was freed, nothing can be earlier than it was
        others = ahead + takes_of(self._desk, behind)
        dues = [bound.due for bound in self._kept] + [due_of(self._desk, each) for each in behind]
        found = self._search(workload, dues).earliest(others, before_s=max(promise.start_s, self._now_s + 1))
        return None if found is None else replace(found, made_s=promise.made_s)

    def _later(self, promise: PlannedStart, workload: Workload, ahead: list[PlannedUsage]) -> PlannedStart | None:
        """The next start that those before it leave; those behind it have to see."""
        cause, who = blame(self._desk, promise, [bound.workload for bound in self._kept])
        found = self._search(workload, [bound.due for bound in self._kept]).earliest(ahead)
        if found is None:
            return None
        if found.start_s <= promise.start_s:
            return replace(found, made_s=promise.made_s)
        return replace(found, made_s=promise.made_s, delay=cause, delayed_by=who)

    def _start_due(self) -> None:
        for bound in [bound for bound in self._kept if bound.promise.start_s <= self._now_s]:
            if not self._is_free(bound.promise):
                continue
            self._kept.remove(bound)
            self._desk.unpromised.append(bound.promise.workload)
            if self._dues.takes_what_others_are_owed(bound.due) or self._is_outranked(bound.workload):
                found, _ = self._desk.state.backlog.find(bound.promise.workload)
                self._desk.due_by_turns.append(found)  # who is owed comes first, else they would stop it again
                self._by_turns.append(bound)
                self._desk.look_again(self._now_s + 1)  # then others may have what it left
            elif _start(self._desk, bound.promise, bound.workload):
                self._begun.append(bound.take)
                self._desk.begun.add(bound.promise.workload)

    def _is_outranked(self, workload: Workload) -> bool:
        """More important work waits in its queue: no plan binds that, so it has its turn first."""
        state, hopeless = self._desk.state, self._desk.state.backlog.impossible
        waiting = state.backlog.by_queue.get(workload.queue, {}).values()
        able = [state.workloads[found.waiters.at(0)[1]] for found in waiting if found.key not in hopeless]
        return any(outranks(other, workload) for other in able)

    def _is_free(self, promise: PlannedStart) -> bool:
        take = take_of(promise, self._desk.state, self._now_s)
        return take is not None and self._space.fits(take._replace(end_s=self._now_s + 1), ())

    def _search(self, workload: Workload, others: list[QueueCharge]) -> Search:
        found, _ = self._desk.state.backlog.find(workload.name)
        return Search(self._desk, self._space, workload, found.needs, self._lets(workload.name, others))

    def _reserved(self, workload: Workload) -> list[PlannedUsage]:
        return reserved_for_others(self._desk, self._spans, workload)


def _still_waits(desk: CycleState, promise: PlannedStart, workload: Workload) -> bool:
    """It still waits for just this, and its queue lets it start."""
    state = desk.state
    if not desk.policy.promises or workload.name in state.nominations or not state.backlog.is_queued(workload.name):
        return False
    found, _ = state.backlog.find(workload.name)
    if sum(needed for _, _, needed in found.needs) != len(promise.places) or not desk.takes_work(found.queue):
        return False
    present = state.pods.get(workload.name)
    if present and any(place.pod in present for place in promise.places):
        return False
    names = {role.name for role in workload.roles}
    of_roles = {place.pod.rpartition("-")[0]: place for place in promise.places}  # those of one role are alike
    return all(name in names and _is_same(place, workload) for name, place in of_roles.items())


def _is_same(place: PlannedPod, workload: Workload) -> bool:
    want = role_of(workload, place.pod).request
    has = (place.cpu_milli, place.memory_mib, place.extended, len(place.devices))
    return has == (want.cpu_milli, want.memory_mib, want.extended, want.gpus)


def _start(desk: CycleState, promise: PlannedStart, workload: Workload) -> bool:
    """Start it exactly where it was promised; when that is not allowed any more it waits like everybody else."""
    found, _ = desk.state.backlog.find(workload.name)
    payer, starts = desk.payer(found), list[Start]()
    shapes = _shapes_by_role(desk, workload, found)
    with desk.working.trial() as attempt:
        for place in promise.places:
            shape = shapes[place.pod.rpartition("-")[0]]
            want = desk.state.backlog.shapes[shape]
            at = Nomination(workload.name, place.pod, place.node, place.devices)
            placed = desk.placer.put_exactly(shape, want, at)
            if placed is None or not payer.pays(desk.working, paid_for(desk.working, want, [placed])):
                return False
            starts.append(Start(workload.name, place.pod, placed.node, placed.devices))
        attempt.keep()
    desk.starts.extend(leaders_first(workload, starts))
    desk.steps += len(starts)
    return True


def _shapes_by_role(desk: CycleState, workload: Workload, found: WaitingClass) -> dict[str, int]:
    """The needs of a class are those of the roles that miss pods, in their order."""
    present = desk.state.pods.get(workload.name, {})
    missing = [role for role in workload.roles if any(pod_name(role, at) not in present for at in range(role.count))]
    return {role.name: shape for role, (shape, _, _) in zip(missing, found.needs, strict=True)}
