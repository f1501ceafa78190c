"""Bound the wait: keep a place free for the workload that has waited too long.

A workload is overdue once it has waited for the policy's `max_wait_s`. The first overdue one of the cluster gets a
planned start that binds all other work, whatever its queue, priority or run time. Nothing else starts on its place
until the work that runs there has ended, or was stopped by the usual rules. One workload at a time has such a place.

First is the oldest, of one candidate a queue. A workload that takes its queue over its fair share, while another queue
has less than its own, comes only once in `overdue_run_s`: otherwise a flood of old work would void the shares.
Never: stops work. Expected run times only decide which place is likely to come free first.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey, earliest_s
from kaiwo.decide.planned_starts.earliest_start import StartSearch
from kaiwo.decide.planned_starts.future_capacity import FutureCapacity, reserved_for_others
from kaiwo.decide.planned_starts.future_quota import FutureQuota
from kaiwo.decide.planned_starts.waiting_time import overdue_from_s, protected_until_s
from kaiwo.model.plan import Start
from kaiwo.model.planned_start import PlannedStart, expected_run_s
from kaiwo.model.workload import ACTIVE_PHASES, Phase, Pod, Workload, role_of
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import entitled
from kaiwo.snapshot.backlog import ClassKey, WaitingClass
from kaiwo.snapshot.capacity_timeline import PodRelease, reserved_spans, timeline_of, timeline_with_changes
from kaiwo.snapshot.node_table import FREE_GPU

Releases = dict[int, list[PodRelease]]  # by node
UNKNOWN_S = 30 * 86_400  # work of unknown run time is taken to end this much later than now
FEW_NODES = 256  # a place is looked for first on the nodes that have the most free


class OverdueStart(NamedTuple):
    planned: PlannedStart | None = None
    look_again_s: int = 0


class CycleChanges(NamedTuple):
    """What this cycle stops and starts."""

    stopped: set[PodKey]
    starts: Sequence[Start]

    def releases(self, cycle: CycleInput, unknown_s: int = 0) -> Releases:
        """By node: when the pods that it starts will end. `unknown_s`: where nobody knows; 0: leave those out."""
        now_s, found = cycle.now_s, Releases()
        for start in self.starts:
            workload = cycle.state.workloads[start.workload]
            if run_s := expected_run_s(workload) or unknown_s:
                want = role_of(workload, start.pod).request
                amounts = (start.devices, want.cpu_milli, want.memory_mib, want.extended, now_s)
                pod = Pod(start.workload, start.pod, start.node, Phase.ASSUMED, *amounts)
                found.setdefault(cycle.state.nodes.row[start.node], []).append(PodRelease(now_s + run_s, pod))
        return found


def plan_overdue_start(
    cycle: CycleInput,
    cycle_state: CycleState,
    kept: dict[str, PlannedStart],
    served: set[str],
    changes: CycleChanges,
) -> OverdueStart:
    """A planned start for the first overdue workload, unless another one still waits for its own."""
    if not cycle.policy.max_wait_s or any(each.is_overdue for each in kept.values()):
        return OverdueStart()
    candidates = _candidates(cycle, cycle_state, served)
    overdue = [each for each in candidates if each.due_s <= cycle.now_s]
    look_again_s = min((each.due_s for each in candidates if each.due_s > cycle.now_s), default=0)
    next_s = _next_over_share_s(cycle, cycle_state) if overdue else 0
    must_share, quota = next_s > cycle.now_s, FutureQuota(cycle.state, cycle_state.working)
    owed = quota.owed_queues() if must_share else None
    for each in overdue:
        charge = cycle_state.charges.queue_charge(each.waiting_class)
        if must_share and quota.takes_what_others_are_owed(charge, owed):
            look_again_s = earliest_s(look_again_s, next_s)
            continue
        planned = _place_of(cycle, cycle_state, each.workload, kept, changes)
        if planned is not None:
            return OverdueStart(planned, cycle.now_s + 1)  # from then on other work leaves its place free
    return OverdueStart(None, look_again_s)


def can_be_planned(cycle: CycleInput, waiting_class: WaitingClass) -> bool:
    """Its place can be known ahead: not so with rules between pods, or on a reservation."""
    backlog = cycle.state.backlog
    if not any(need.needed for need in waiting_class.needs) or waiting_class.key in backlog.impossible:
        return False
    wants = [backlog.shapes[need.shape] for need in waiting_class.needs]
    return all(want.neighbours is None and not want.reservation for want in wants)


class _Candidate(NamedTuple):
    due_s: int  # from then on it is overdue
    workload: Workload
    waiting_class: WaitingClass


def _candidates(cycle: CycleInput, cycle_state: CycleState, served: set[str]) -> list[_Candidate]:
    """The first workload of each queue that is overdue, in order, and the one that is overdue next."""
    by_age, now_s = cycle.state.backlog.by_age, cycle.now_s
    # None of a queue is overdue before its oldest could be. With 1,000 queues, looking into each took 10 ms of a cycle.
    least = sorted((ages.at(0).submitted_s + cycle.policy.max_wait_s, queue) for queue, ages in by_age.items())
    found: list[_Candidate] = []
    next_s = 0  # the next one that is not overdue yet
    for least_s, queue in least:
        if 0 < next_s <= least_s:
            break
        first = _first_of(cycle, queue, served) if cycle_state.charges.takes_work(queue) else None
        if first is not None:
            found.append(first)
            if first.due_s > now_s:
                next_s = min(next_s or first.due_s, first.due_s)
    return sorted(found, key=lambda each: (each.due_s, each.workload.name))


def _first_of(cycle: CycleInput, queue: str, served: set[str]) -> _Candidate | None:
    state, backlog, first = cycle.state, cycle.state.backlog, None
    by_age = backlog.by_age[queue]
    able: dict[ClassKey, bool] = {}
    left = len(by_age)  # workloads of classes that can be planned, or are not looked at yet
    for queued in by_age:
        name = queued.name
        if first is not None and queued.submitted_s + cycle.policy.max_wait_s >= first.due_s:
            break  # it cannot have waited for longer than it is there
        found = backlog.by_key[queued.key]
        is_able = able.get(queued.key)
        if is_able is None:
            is_able = able[queued.key] = not found.signature.nominated_for and can_be_planned(cycle, found)
            left -= 0 if is_able else len(found.waiters)
            if not left:
                break  # of 100,000 that can never start, only one of each class is looked at
        if name in served or not is_able:
            continue
        workload = state.workloads[name]
        due_s = overdue_from_s(state, workload, cycle.policy)
        if first is None or due_s < first.due_s:
            first = _Candidate(due_s, workload, found)
    return first


def _next_over_share_s(cycle: CycleInput, cycle_state: CycleState) -> int:
    """From when the next overdue workload may take its queue over its share: the last one has had its time by then."""
    shares, state = current_shares(cycle_state.working.view), cycle.state
    found_s = 0
    for name in state.started_overdue:
        row = shares.queues.row.get(state.workloads[name].queue)
        until_s = protected_until_s(state, name, cycle.policy)
        if until_s > found_s and row is not None and (shares.used[row] > entitled(shares, row)).any():
            found_s = until_s
    return found_s


def _place_of(
    cycle: CycleInput,
    cycle_state: CycleState,
    workload: Workload,
    kept: dict[str, PlannedStart],
    changes: CycleChanges,
) -> PlannedStart | None:
    """Where it can start first once the work that runs there has ended; None: nowhere."""
    if workload.name in kept:
        return replace(kept[workload.name], is_overdue=True)
    # Other planned starts give way: the next cycle plans them around this one.
    usages = reserved_for_others(cycle, reserved_spans(cycle.state, cycle.now_s), workload)
    for rows in _rows_to_drain(cycle_state, workload):
        timeline = timeline_with_changes(timeline_of(cycle.state), cycle.state, *_all_end(cycle, rows, changes))
        capacity = FutureCapacity(cycle_state.working, timeline)
        found = StartSearch(cycle, cycle_state, capacity, workload, lambda at_s: True).earliest(usages)
        if found is not None:
            is_known = found.start_s < cycle.now_s + UNKNOWN_S
            return replace(found, start_s=found.start_s if is_known else cycle.now_s, is_overdue=True)
    return None


def _rows_to_drain(cycle_state: CycleState, workload: Workload) -> Iterator[list[int]]:
    """The nodes whose work counts as ending, however long it runs: first those with the most free, then all."""
    free, names = cycle_state.working.free[:, FREE_GPU].tolist(), cycle_state.working.nodes.names
    order = sorted(range(len(free)), key=lambda row: (-free[row], names[row]))
    few = max(FEW_NODES, 4 * workload.pods)
    if few < len(order):
        yield order[:few]
    yield order


def _all_end(cycle: CycleInput, rows: Iterable[int], changes: CycleChanges) -> tuple[set[PodKey], Releases]:
    """What is stopped and what ends when, with an end for work of unknown run time: preemptible work comes first."""
    state, added = cycle.state, changes.releases(cycle, UNKNOWN_S)
    for row in rows:
        for held in state.allocations_on.get(state.nodes.names[row], {}).values():
            workload = state.workloads.get(held.workload)
            if not isinstance(held, Pod) or workload is None or held.phase not in ACTIVE_PHASES:
                continue
            if not expected_run_s(workload) and (held.workload, held.name) not in changes.stopped:
                end_s = cycle.now_s + UNKNOWN_S * (1 if workload.preemptible else 2)
                added.setdefault(row, []).append(PodRelease(end_s, held))
    return changes.stopped, added
