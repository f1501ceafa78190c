"""Keep the planned starts of earlier cycles: start, move or drop them.

Never: delays a planned start in favour of one behind it, or of work that fills a gap.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState, earliest_s
from kaiwo.decide.placement.level_room import obeys_levels
from kaiwo.decide.placement.links import carries
from kaiwo.decide.placement.place_pods import charge_of_placed
from kaiwo.decide.placement.place_workload import leaders_first
from kaiwo.decide.placement.queue_limits import QueueCharge
from kaiwo.decide.planned_starts.backfill import (
    BackfillMasks,
    ProtectedStart,
    next_planned_moment_s,
    outranks,
    stop_overdue,
)
from kaiwo.decide.planned_starts.earliest_start import StartSearch
from kaiwo.decide.planned_starts.fillable_places import fillable_places, has_due_places
from kaiwo.decide.planned_starts.future_capacity import (
    FutureCapacity,
    PlannedUsage,
    amounts_to_drain,
    charge_of_start,
    reserved_for_others,
    usage_of,
    usages_of,
)
from kaiwo.decide.planned_starts.future_quota import FutureQuota
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.plan import Eviction, Nomination, Start
from kaiwo.model.planned_start import DelayCause, PlannedPod, PlannedStart, expected_run_s
from kaiwo.model.workload import RELEASING_PHASES, Pod, Workload, pod_name, role_name, role_of
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.capacity_timeline import OVERDUE_S, reserved_spans, timeline_of
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import USABLE, NodeTable


class KeptPlannedStarts(NamedTuple):
    starts: tuple[Start, ...] = ()  # of workloads whose time has come
    started: frozenset[str] = frozenset()  # these workloads: no turn starts them a second time
    kept: dict[str, PlannedStart] = {}  # by workload: it waits for its planned start, which may have moved
    dropped: tuple[str, ...] = ()  # workloads that no longer have a planned start
    due: tuple[WaitingClass, ...] = ()  # dropped ones that may start at their turn if the place is still free
    masks: BackfillMasks | None = None  # what all other work has to leave free; None: nothing is planned
    evictions: tuple[Eviction, ...] = ()
    look_again_s: int = 0
    overdue: tuple[str, ...] = ()  # of those that start, the ones that had waited too long
    filled: tuple[Nomination, ...] = ()  # places of lost gang members that count as free until the turns are over


def keep_planned_starts(
    cycle: CycleInput, cycle_state: CycleState, evicted: Iterable[Eviction] = ()
) -> KeptPlannedStarts:
    """Start what is due, move what can be earlier or must be later, and mask the rest for all other work."""
    if not cycle.state.planned_starts and not has_due_places(cycle.state):
        return KeptPlannedStarts()
    return _PlannedStartStep(cycle, cycle_state).run(evicted)


def hold_lost_places(cycle_state: CycleState, planned: KeptPlannedStarts, sign: int) -> None:
    """From now on the places of lost gang members are taken (+1), so that no room is made and nothing is planned there;
    or they count as free again (-1), so that obstacles name what is in the way of long work."""
    for each in planned.filled:
        (cycle_state.working.hold if sign > 0 else cycle_state.working.release_uncharged)(each)


class _PlannedStartStep:
    def __init__(self, cycle: CycleInput, cycle_state: CycleState) -> None:
        self._cycle, self._cycle_state, self._state, self._now_s = cycle, cycle_state, cycle.state, cycle.now_s
        self._lost_places = fillable_places(cycle, cycle_state)
        self._lost_usages = [each.usage for each in self._lost_places.protected]
        self._capacity = FutureCapacity(cycle_state.working, timeline_of(cycle.state))
        self._spans = reserved_spans(cycle.state, cycle.now_s)
        self._quota = FutureQuota(cycle.state, cycle_state.working)
        self._kept: list[ProtectedStart] = []  # in order
        self._starts: list[Start] = []
        self._started: list[ProtectedStart] = []
        self._dropped: list[str] = []
        self._by_turns: list[ProtectedStart] = []  # due, but others are entitled to go first

    def run(self, evicted: Iterable[Eviction]) -> KeptPlannedStarts:
        waiting = []
        for planned in _in_order(self._state):
            workload = self._state.workloads.get(planned.workload)
            if workload is None or not self._still_waits(planned, workload):
                self._dropped.append(planned.workload)
            else:
                waiting.append((planned, workload))
        for at, (planned, workload) in enumerate(waiting):
            self._keep_or_move(planned, workload, [each for each, _ in waiting[at + 1 :]])
        self._start_due()
        kept = {each.planned.workload: each.planned for each in self._kept}
        masks, lost = None, self._lost_places
        if (
            self._kept or self._by_turns or lost.protected
        ):  # until their turn, work that is not entitled to it does not take their place
            usages = [each.usage for each in self._started]
            protected = [*self._kept, *self._by_turns, *lost.protected]
            masks = BackfillMasks(self._capacity, self._quota, protected, usages)
        every = (*kept.values(), *lost.due)
        evictions, overdue_s = stop_overdue(self._cycle, every, evicted)
        soon_s = self._now_s + 1 if self._by_turns else 0  # then other work may use what they left
        return KeptPlannedStarts(
            tuple(self._starts),
            frozenset(each.planned.workload for each in self._started),
            kept,
            tuple(self._dropped),
            tuple(self._class_of(each.planned.workload) for each in self._by_turns),
            masks,
            tuple(evictions),
            earliest_s(overdue_s, soon_s, next_planned_moment_s(every, self._now_s)),
            tuple(each.planned.workload for each in self._started if each.planned.is_overdue),
            lost.fillable,
        )

    def _still_waits(self, planned: PlannedStart, workload: Workload) -> bool:
        """It still waits for exactly these pods, and its queue takes work."""
        state, name = self._state, workload.name
        if (
            not (self._cycle.policy.promises or planned.is_overdue)
            or name in state.nominations
            or not state.backlog.is_queued(name)
        ):
            return False
        found, present = self._class_of(name), state.pods.get(name, {})
        if sum(need.needed for need in found.needs) != len(planned.places):
            return False
        if not self._cycle_state.charges.takes_work(found.queue):
            return False
        if any(place.pod in present for place in planned.places):
            return False
        names = {role.name for role in workload.roles}
        of_roles = {role_name(place.pod): place for place in planned.places}  # those of one role are alike
        return all(role in names and _is_same(place, workload) for role, place in of_roles.items())

    def _keep_or_move(self, planned: PlannedStart, workload: Workload, behind: list[PlannedStart]) -> None:
        """Keep the planned start where it was, move it earlier, or move it later and name the cause."""
        ahead = [*self._lost_usages, *(each.usage for each in self._kept)]
        ahead += reserved_for_others(self._cycle, self._spans, workload)
        usage = usage_of(planned, self._state, max(planned.start_s, self._now_s))
        if planned.is_overdue:
            found: PlannedStart | None = None
            if usage is not None and self._cycle.policy.max_wait_s and self._is_allowed(planned, usage):
                found = self._earlier(planned, workload, ahead, behind) or planned
        elif usage is not None and self._holds(planned, usage, ahead):
            found = self._earlier(planned, workload, ahead, behind) or planned
        else:
            found = self._later(planned, workload, ahead)
        if found is None:
            self._dropped.append(planned.workload)
            return
        usage = usage_of(found, self._state, max(found.start_s, self._now_s))
        assert usage is not None  # it was found, or it holds
        charge = charge_of_start(self._cycle, self._cycle_state, found)
        drained = amounts_to_drain(found, self._state, usage) if found.is_overdue else None
        self._kept.append(ProtectedStart(found, workload, usage, charge, drained=drained))

    def _holds(self, planned: PlannedStart, usage: PlannedUsage, ahead: list[PlannedUsage]) -> bool:
        """Its place is there in time. Work that is about to end gets another minute: runs rarely end on time."""
        if not self._is_allowed(planned, usage):
            return False
        at_s = planned.start_s
        if at_s <= self._now_s:
            at_s = max(at_s + OVERDUE_S, self._now_s + 1)
        if not self._may_start(planned.workload, [each.charge for each in self._kept])(at_s):
            return False
        return self._capacity.fits(usage._replace(start_s=at_s, end_s=usage.end_s + at_s - usage.start_s), ahead)

    def _is_allowed(self, planned: PlannedStart, usage: PlannedUsage) -> bool:
        """It may run on its nodes, and they are still in the domains that it asks for."""
        for need in self._class_of(planned.workload).needs:
            if need.needed and not self._cycle_state.scores.state(need.shape).allowed[usage.rows].all():
                return False
        places = {place.pod: place.node for place in planned.places}
        workload = self._state.workloads[planned.workload]
        return obeys_levels(self._state, self._cycle_state.working.nodes, workload, places)

    def _may_start(self, name: str, others: list[QueueCharge]) -> Callable[[int], bool]:
        charge = self._cycle_state.charges.queue_charge(self._class_of(name))
        return lambda at_s: self._quota.may_start(charge, at_s, others)

    def _earlier(
        self, planned: PlannedStart, workload: Workload, ahead: list[PlannedUsage], behind: list[PlannedStart]
    ) -> PlannedStart | None:
        """Another place where it can start earlier, if no other planned start has to move for that."""
        is_due = planned.start_s <= self._now_s and self._is_free(planned)
        if is_due or self._cycle_state.budget.is_spent or not self._state.backlog.try_all:
            return None  # unless something was freed, nothing can be earlier than it was
        others = ahead + usages_of(self._cycle, behind)
        charges = [each.charge for each in self._kept]
        charges += [charge_of_start(self._cycle, self._cycle_state, each) for each in behind]
        found = self._search(workload, charges).earliest(others, before_s=max(planned.start_s, self._now_s + 1))
        return None if found is None else replace(found, made_s=planned.made_s, is_overdue=planned.is_overdue)

    def _later(self, planned: PlannedStart, workload: Workload, ahead: list[PlannedUsage]) -> PlannedStart | None:
        found = self._search(workload, [each.charge for each in self._kept]).earliest(ahead)
        before = [each.workload for each in self._kept]
        return None if found is None else with_history(self._cycle, planned, found, before)

    def _start_due(self) -> None:
        for each in [each for each in self._kept if each.planned.start_s <= self._now_s]:
            if not self._is_free(each.planned):
                continue
            starts = self._start(each.planned, each.workload) if each.planned.is_overdue else []
            if each.planned.is_overdue and not starts:
                continue  # a limit of its queue is in the way: what its queue is charged is kept for it, too
            self._kept.remove(each)
            self._dropped.append(each.planned.workload)
            if starts:
                self._starts += starts
                self._started.append(each)
            elif self._quota.takes_what_others_are_owed(each.charge) or self._is_outranked(each.workload):
                self._by_turns.append(each)  # work that is owed more goes first, or it would reclaim the place
            elif starts := self._start(each.planned, each.workload):
                self._starts += starts
                self._started.append(each)

    def _is_outranked(self, workload: Workload) -> bool:
        """More important work waits in its queue, and gets its turn first: a planned start does not bind that."""
        state, impossible = self._state, self._state.backlog.impossible
        waiting = state.backlog.by_queue.get(workload.queue, {}).values()
        able = [state.workloads[found.waiters.name_at(0)] for found in waiting if found.key not in impossible]
        return any(outranks(other, workload) for other in able)

    def _is_free(self, planned: PlannedStart) -> bool:
        usage = usage_of(planned, self._state, self._now_s)
        return usage is not None and self._capacity.fits(usage._replace(end_s=self._now_s + 1), self._lost_usages)

    def _start(self, planned: PlannedStart, workload: Workload) -> list[Start]:
        """Start it exactly where it was planned; nothing when that is no longer allowed."""
        working, found = self._cycle_state.working, self._class_of(workload.name)
        payer, starts = self._cycle_state.charges.payer(found), list[Start]()
        shapes = _shapes_by_role(self._state, workload, found)
        with working.trial() as attempt:
            for place in planned.places:
                shape = shapes[role_name(place.pod)]
                want = self._state.backlog.shapes[shape]
                at = Nomination(workload.name, place.pod, place.node, place.devices)
                placed = self._cycle_state.placer.put_exactly(shape, want, at)
                if placed is None or not payer.try_charge(working, charge_of_placed(working, want, [placed])):
                    return []
                starts.append(Start(workload.name, place.pod, placed.node, placed.devices))
            nodes = [start.node for start in starts]
            nodes += [pod.node for pod in self._state.pods.get(workload.name, {}).values()]
            if not carries(working, workload.name, levels_of(workload), nodes):
                return []
            working.move(workload.name, [working.nodes.row[start.node] for start in starts], +1)
            attempt.keep()
        self._cycle_state.budget.used += len(starts)
        return leaders_first(workload, starts)

    def _search(self, workload: Workload, others: list[QueueCharge]) -> StartSearch:
        may_start = self._may_start(workload.name, others)
        return StartSearch(self._cycle, self._cycle_state, self._capacity, workload, may_start)

    def _class_of(self, name: str) -> WaitingClass:
        return self._state.backlog.class_of(name)


def _is_same(place: PlannedPod, workload: Workload) -> bool:
    want = role_of(workload, place.pod).request
    has = (place.cpu_milli, place.memory_mib, place.extended, len(place.devices))
    return has == (want.cpu_milli, want.memory_mib, want.extended, want.gpus)


def _shapes_by_role(state: ClusterState, workload: Workload, waiting_class: WaitingClass) -> dict[str, int]:
    """The needs of a class are those of the roles that miss pods, in their order."""
    present = state.pods.get(workload.name, {})
    missing = [role for role in workload.roles if any(pod_name(role, at) not in present for at in range(role.count))]
    return {role.name: need.shape for role, need in zip(missing, waiting_class.needs, strict=True)}


def _in_order(state: ClusterState) -> list[PlannedStart]:
    """The overdue one, then the oldest first; within a queue, the most important first."""
    oldest = sorted(state.planned_starts.values(), key=lambda each: (each.made_s, each.workload))
    workloads = [state.workloads.get(each.workload) for each in oldest]
    queues = [workload.queue if workload is not None else "" for workload in workloads]
    priority = [workload.priority if workload is not None else 0 for workload in workloads]
    by_priority = sorted(range(len(oldest)), key=lambda at: -priority[at])
    turns = {queue: iter([at for at in by_priority if queues[at] == queue]) for queue in set(queues)}
    found = [oldest[next(turns[queue])] for queue in queues]
    return sorted(found, key=lambda each: not each.is_overdue)


def with_history(
    cycle: CycleInput, before: PlannedStart | None, now: PlannedStart, ahead: Sequence[Workload]
) -> PlannedStart:
    """A start that was planned before keeps its place in the order, and names what delays it."""
    if before is None:
        return now
    if now.start_s <= before.start_s:
        return replace(now, made_s=before.made_s)
    cause, delayed_by = _delay_cause(cycle.state, cycle.now_s, before, ahead)
    return replace(now, made_s=before.made_s, delay=cause, delayed_by=delayed_by)


def _delay_cause(
    state: ClusterState, now_s: int, planned: PlannedStart, ahead: Sequence[Workload]
) -> tuple[DelayCause, str]:
    """A lost node, the work that holds its place, or a start planned before it; and the name of that."""
    for place in planned.places:
        if _is_lost(state.nodes, place):
            return DelayCause.NODE, place.node
    for place in planned.places:
        for pod in _holders(state, place):
            found = _by_holder(state, now_s, planned, pod)
            if found is not None:
                return found
    if ahead:
        return DelayCause.OUTRANKED, ahead[-1].name
    return DelayCause.TAKEN, ""


def _is_lost(nodes: NodeTable, place: PlannedPod) -> bool:
    row = nodes.row.get(place.node)
    if row is None or not nodes.schedulable[row]:
        return True
    columns = [nodes.column[row].get(share.gpu) for share in place.devices]
    return any(column is None or not nodes.gpus[row, USABLE, column] for column in columns)


def _holders(state: ClusterState, place: PlannedPod) -> list[Pod]:
    gpus = {share.gpu for share in place.devices}
    held = state.allocations_on.get(place.node, {})
    pods = [pod for key in sorted(held) if isinstance(pod := held[key], Pod) and pod.phase not in RELEASING_PHASES]
    return [pod for pod in pods if not gpus.isdisjoint(share.gpu for share in pod.devices)]


def _by_holder(state: ClusterState, now_s: int, planned: PlannedStart, pod: Pod) -> tuple[DelayCause, str] | None:
    """None: the pod on its place ends on time."""
    workload = state.workloads.get(pod.workload)
    if workload is None:
        return DelayCause.TAKEN, pod.workload
    run_s = expected_run_s(workload)
    end_s = pod.since_s + run_s
    if run_s and now_s < end_s <= planned.start_s:
        return None
    if run_s and end_s <= now_s:
        return DelayCause.OVERRAN, pod.workload
    if outranks(workload, state.workloads[planned.workload]):
        return DelayCause.OUTRANKED, pod.workload
    return DelayCause.TAKEN, pod.workload
