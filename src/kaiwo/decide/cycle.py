"""One scheduling cycle: `decide(snapshot, policy) -> Plan`.

Never: reads a clock, draws a random number, does I/O, or changes the snapshot. The budget is a count of steps.
"""

from collections.abc import Collection, Sequence

import msgspec

from kaiwo.decide.actions.allocate import Allocate, AllocationResult, allocate
from kaiwo.decide.actions.make_room import MadeRoom, TakenBefore, make_room, postpone_room
from kaiwo.decide.actions.recover import recover, recoveries_without_room
from kaiwo.decide.actions.swap_for_recovery import with_swaps
from kaiwo.decide.cycle_state import CycleInput, CycleState, earliest_s
from kaiwo.decide.defragment.carry_out import carry_out_moves
from kaiwo.decide.make_room.nominations import lost_nominations
from kaiwo.decide.obstacles.find_obstacles import ObstacleFinder, with_verdicts
from kaiwo.decide.placement.node_choices import NodeChoices
from kaiwo.decide.placement.rank_starts import with_ranks
from kaiwo.decide.planned_starts.keep_planned import KeptPlannedStarts, hold_lost_places, keep_planned_starts
from kaiwo.decide.planned_starts.plan_new import plan_new_starts, set_deadlines
from kaiwo.decide.reservations import apply_reservations
from kaiwo.model.plan import Note, Plan, Start, Wait
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import ActivePlugins, Registry
from kaiwo.snapshot.backlog import ClassKey, WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot

BUILTIN = builtin_registry()
ROOM_PART = 4  # a quarter of the budget is reserved for making room that the last cycle did not get to


def decide(
    snapshot: Snapshot,
    policy: Policy = DEFAULT_POLICY,
    plugins: Registry = BUILTIN,
    set_aside: Sequence[Note] = (),
    choices: NodeChoices | None = None,
) -> Plan:
    """What to start now, and what keeps the rest waiting. Equal snapshots give equal plans, byte for byte.

    `set_aside`: notes of plugins that take no part from the beginning. A plugin in another process may have missed its
    deadline, which nothing in the snapshot tells; a replay gets it from the journal. `choices` gets why each node was
    chosen; the plan does not depend on it.
    """
    state, active = snapshot.read(), plugins.active(policy)
    notes = _order_faults(state)
    for note in set_aside:
        notes, active = (*notes, note), active.without(note.subject) if active.is_asked(note.subject) else active
    if not _to_try(state, active) and not state.backlog.pending_actions and not state.needs_cycle:
        return Plan(notes=notes)
    while True:
        try:
            cycle = CycleInput(state, policy, active, snapshot.now_s)
            cycle_state = CycleState(snapshot, cycle, choices)
            plan = run_cycle(cycle, cycle_state, notes)
            if choices is not None:
                choices.settle(cycle_state.working)
            return plan
        except PluginFaultError as fault:
            notes += (Note("plugin-set-aside", fault.plugin, fault.detail),)
            active = active.without(fault.plugin)


