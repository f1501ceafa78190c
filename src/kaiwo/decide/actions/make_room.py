"""Run the actions that make room, as the policy orders them: reclaim, preempt, consolidate, stop stale gangs.

No action may use up the budget of the later ones, which would otherwise never run where much is stuck.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kaiwo.decide.actions import consolidate, preempt, reclaim
from kaiwo.decide.actions.allocate import AllocationResult
from kaiwo.decide.actions.swap_for_recovery import is_left_to_swap, swap_for_recovery
from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey
from kaiwo.decide.make_room.nominations import is_fully_nominated
from kaiwo.decide.make_room.preemption_cooldown import is_cooling_down
from kaiwo.decide.make_room.room_state import Attempt, RoomState
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.planned_starts.backfill import BackfillMasks
from kaiwo.decide.turn_order import Lane, Turns, classes_left, lanes_of
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.plan import DomainChoice, Eviction, EvictionCause, Nomination
from kaiwo.model.policy import Policy
from kaiwo.model.recovery import Recovery
from kaiwo.model.workload import ACTIVE_PHASES, Workload, has_required_pods
from kaiwo.snapshot.backlog import ActionKey, ClassKey, WaitingClass


class RoomAction(NamedTuple):
    cause: EvictionCause
    attempt: Callable[[RoomState, Placer, Workload, WaitingClass], Attempt]


ROOM_ACTIONS: dict[str, RoomAction] = {
    "reclaim": RoomAction(EvictionCause.RECLAIM, reclaim.attempt),
    "preempt": RoomAction(EvictionCause.PREEMPT, preempt.attempt),
    "consolidate": RoomAction(EvictionCause.CONSOLIDATE, consolidate.attempt),
}


class MadeRoom(NamedTuple):
    evictions: tuple[Eviction, ...]
    nominations: tuple[Nomination, ...]
    given_up: tuple[PodKey, ...]
    refusals: dict[ClassKey, Obstacle]  # why room could not be made
    unreached: set[ActionKey]  # actions and classes that the budget did not reach
    served: set[str]  # workloads that start, or for which space is kept
    look_again_s: int
    domains: tuple[DomainChoice, ...] = ()
    recoveries: tuple[Recovery, ...] = ()  # that go on in another way


class TakenBefore(NamedTuple):
    """What the cycle has decided before it makes room."""

    evictions: tuple[Eviction, ...]
    nominations: tuple[Nomination, ...]  # of the moves of a defragmentation run
    given_up: tuple[PodKey, ...]


def make_room(
    cycle: CycleInput,
    cycle_state: CycleState,
    placed: AllocationResult,
    masks: BackfillMasks | None,
    taken: TakenBefore,
) -> MadeRoom:
    given_up = taken.given_up
    nominations = (*taken.nominations, *placed.nominations)
    room = RoomState(cycle, cycle_state, masks, placed.starts, nominations, taken.evictions)
    has_releasing_pods = cycle_state.working.has_releasing_pods
    if has_releasing_pods:
        cycle_state.working.count_releasing(+1)  # what is placed from here on waits until they are gone
    unreached: set[ActionKey] = set()
    actions = [action for action in cycle.policy.actions if action != "allocate"]
    for at, action in enumerate(actions):
        if action == "stale-gangs":
            stop_stale_gangs(room, nominations, (*given_up, *placed.given_up))
            continue
        later = [other for other in actions[at + 1 :] if other in ROOM_ACTIONS]
        sharers = 1 + sum(_has_work(room, other, placed.stuck) for other in later)
        budget = cycle_state.budget
        budget.limit = budget.used + max(0, cycle.policy.steps - budget.used) // sharers
        left = _make_room_by(room, action, placed, (*given_up, *placed.given_up))
        unreached |= {(action, *found.key) for found in left}
    room.look_again(room.victims.spared_until_s)
    cycle_state.budget.limit = cycle.policy.steps
    if has_releasing_pods:
        cycle_state.working.count_releasing(-1)  # obstacles name what is free now
    recoveries = swap_for_recovery(room) if cycle.state.failures.recoveries else ()
    decided = (tuple(room.evictions), tuple(room.nominations), tuple(room.given_up), room.refusals)
    return MadeRoom(*decided, unreached, room.served, room.look_again_s, tuple(room.domains), recoveries)


def postpone_room(cycle: CycleInput, placed: AllocationResult) -> MadeRoom:
    """Everything that is stuck waits for the next cycle."""
    actions = [action for action in cycle.policy.actions if action in ROOM_ACTIONS]
    unreached = {(action, *key) for action in actions for key in placed.stuck}
    served = {each.workload for each in placed.starts} | {each.workload for each in placed.nominations}
    return MadeRoom((), (), (), {}, unreached, served, 0)


def _has_work(room: RoomState, action: str, stuck: dict[ClassKey, WaitingClass]) -> bool:
    """A quick check: there is a class for which the action might make room."""
    waiting = stuck | room.cycle.state.backlog.pending_for(action)
    if action == "preempt":
        return any(preempt.has_victims(room, found) for found in waiting.values())
    return bool(waiting)


def _make_room_by(
    room: RoomState, action: str, placed: AllocationResult, given_up: Sequence[PodKey]
) -> list[WaitingClass]:
    """Returns the classes that the budget did not reach. New classes share it with those of the last cycle."""
    fresh, resumed = _candidates(room, action, placed)
    budget = room.cycle_state.budget
    limit = budget.limit
    if fresh and resumed:
        budget.limit -= max(0, limit - budget.used) // 2
    unreached = _make_room_for(room, action, fresh, given_up)
    budget.limit = limit
    return unreached + _make_room_for(room, action, resumed, given_up)


def _candidates(
    room: RoomState, action: str, placed: AllocationResult
) -> tuple[list[WaitingClass], list[WaitingClass]]:
    """The classes that were tried and have no room yet: those of this cycle, and those left over from the last."""
    backlog = room.cycle.state.backlog
    resumed = backlog.pending_for(action)
    fresh = {key: found for key, found in placed.stuck.items() if key not in resumed}
    if action == "reclaim":
        owed = {found.key: found for found in reclaim.owed_classes(room, placed.stuck, placed.too_long)}
        if not resumed and (placed.stuck or not backlog.pending_actions):
            return list(owed.values()), []  # for all waiting work: what one class may reclaim depends on the others
        return [owed[key] for key in owed if key in fresh], [owed[key] for key in owed if key in resumed]
    if action == "preempt":
        chosen = [[found for found in group.values() if preempt.has_victims(room, found)] for group in (fresh, resumed)]
        return chosen[0], chosen[1]
    return list(fresh.values()), list(resumed.values())


def _make_room_for(
    room: RoomState, action: str, waiting: list[WaitingClass], given_up: Sequence[PodKey]
) -> list[WaitingClass]:
    """Classes that could never start come last: for them, only the obstacles are found."""
    impossible = room.cycle.state.backlog.impossible
    given_up = (*given_up, *room.given_up)
    waiting = [found for found in waiting if not is_fully_nominated(room.cycle, found, given_up)]
    last = [found for found in waiting if found.key in impossible]
    first = [found for found in waiting if found.key not in impossible]
    return [found for group in (first, last) for found in _give_turns(room, action, group)]


def _give_turns(room: RoomState, action: str, waiting: list[WaitingClass]) -> list[WaitingClass]:
    """Take turns in the order of queues. Returns the classes that the budget did not reach."""
    cycle, cycle_state, served = room.cycle, room.cycle_state, frozenset(room.served)
    lanes = lanes_of(found for found in waiting if cycle_state.charges.takes_work(found.queue))
    for lane in lanes.values():
        _pass_over(room, action, lane, served)
    turns = Turns(lanes, cycle_state.working.view, cycle.plugins, cycle_state.charges.next_of)
    while turns and not cycle_state.budget.is_spent:
        lane = turns.lane
        (_, name), _, found = lane.first
        workload = cycle.state.workloads[name]
        cycle_state.budget.used += 1
        placer = room.placer_for(workload, found)
        attempt = ROOM_ACTIONS[action].attempt(room, placer, workload, found)
        room.look_again(attempt.look_again_s)
        if attempt.refusal is not None and (action == "reclaim" or found.key not in room.refusals):
            room.refusals[found.key] = attempt.refusal
        if attempt.room is not None:
            room.carry_out(workload, attempt.room, ROOM_ACTIONS[action].cause)
            room.refusals.pop(found.key, None)
            lane.advance(1)
        else:
            lane.set_aside()
            if room.starts:  # what this cycle started cannot be stopped yet, and may hold what this workload is owed
                room.look_again(cycle.now_s + 1)
        _pass_over(room, action, lane, served)
        turns.requeue()
    return classes_left(turns.lanes)


def _pass_over(room: RoomState, action: str, lane: Lane, served: frozenset[str]) -> None:
    """Skip work that may not preempt now. It costs no step: a long line of such work must not use up a cycle."""
    while lane:
        (_, name), _, found = lane.first
        workload = room.cycle.state.workloads[name]
        is_swapped = action == "consolidate" and is_left_to_swap(room.cycle.state, workload)
        may_try = name not in served and workload.stops_others and not is_swapped
        if may_try and not is_cooling_down(room, workload, found, action):
            return
        lane.advance(1)


def stale_from_s(workload: Workload, policy: Policy) -> int:
    """From when a gang that runs below its minimum is stopped; 0: never."""
    grace_s = policy.stale_gang_grace_s if workload.stale_grace_s is None else workload.stale_grace_s
    return 0 if grace_s < 0 else workload.broken_since_s + grace_s


def stop_stale_gangs(room: RoomState, nominations: Sequence[Nomination], given_up: Sequence[PodKey]) -> None:
    """Stop all pods of every gang that is below its minimum and whose grace period is over.

    A gang waits longer while space is kept for all that it lacks: others may have stopped for it already.
    """
    cycle = room.cycle
    lost = {*given_up, *room.given_up}
    for name in sorted(cycle.state.below_minimum):
        workload = cycle.state.workloads[name]
        pods = cycle.state.pods.get(name, {})
        started = {start.pod for start in room.starts if start.workload == name}
        running = {pod for pod in pods if pods[pod].phase in ACTIVE_PHASES}
        if not running or has_required_pods(workload, running | started):
            continue
        kept = {pod for pod in cycle.state.nominations.get(name, ()) if (name, pod) not in lost}
        kept |= {each.pod for each in (*nominations, *room.nominations) if each.workload == name}
        if kept and has_required_pods(workload, running | started | kept):
            continue
        until_s = stale_from_s(workload, cycle.policy)
        if not until_s:
            continue
        if until_s > cycle.now_s:
            room.look_again(until_s)
            continue
        for pod in sorted(running):
            room.evict(Eviction(name, pod, EvictionCause.STALE_GANG))
