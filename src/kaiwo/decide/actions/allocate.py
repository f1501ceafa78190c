"""Allocate: start the waiting workloads that fit, each time the first one of the queue whose turn it is.

Elastic work starts with the pods it needs. It grows once every queue has had its turns, one pod at a time, in the same
order of queues.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kaiwo.decide.actions.allocate_batch import LARGEST_BATCH, SMALLEST_BATCH, AllocationBatch, StuckClasses
from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey, nominate, places_of_followers
from kaiwo.decide.placement.node_fit import CapacityMask
from kaiwo.decide.placement.place_pods import Placed, charge_of_placed, place_pods
from kaiwo.decide.placement.place_workload import ALL_PODS, Placement, first_missing_pod, place_workload
from kaiwo.decide.planned_starts.keep_planned import KeptPlannedStarts
from kaiwo.decide.turn_order import Lane, NextNeed, Turns, classes_left, is_planned, lanes_of
from kaiwo.model.network.level_groups import WorkloadLevels
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.plan import DomainChoice, Eviction, Nomination, Start
from kaiwo.snapshot.backlog import ClassKey, RoleNeeds, WaitingClass, needs_of_each_choice, needs_to_make_room_for

MAX_PASSED = 256  # workloads of one class, to find one that fits into a gap
STEPS_PER_RELEASE = 4  # evaluating again the nodes on which pods are leaving


class AllocationResult(NamedTuple):
    starts: tuple[Start, ...]
    nominations: tuple[Nomination, ...]  # for workloads that fit once pods that are leaving are gone
    given_up: tuple[PodKey, ...]  # nominations that are not needed any more
    stuck: dict[ClassKey, WaitingClass]  # tried in this cycle, or barred from a try
    too_long: dict[ClassKey, Obstacle]  # classes that would fit if they ran for less time
    unreached: tuple[tuple[WaitingClass, ...], ...]  # by group of candidates: the budget did not reach them
    domains: tuple[DomainChoice, ...] = ()  # of the network, for work with levels


def allocate(
    cycle: CycleInput,
    cycle_state: CycleState,
    groups: Sequence[Sequence[WaitingClass]],
    planned: KeptPlannedStarts,
    evictions: Sequence[Eviction],
) -> AllocationResult:
    """Give every queue its turns until nothing more starts, one group of candidates after the other."""
    action = Allocate(cycle, cycle_state, planned, evictions)
    left, barred = [], []
    for group in groups:
        turns, ineligible = action.line_up(group)
        if "allocate" in cycle.policy.actions:
            action.run(turns, lambda: cycle_state.budget.is_spent)
            # What a batch found stuck may be in its lane again, because the batch was put back.
            left.append([found for found in classes_left(turns.lanes) if found.key not in action.stuck.by_key])
        else:
            ineligible += classes_left(turns.lanes)
            left.append([])
        barred.append(ineligible)
    for rest, ineligible in zip(left, barred, strict=True):
        for found in ineligible:
            if cycle_state.budget.is_spent:
                rest.append(found)
            else:
                action.stuck.add(found)
    return action.result(left)


class Allocate:
    """The turns of one cycle, and their results."""

    def __init__(
        self, cycle: CycleInput, cycle_state: CycleState, planned: KeptPlannedStarts, evictions: Sequence[Eviction]
    ) -> None:
        self._cycle, self._cycle_state, self._planned = cycle, cycle_state, planned
        self._shapes = cycle.state.backlog.shapes
        self._evicted = {eviction.workload for eviction in evictions}
        self.starts: list[Start] = []
        self.stuck = StuckClasses(cycle_state)
        self._nominations: list[Nomination] = []
        self._given_up: list[PodKey] = []
        self._too_long: dict[ClassKey, Obstacle] = {}
        self._passed_over: dict[ClassKey, int] = {}  # by class: they wait for a planned start, or run too long
        self._domains: list[DomainChoice] = []
        # Needs that do not fit even once all leaving pods are gone.
        self._never_released: set[tuple[RoleNeeds, WorkloadLevels | None, str]] = set()

    def line_up(
        self, candidates: Sequence[WaitingClass], always: WaitingClass | None = None
    ) -> tuple[Turns[Lane], list[WaitingClass]]:
        """The classes that their queues allow to start, in lanes, and the others; `always` gets a turn in any case.

        Classes that could never start, or that wait for planned starts, get no turn: otherwise their queue would be
        ordered by work that does not start now.
        """
        charges, planned = self._cycle_state.charges, self._planned.kept
        impossible = self._cycle.state.backlog.impossible
        able: list[WaitingClass] = []
        barred: list[WaitingClass] = []
        for found in candidates:
            may_start = found.key not in impossible and not (planned and is_planned(planned, found))
            may_start = may_start and charges.may_start(found)
            is_forced = found is always and charges.takes_work(found.queue)
            (able if may_start or is_forced else barred).append(found)
        return Turns(lanes_of(able), self._cycle_state.working.view, self._cycle.plugins, charges.next_of), barred

    def run(self, turns: Turns[Lane], is_over: Callable[[], bool]) -> None:
        """Many turns at once while all of them fit, else one by one."""
        masks = self._planned.masks
        # With planned starts, the capacity that a workload sees depends on how long it runs: turns cannot be batched.
        is_plain = masks is None and not self._evicted and not self._planned.started
        run = _Run(turns)
        while turns and not is_over():
            if run.turns_alone or not is_plain or not self._take_batch(run):
                run.turns_alone = max(0, run.turns_alone - 1)
                self._take_turn(run)
        # With planned starts, work grows in the next cycle: how long it runs decides where it may grow.
        if run.growing and masks is None and not is_over():
            self._grow(run.growing, is_over)

    def could_fit(self, waiting_class: WaitingClass, name: str) -> bool:
        """A necessary condition, by shape and not by class: room for what it needs, as if it were alone."""
        return self._check_fit(waiting_class, name).could_fit

    def result(self, unreached: Sequence[Sequence[WaitingClass]]) -> AllocationResult:
        return AllocationResult(
            (*self._planned.starts, *self.starts),
            tuple(self._nominations),
            tuple(self._given_up),
            self.stuck.by_key,
            self._too_long,
            tuple(tuple(group) for group in unreached),
            tuple(self._domains),
        )

    def _check_fit(self, waiting_class: WaitingClass, name: str) -> "_FitCheck":
        """Whether a workload of a class could fit, on the nodes as planned starts of others leave them to it."""
        masks, mask = self._planned.masks, None
        if masks is not None:
            if name in self._planned.kept:
                return _FitCheck(False, None)  # it starts when it is planned to
            if not waiting_class.signature.nominated_for:
                workload = self._cycle.state.workloads[name]
                mask = masks.mask_for(workload, self._cycle_state.charges.queue_charge(waiting_class))
        if waiting_class.signature.nominated_for:
            return _FitCheck(True, mask)
        has_room = self._cycle_state.has_room(waiting_class, mask)
        return _FitCheck(has_room and self._leaves_charges(waiting_class, name, mask), mask)

    def _leaves_charges(self, waiting_class: WaitingClass, name: str, mask: CapacityMask | None) -> bool:
        """It leaves queues what they must be charged for the planned starts of others."""
        masks = self._planned.masks
        if masks is None or mask is None:
            return True
        charge = self._cycle_state.charges.queue_charge(waiting_class)
        return masks.leave_charges(self._cycle.state.workloads[name], charge)

    def _take_batch(self, run: "_Run") -> bool:
        """Start the next turns together, all of them or none; where one does not fit, those before it."""
        budget = self._cycle_state.budget
        batch = AllocationBatch(run.turns, self._cycle_state, self._shapes, self.stuck, self._may_wait_for_release)
        batch.gather(min(run.size, max(1, budget.limit - budget.used)))
        if not batch.picked:
            return not run.turns
        starts, reached = self._start_batch(batch)
        if reached < len(batch.picked):
            batch.put_back()
            budget.used += len(batch.picked) // 8  # gathering the batch took time, too
            # Half of the batch may still fit; with repeated halving, all attempts together cost no more than the first.
            half = len(batch.picked) // 2
            run.size, run.is_cut = half if run.is_cut else max(half, reached), True
            if run.size < SMALLEST_BATCH:
                run.turns_alone, run.size, run.is_cut = SMALLEST_BATCH, SMALLEST_BATCH, False
            return not run.turns_alone
        if run.is_cut:  # the next turn is the one that did not fit, and others may follow
            run.turns_alone, run.size, run.is_cut = 1, SMALLEST_BATCH, False
        run.size = min(LARGEST_BATCH, run.size * 2)
        self.starts.extend(starts)
        budget.used += len(starts)
        return True

    def _start_batch(self, batch: AllocationBatch) -> tuple[list[Start], int]:
        """Large requests first, each group at once: the starts, and how many turns come before the first misfit."""
        cycle_state, shapes = self._cycle_state, self._shapes
        starts: dict[int, Start] = {}
        with cycle_state.working.trial() as attempt:
            groups = sorted(batch.by_shape.items(), key=lambda item: (-shapes[item[0]].least_milli, item[1]))
            for shape, group in groups:
                placed = cycle_state.placer.place(shape, shapes[shape], len(group))
                if len(placed) < len(group):
                    return [], group[len(placed)]
                for at, each in zip(group, placed, strict=True):
                    found, position = batch.picked[at]
                    if at in batch.uncharged and not self._pays(found, each):
                        return [], at
                    starts[at] = self._start_of(found, position, each)
            attempt.keep()
        return [starts[at] for at in sorted(starts)], len(batch.picked)

    def _pays(self, waiting_class: WaitingClass, placed: Placed) -> bool:
        working, want = self._cycle_state.working, self._shapes[waiting_class.needs[0].shape]
        payer = self._cycle_state.charges.payer(waiting_class)
        return payer.try_charge(working, charge_of_placed(working, want, [placed]))

    def _take_turn(self, run: "_Run") -> None:
        budget, lane = self._cycle_state.budget, run.turns.lane
        (_, name), position, found = lane.first
        if name in self._evicted or name in self._planned.started:  # it is losing pods, or has just started
            budget.used += 1
            lane.advance(1)
            run.turns.requeue()
            return
        started, check = 0, _FitCheck(False, None)
        if found.key not in self.stuck.by_key:
            check = self._check_fit(found, name)
            if check.could_fit and found.is_single:
                started = self._start_single(found, position, check)
            elif check.could_fit:
                started = self._start_one(run, found, check)
        budget.used += max(1, started) + self._cycle_state.placer.take_retries()
        if started or self._waits_for_release(name, found, check) or self._passes_over(name, found, check):
            lane.advance(1)
            if found.key in self._passed_over and found not in lane.rest():
                self.stuck.add(found)
        else:
            lane.set_aside()
            self.stuck.add(found)
        run.turns.requeue()

    def _passes_over(self, name: str, waiting_class: WaitingClass, check: "_FitCheck") -> bool:
        """It did not fit only because it runs too long: a workload behind it in its class may fit."""
        masks = self._planned.masks
        if masks is None:
            return False
        if name not in self._planned.kept:
            if check.mask is None or not self._cycle_state.has_room(waiting_class):
                return False
            charge = self._cycle_state.charges.queue_charge(waiting_class)
            self._too_long.setdefault(waiting_class.key, masks.obstacle(self._cycle.state.workloads[name], charge))
        passed = self._passed_over[waiting_class.key] = self._passed_over.get(waiting_class.key, 0) + 1
        return passed <= MAX_PASSED

    def _may_wait_for_release(self, waiting_class: WaitingClass) -> bool:
        """Space that is being released could be nominated for it."""
        if not self._cycle_state.working.has_releasing_pods or waiting_class.signature.nominated_for:
            return False
        return _what_it_needs(waiting_class) not in self._never_released

    def _waits_for_release(self, name: str, waiting_class: WaitingClass, check: "_FitCheck") -> bool:
        """Nominate a workload for space that pods being stopped will release, if it fits there."""
        if not self._may_wait_for_release(waiting_class) or name in self._planned.kept:
            return False
        if not self._leaves_charges(waiting_class, name, check.mask):
            return False
        state, working = self._cycle.state, self._cycle_state.working
        self._cycle_state.budget.used += STEPS_PER_RELEASE
        workload, placer = state.workloads[name], self._cycle_state.placer.under(check.mask)
        working.count_releasing(+1)
        ways = needs_of_each_choice(waiting_class) or [needs_to_make_room_for(waiting_class)]
        tries = (place_workload(placer, state, workload, needs, grows=False) for needs in ways)
        placement = next(filter(None, tries), None)
        working.count_releasing(-1)
        if placement is None:
            if self._cycle_state.charges.may_start(waiting_class):
                self._never_released.add(_what_it_needs(waiting_class))
            return False
        self._given_up.extend(placement.given_up)
        self._domains.extend(placement.domains)
        self._nominations.extend(nominate(state, workload, placement))
        return True

    def _start_single(self, waiting_class: WaitingClass, position: int, check: "_FitCheck") -> int:
        shape, charges = waiting_class.needs[0].shape, self._cycle_state.charges
        if not charges.may_start(waiting_class):
            return 0
        placer = self._cycle_state.placer.under(check.mask)
        placed = place_pods(placer, charges.payer(waiting_class), shape, self._shapes[shape], 1)
        if placed is None:
            return 0
        self.starts.append(self._start_of(waiting_class, position, placed[0]))
        return 1

    def _start_of(self, waiting_class: WaitingClass, position: int, placed: Placed) -> Start:
        state = self._cycle.state
        workload = state.workloads[waiting_class.waiters.name_at(position)]
        return Start(workload.name, first_missing_pod(state, workload), placed.node, placed.devices)

    def _start_one(self, run: "_Run", waiting_class: WaitingClass, check: "_FitCheck") -> int:
        """Start one workload of several pods, all that it needs or none."""
        state, charges = self._cycle.state, self._cycle_state.charges
        if not charges.may_start(waiting_class):
            return 0
        (_, name), _, _ = run.turns.lane.first
        workload = state.workloads[name]
        # First what each workload needs to start, then more; sub-groups and running work grow in their turn.
        grows = waiting_class.choices is not None or not any(need.needed for need in waiting_class.needs)
        placer = self._cycle_state.placer.under(check.mask)
        placement = place_workload(placer, state, workload, waiting_class.needs, grows=grows)
        if placement is None:
            return 0
        if placement.gang is not None and not grows:
            need = charges.one_pod_of(waiting_class, workload)
            run.growing.setdefault(waiting_class.queue, []).append(_Growing(placement, need))
        self.starts.extend(placement.starts)
        self._nominations.extend(places_of_followers(name, placement))
        self._given_up.extend(placement.given_up)
        self._domains.extend(placement.domains)
        return len(placement.starts)

    def _grow(self, lanes: dict[str, list["_Growing"]], is_over: Callable[[], bool]) -> None:
        turns = Turns(lanes, self._cycle_state.working.view, self._cycle.plugins, lambda lane: lane[0].next_need)
        while turns and not is_over():
            lane = turns.lane
            starts = lane[0].placement.grow(ALL_PODS if turns.is_last_queue else 1)
            self.starts.extend(starts)
            self._cycle_state.budget.used += max(1, len(starts))
            if not starts or turns.is_last_queue:
                del lane[0]
            turns.requeue()


def _what_it_needs(waiting_class: WaitingClass) -> tuple[RoleNeeds, WorkloadLevels | None, str]:
    return waiting_class.needs, waiting_class.signature.levels, waiting_class.signature.joins


class _Growing(NamedTuple):
    placement: Placement
    next_need: NextNeed  # of one more of its pods: it orders its queue


class _FitCheck(NamedTuple):
    could_fit: bool
    mask: CapacityMask | None  # what planned starts of others take away from the nodes


class _Run:
    def __init__(self, turns: Turns[Lane]) -> None:
        self.turns = turns
        self.size = LARGEST_BATCH  # of the next batch
        self.turns_alone = 0  # turns to take one by one before the next batch
        self.is_cut = False  # the next batch ends before a workload that did not fit into the last
        self.growing: dict[str, list[_Growing]] = {}  # by queue: work that could use more pods, the oldest start first