def run_cycle(cycle: CycleInput, cycle_state: CycleState, notes: tuple[Note, ...] = ()) -> Plan:
    """The steps of one cycle. Each returns what it decided; only `cycle_state` changes on the way."""
    has_pending_room = bool(cycle.state.backlog.pending_actions)
    if has_pending_room:  # from the last cycle: a part of the budget is reserved for it, however much could start
        cycle_state.budget.limit -= cycle.policy.steps // ROOM_PART

    # 1. Give up nominations that can no longer be used.
    lost = lost_nominations(cycle, cycle_state)

    # 2. Give pods that a failure took away other places.
    recovery = recover(cycle, cycle_state)

    # 3. Begin and end reservations; end expired allocations.
    reserved = apply_reservations(cycle, cycle_state)

    # 4. Start, move or drop planned starts.
    planned = keep_planned_starts(cycle, cycle_state, reserved.evictions)
    evicted = (*recovery.evictions, *reserved.evictions, *planned.evictions)

    # 5. Go on with a defragmentation run, if there is one.
    moved = carry_out_moves(cycle, cycle_state, is_busy=bool(evicted or planned.starts or recovery.nominations))
    evicted = (*evicted, *moved.evictions)
    if moved.nominations:  # no turn starts elsewhere what has its place now
        planned = planned._replace(started=planned.started | {each.workload for each in moved.nominations})

    # 6. Choose the classes worth a try, in groups: those that the last cycle's budget did not reach come first.
    groups = _groups_to_try(cycle, planned)

    # 7. Start what fits around planned starts.
    placed = allocate(cycle, cycle_state, groups, planned, evicted)

    hold_lost_places(cycle_state, planned, +1)

    # 8. Reclaim, preempt, consolidate and stop stale gangs, as the policy orders them.
    cycle_state.budget.limit = cycle.policy.steps
    if any(placed.unreached) and not has_pending_room:
        room = postpone_room(cycle, placed)
    else:
        given_up = (*lost.pods, *reserved.given_up, *moved.given_up)
        taken = TakenBefore(evicted, moved.nominations, given_up)
        room = make_room(cycle, cycle_state, placed, planned.masks, taken)

    # 9. Plan starts of large workloads that still wait, and give backfilled work a deadline.
    nominations = (*recovery.nominations, *moved.nominations, *placed.nominations, *room.nominations)
    evictions = (*evicted, *room.evictions)
    served = room.served | {each.workload for each in moved.nominations}
    starts, move_s = set_deadlines(cycle, placed.starts, nominations, planned)
    fresh = plan_new_starts(cycle, cycle_state, planned.kept, placed.starts, served, evictions)

    hold_lost_places(cycle_state, planned, -1)

    # 10. Find what keeps the rest waiting.
    waits = _changed_waits(cycle, cycle_state, placed, room)

    # 11. Put it all into one plan.
    before, now = cycle.state.planned_starts, fresh.planned
    unreached = [found for group in placed.unreached for found in group]
    if unreached:
        notes += (Note("budget-spent", detail=f"{len(unreached)} classes are left for the next cycle"),)
    return Plan(
        starts=with_ranks(cycle.state, starts, {(each.workload, each.pod) for each in evictions}),
        evictions=evictions,
        nominations=nominations,
        waits=waits,
        unfinished=tuple(sorted({found.key for found in unreached})),
        first=tuple(sorted(found.key for found in placed.unreached[0])) if len(placed.unreached) > 1 else (),
        unclaimed=tuple(sorted(room.unreached)),
        look_again_s=earliest_s(
            *(step.look_again_s for step in (lost, recovery, reserved, planned, moved, room, fresh)), move_s
        ),
        given_up=tuple(
            dict.fromkeys((*lost.pods, *reserved.given_up, *moved.given_up, *placed.given_up, *room.given_up))
        ),
        reserved=reserved.picked,
        promises=tuple(start for name, start in sorted(now.items()) if start != before.get(name)),
        unpromised=tuple(sorted({name for name in planned.dropped if name not in now})),
        overdue=planned.overdue,
        expired=reserved.expired,
        notes=notes,
        steps=cycle_state.budget.used,
        rules=cycle.plugins.rules,
        domains=(*recovery.domains, *placed.domains, *room.domains),
        recoveries=with_swaps(
            recoveries_without_room(cycle.state, served | {each.workload for each in recovery.nominations}),
            recovery.recoveries,
            room.recoveries,
        ),
        recovered=recovery.recovered,
        bad_nodes=recovery.bad_nodes,
        move_steps=moved.progress,
        moves_over=moved.over,
    )


class TrialOutcome(msgspec.Struct, frozen=True):
    """Whether a cycle would start one workload, and all that it starts until then."""

    is_started: bool
    has_room: bool  # the nodes had room for it until its turn
    starts: tuple[Start, ...]


