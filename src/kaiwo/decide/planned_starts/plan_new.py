"""Plan the starts of large workloads that still wait, and give backfilled work a deadline."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState, earliest_s
from kaiwo.decide.placement.queue_limits import QueueCharge
from kaiwo.decide.planned_starts.backfill import BackfillMasks, ProtectedStart, outranks
from kaiwo.decide.planned_starts.earliest_start import StartSearch
from kaiwo.decide.planned_starts.future_capacity import FutureCapacity, charge_of_start, reserved_for_others, usages_of
from kaiwo.decide.planned_starts.future_quota import FutureQuota
from kaiwo.decide.planned_starts.keep_planned import KeptPlannedStarts, with_history
from kaiwo.decide.planned_starts.overdue_start import CycleChanges, can_be_planned, plan_overdue_start
from kaiwo.decide.turn_order import Turns, lanes_of
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.plan import Eviction, Nomination, Start
from kaiwo.model.planned_start import PlannedStart, expected_run_s
from kaiwo.model.workload import Workload
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.capacity_timeline import reserved_spans, timeline_of, timeline_with_changes

MIN_MILLI = 2 * WHOLE_MILLI  # less is not large, however small the cluster


class NewPlannedStarts(NamedTuple):
    planned: dict[str, PlannedStart]  # by workload: those that were kept, and new ones
    look_again_s: int = 0


def set_deadlines(
    cycle: CycleInput, starts: tuple[Start, ...], nominations: Iterable[Nomination], planned: KeptPlannedStarts
) -> tuple[tuple[Start, ...], int]:
    """Give starts in a gap a deadline. Also returns when to look again because planned starts must move (0: none)."""
    masks, now_s = planned.masks, cycle.now_s
    if masks is None:
        return starts, 0
    found, look_again_s = list(starts), 0
    for at, start in enumerate(starts):
        workload = cycle.state.workloads[start.workload]
        owners = _owners(masks, start)
        if not owners or start.workload in planned.dropped:
            continue
        if workload.name in masks.by_precedence or all(owner.gives_way_to(workload) for owner in owners):
            look_again_s = now_s + 1
        elif workload.preemptible and (run_s := expected_run_s(workload)):
            found[at] = replace(start, until_s=now_s + run_s)
    if any(_owners(masks, nomination) for nomination in nominations):
        look_again_s = now_s + 1
    return tuple(found), look_again_s


def plan_new_starts(
    cycle: CycleInput,
    cycle_state: CycleState,
    kept: dict[str, PlannedStart],
    starts: Sequence[Start],
    served: set[str],
    evictions: Iterable[Eviction],
) -> NewPlannedStarts:
    """Plan the first overdue workload and the first large ones that still wait. Those in `served` start, or space is
    kept for them."""
    changes = CycleChanges({(each.workload, each.pod) for each in evictions}, starts)
    overdue = plan_overdue_start(cycle, cycle_state, kept, served, changes)
    if overdue.planned is not None:
        kept = {**kept, overdue.planned.workload: overdue.planned}
    large = _plan_large(cycle, cycle_state, kept, served, changes)
    return large._replace(look_again_s=earliest_s(large.look_again_s, overdue.look_again_s))


def _plan_large(
    cycle: CycleInput,
    cycle_state: CycleState,
    kept: dict[str, PlannedStart],
    served: set[str],
    changes: CycleChanges,
) -> NewPlannedStarts:
    count = cycle.policy.promises - len(kept)
    if count <= 0 or cycle_state.budget.is_spent:
        return NewPlannedStarts(kept)
    total = int(cycle_state.working.nodes.gpu_total.sum())
    least = max(MIN_MILLI, total * cycle.policy.large_permille // WHOLE_MILLI)
    waiting = cycle.state.backlog.by_key.values()
    large = [found for found in waiting if found.demand.gpu_milli >= least and can_be_planned(cycle, found)]
    if not large:
        return NewPlannedStarts(kept)
    # What this cycle starts or stops is part of the time to come.
    releases = changes.releases(cycle)
    timeline = timeline_with_changes(timeline_of(cycle.state), cycle.state, changes.stopped, releases)
    if timeline.is_empty and not kept:
        return NewPlannedStarts(kept)
    planner = _Planner(cycle, cycle_state, kept, FutureCapacity(cycle_state.working, timeline))
    return planner.run(sorted(large, key=lambda found: found.key), served, count)


class _Planner:
    def __init__(
        self, cycle: CycleInput, cycle_state: CycleState, kept: dict[str, PlannedStart], capacity: FutureCapacity
    ) -> None:
        self._cycle, self._cycle_state, self._state, self._capacity = cycle, cycle_state, cycle.state, capacity
        self._planned = dict(kept)
        self._spans = reserved_spans(cycle.state, cycle.now_s)
        self._quota = FutureQuota(cycle.state, cycle_state.working)

    def run(self, large: list[WaitingClass], served: set[str], count: int) -> NewPlannedStarts:
        charges, now_s, look_again_s = self._cycle_state.charges, self._cycle.now_s, 0
        lanes = lanes_of(found for found in large if charges.takes_work(found.queue))
        turns = Turns(lanes, self._cycle_state.working.view, self._cycle.plugins, charges.next_of)
        while turns and count and not self._cycle_state.budget.is_spent:
            lane = turns.lane
            (_, name), _, found = lane.first
            if name not in served and name not in self._planned:
                count -= 1
                planned = self._plan(self._state.workloads[name], charges.queue_charge(found))
                if planned is not None and planned.start_s > now_s:
                    before = self._state.planned_starts.get(name)
                    ahead = [self._workload_of(each) for each in self._planned.values()]
                    self._planned[name] = with_history(self._cycle, before, planned, ahead)
                    look_again_s = earliest_s(look_again_s, planned.start_s)
                elif planned is not None:
                    look_again_s = now_s + 1  # it fits alongside what this cycle started after its turn
            lane.advance(1)
            turns.requeue()
        return NewPlannedStarts(self._planned, look_again_s)

    def _plan(self, workload: Workload, charge: QueueCharge) -> PlannedStart | None:
        others = [each for each in self._planned.values() if not outranks(workload, self._workload_of(each))]
        usages = usages_of(self._cycle, others) + reserved_for_others(self._cycle, self._spans, workload)
        paid = [charge_of_start(self._cycle, self._cycle_state, each) for each in others]
        may_start = partial(self._quota.may_start, charge, others=paid)
        return StartSearch(self._cycle, self._cycle_state, self._capacity, workload, may_start).earliest(usages)

    def _workload_of(self, planned: PlannedStart) -> Workload:
        return self._state.workloads[planned.workload]


def _owners(masks: BackfillMasks, placed: Start | Nomination) -> list[ProtectedStart]:
    return masks.planned_on(placed.node, {share.gpu for share in placed.devices})
