"""Make new planned starts, and say of what starts in a gap until when it may stay.

In:    the desk at the end of a cycle.   Out: promises for the first large ones that are left, marks on starts.
"""

from functools import partial

from msgspec.structs import replace

from kaiwo.decide.actions.allocate import line_up
from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.planned_starts.backfill import outranks
from kaiwo.decide.planned_starts.delay_cause import blame
from kaiwo.decide.planned_starts.earliest_start import Search
from kaiwo.decide.planned_starts.future_capacity import Space
from kaiwo.decide.planned_starts.future_quota import Dues, QueueCharge
from kaiwo.decide.planned_starts.planned_usage import due_of, reserved_for_others, takes_of, workload_of
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.planned_start import PlannedStart, known_run_s
from kaiwo.model.workload import Phase, Pod, role_of
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.capacity_timeline import PodRelease, reserved_spans, timeline_of, timeline_with_changes

LEAST_MILLI = 2 * WHOLE_MILLI  # less is not large, however small the cluster


def make_promises(desk: CycleState) -> None:
    """Plan the starts of the first large ones that are left, until there are as many promises as the policy wants."""
    count = desk.policy.promises - len(desk.promised)
    if count > 0 and not desk.is_spent:
        total = int(desk.working.nodes.gpu_total.sum())
        least = max(LEAST_MILLI, total * desk.policy.large_permille // WHOLE_MILLI)
        waiting = desk.state.backlog.by_key.values()
        large = [found for found in waiting if found.demand[0] >= least and _may_be_promised(desk, found)]
        if large:
            _make(desk, sorted(large, key=lambda found: found.key), count)


def changed_promises(desk: CycleState) -> tuple[PlannedStart, ...]:
    """What is new or different since the last plan."""
    before = desk.state.planned_starts
    return tuple(promise for name, promise in sorted(desk.promised.items()) if promise != before.get(name))


def mark_fillers(desk: CycleState) -> None:
    """Say of starts in a gap until when nobody touches them. Who may not be stopped has a time limit instead."""
    if desk.shades is None:
        return
    now_s, begun = desk.working.now_s, set(desk.unpromised)
    for at, start in enumerate(desk.starts):
        workload = desk.state.workloads[start.workload]
        owners = desk.shades.on_place_of(start.node, {share.gpu for share in start.devices})
        if not owners or start.workload in begun:
            continue
        if workload.name in desk.shades.by_right or all(outranks(workload, owner) for owner in owners):
            desk.look_again(now_s + 1)  # the promise has to see
        elif workload.preemptible and (run_s := known_run_s(workload)):
            desk.starts[at] = replace(start, until_s=now_s + run_s)
    for kept in desk.nominations:
        if desk.shades.on_place_of(kept.node, {share.gpu for share in kept.devices}):
            desk.look_again(now_s + 1)


def _make(desk: CycleState, large: list[WaitingClass], count: int) -> None:
    """In the order of turns. What this cycle started or stopped is part of the time to come."""
    timeline = timeline_with_changes(timeline_of(desk.state), desk.state, desk.roster.gone, _releases_of_starts(desk))
    if timeline.is_empty and not desk.promised:
        return
    now_s = desk.working.now_s
    space = Space(desk.working, timeline)
    spans = reserved_spans(desk.state, now_s)
    begun = {start.workload for start in desk.starts} | desk.placed
    dues = Dues(desk.state, desk.working)
    turns, _ = line_up(desk, large, whatever_limits=True)
    while turns and count and not desk.is_spent:
        lane = turns.lane
        name, _, found = lane.first
        workload = desk.state.workloads[name]
        if name not in begun and name not in desk.promised:
            count -= 1
            others = [each for each in desk.promised.values() if not outranks(workload, workload_of(desk, each))]
            takes = takes_of(desk, others) + reserved_for_others(desk, spans, workload)
            due, paid = desk.due_of(found), [due_of(desk, each) for each in others]
            lets = partial(_let_start, dues, due, paid)
            promise = Search(desk, space, workload, found.needs, lets).earliest(takes)
            if promise is not None and promise.start_s > now_s:
                desk.promised[name] = _told_again(desk, promise)
                desk.look_again(promise.start_s)
            elif promise is not None:
                desk.look_again(now_s + 1)  # it fits beside what this cycle started after its turn
        lane.advance(1)
        turns.again()


def _told_again(desk: CycleState, promise: PlannedStart) -> PlannedStart:
    """Who had a planned start until this cycle keeps its place in the order, and is told why it is later."""
    before = desk.state.planned_starts.get(promise.workload)
    if before is None:
        return promise
    if promise.start_s <= before.start_s:
        return replace(promise, made_s=before.made_s)
    cause, who = blame(desk, before, [workload_of(desk, each) for each in desk.promised.values()])
    return replace(promise, made_s=before.made_s, delay=cause, delayed_by=who)


def _releases_of_starts(desk: CycleState) -> dict[int, list[PodRelease]]:
    """When the pods that this cycle started come to their end, by node."""
    now_s, found = desk.working.now_s, dict[int, list[PodRelease]]()
    for start in desk.starts:
        workload = desk.state.workloads[start.workload]
        if run_s := known_run_s(workload):
            want = role_of(workload, start.pod).request
            amounts = (start.devices, want.cpu_milli, want.memory_mib, want.extended, now_s)
            pod = Pod(start.workload, start.pod, start.node, Phase.ASSUMED, *amounts)
            found.setdefault(desk.working.nodes.row[start.node], []).append((now_s + run_s, pod))
    return found


def _may_be_promised(desk: CycleState, found: WaitingClass) -> bool:
    """It has not started, and where it will fit can be known: not so where pods mind others, or on a reservation.

    What could never start would use up a promise that somebody else waits for.
    """
    if not any(needed for _, _, needed in found.needs) or found.key in desk.state.backlog.impossible:
        return False
    wants = [desk.state.backlog.shapes[shape] for shape, _, _ in found.needs]
    return all(want.neighbours is None and not want.reservation for want in wants)


def _let_start(dues: Dues, due: QueueCharge, others: list[QueueCharge], at_s: int) -> bool:
    return dues.let_start(due, at_s, others)