def outcome_of(
    snapshot: Snapshot,
    name: str,
    policy: Policy = DEFAULT_POLICY,
    plugins: Registry = BUILTIN,
    barred: Collection[ClassKey] = (),
) -> TrialOutcome:
    """Run the steps of `decide` only until one workload has had its turn or can no longer start.

    `barred`: classes that certainly get no turn, since their queues have too little left for them.
    """
    active = plugins.active(policy)
    while True:
        try:
            cycle = CycleInput(snapshot.read(), policy, active, snapshot.now_s)
            if name in cycle.state.backlog.gated:  # its queue is not for it, for instance
                return TrialOutcome(False, False, ())
            return _run_until(cycle, CycleState(snapshot, cycle), name, barred)
        except PluginFaultError as fault:
            active = active.without(fault.plugin)


def _run_until(cycle: CycleInput, cycle_state: CycleState, name: str, barred: Collection[ClassKey]) -> TrialOutcome:
    reserved = apply_reservations(cycle, cycle_state)
    planned = keep_planned_starts(cycle, cycle_state, reserved.evictions)
    turns_of = Allocate(cycle, cycle_state, planned, (*reserved.evictions, *planned.evictions))
    target = cycle.state.backlog.class_of(name)
    is_started, seen = any(start.workload == name for start in planned.starts), 0

    def is_over() -> bool:
        nonlocal is_started, seen
        is_started = is_started or any(start.workload == name for start in turns_of.starts[seen:])
        seen = len(turns_of.starts)
        return is_started or target.key in turns_of.stuck.by_key or not turns_of.could_fit(target, name)

    for group in _groups_to_try(cycle, planned, barred):
        turns, _ = turns_of.line_up(group, always=target)
        turns_of.run(turns, is_over)
        if is_over():
            break
    starts = turns_of.result([]).starts
    is_started = any(start.workload == name for start in starts)
    return TrialOutcome(is_started, is_started or turns_of.could_fit(target, name), starts)


def _to_try(state: ClusterState, active: ActivePlugins, barred: Collection[ClassKey] = ()) -> list[WaitingClass]:
    return state.backlog.classes_to_try(state.rules_digest != active.rules, barred)


def _groups_to_try(
    cycle: CycleInput, planned: KeptPlannedStarts, barred: Collection[ClassKey] = ()
) -> list[list[WaitingClass]]:
    """What the last cycle's budget did not reach comes first, so that every class gets a turn, however often something
    is freed."""
    candidates = list(dict.fromkeys((*_to_try(cycle.state, cycle.plugins, barred), *planned.due)))
    resumed = cycle.state.backlog.resumed
    if not resumed:
        return [candidates]
    return [[found for found in candidates if (found.key in resumed) is is_resumed] for is_resumed in (True, False)]


def _changed_waits(
    cycle: CycleInput, cycle_state: CycleState, placed: AllocationResult, room: MadeRoom
) -> tuple[Wait, ...]:
    finder = ObstacleFinder(cycle.state, cycle.plugins, cycle_state.scores)
    waiting = placed.stuck | {key: cycle.state.backlog.by_key[key] for key in room.refusals}
    changed = []
    for key, found in waiting.items():
        refusals = (room.refusals[key],) if key in room.refusals else ()
        now = with_verdicts(found, finder.obstacles(found, placed.too_long.get(key)), refusals)
        if now != found.obstacles:
            changed.append(Wait(found.queue, found.digest, now))
    return tuple(sorted(changed, key=lambda wait: (wait.queue, wait.shape)))


def _order_faults(state: ClusterState) -> tuple[Note, ...]:
    """Order plugins that misbehaved, each with one example."""
    examples: dict[str, str] = {}
    for name in sorted(state.backlog.faults):
        for plugin, detail in state.backlog.faults[name]:
            examples.setdefault(plugin, f"{name}: {detail}")
    return tuple(Note("plugin-misbehaved", plugin, examples[plugin]) for plugin in sorted(examples))
