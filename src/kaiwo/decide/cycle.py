"""One scheduling cycle: `decide(snapshot, policy) -> Plan`.

In:    one Snapshot, one Policy, the plugins.   Out: one Plan.
Never: reads a clock, draws a random number, does I/O, or changes the snapshot. The budget is a count of steps.
"""

from dataclasses import dataclass

from kaiwo.decide.actions.allocate import Allocate, line_up
from kaiwo.decide.actions.reclaim import MAKE_ROOM, has_work, make_room
from kaiwo.decide.actions.stale_gangs import stop_stale_gangs
from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.nominations import lost_space
from kaiwo.decide.obstacles.find_obstacles import Inquiry, with_verdicts
from kaiwo.decide.planned_starts.keep_planned import keep_promises
from kaiwo.decide.planned_starts.plan_new import changed_promises, make_promises, mark_fillers
from kaiwo.decide.reservations import mind_reservations
from kaiwo.decide.turn_order import Lane, Turns
from kaiwo.model.plan import Note, Plan, Start, Wait
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.backlog import ActionKey, WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot

BUILTIN = builtin_registry()
ROOM_PART = 4  # the part of the budget that is kept for making room, where that had to wait


def decide(snapshot: Snapshot, policy: Policy = DEFAULT_POLICY, plugins: Registry = BUILTIN) -> Plan:
    """What to start now, and what keeps the rest waiting. Equal snapshots give equal plans, byte for byte."""
    state, active = snapshot.read(), plugins.active(policy)
    notes = _order_faults(state)
    candidates = state.backlog.classes_to_try(all_classes=state.rules_digest != active.rules)
    if not candidates and not state.backlog.pending_actions and not state.needs_cycle:
        return Plan(notes=notes)
    while True:
        try:
            return _cycle(CycleState(snapshot, policy, active), candidates, notes)
        except PluginFaultError as fault:
            notes += (Note("plugin-set-aside", fault.plugin, fault.detail),)
            active = active.without(fault.plugin)


@dataclass(frozen=True, slots=True)
class Fate:
    """What a cycle would do about one workload, and all that it starts until then."""

    is_started: bool
    has_room: bool  # the nodes had room for it until its turn
    starts: tuple[Start, ...]


def fate_of(snapshot: Snapshot, name: str, policy: Policy = DEFAULT_POLICY, plugins: Registry = BUILTIN) -> Fate:
    """Decide until one workload has had its turn or has no chance left: the same steps as `decide`, cut short."""
    active = plugins.active(policy)
    while True:
        try:
            return _fate(CycleState(snapshot, policy, active), name)
        except PluginFaultError as fault:
            active = active.without(fault.plugin)


def _cycle(desk: CycleState, candidates: list[WaitingClass], notes: tuple[Note, ...]) -> Plan:
    # Those whom the last cycle's budget did not reach go first, until all of them had a turn: so everybody is reached,
    # however often something is freed.
    waits_for_room = bool(desk.state.backlog.pending_actions)
    if waits_for_room:  # since the last cycle: so much of the budget is for those, whatever there is to start
        desk.most_steps -= desk.policy.steps // ROOM_PART
    desk.given_up += lost_space(desk)
    mind_reservations(desk)
    keep_promises(desk)
    left: list[list[WaitingClass]] = []
    barred: list[list[WaitingClass]] = []
    candidates = list(dict.fromkeys((*candidates, *desk.due_by_turns)))
    for group in _split(candidates, desk.state.backlog.resumed):
        turns, may_not = line_up(desk, group)
        if "allocate" in desk.policy.actions:
            Allocate(desk, turns).run(lambda: desk.is_spent)
        else:
            may_not += _rest(turns)
            turns, _ = line_up(desk, [])
        left.append(_rest(turns))
        barred.append(may_not)
    for rest, may_not in zip(left, barred, strict=True):
        for found in may_not:
            if desk.is_spent:
                rest.append(found)
            else:
                desk.mark_stuck(found)
    desk.book.shade = None
    unreached = [found for rest in left for found in rest]
    desk.most_steps = desk.policy.steps
    unclaimed = _all_unclaimed(desk) if unreached and not waits_for_room else _make_room(desk)
    if unreached:
        notes += (Note("budget-spent", detail=f"{len(unreached)} classes are left for the next cycle"),)
    mark_fillers(desk)
    make_promises(desk)
    return Plan(
        starts=tuple(desk.starts),
        evictions=tuple(desk.evictions),
        nominations=tuple(desk.nominations),
        waits=_waits(desk),
        unfinished=tuple(sorted({found.key for found in unreached})),
        first=tuple(sorted(found.key for found in left[0])) if len(left) > 1 else (),
        unclaimed=tuple(sorted(unclaimed)),
        look_again_s=desk.look_again_s,
        given_up=tuple(dict.fromkeys(desk.given_up)),
        reserved=tuple(desk.reserved),
        promises=changed_promises(desk),
        unpromised=tuple(sorted({name for name in desk.unpromised if name not in desk.promised})),
        expired=tuple(desk.expired),
        notes=notes,
        steps=desk.steps,
        rules=desk.active.rules,
    )


def _all_unclaimed(desk: CycleState) -> set[ActionKey]:
    """No room is sought in this cycle: who was stuck is not forgotten."""
    return {(action, *key) for action in desk.policy.actions if action in MAKE_ROOM for key in desk.stuck}


def _make_room(desk: CycleState) -> set[ActionKey]:
    """The policy's other actions, one after the other, for those who are stuck; whom the budget did not reach.

    None of them may use up what the later ones need: else those would never have a turn where much is stuck.
    """
    for start in desk.starts:
        desk.roster.begun.setdefault(start.workload, []).append(start.pod)
    if desk.working.has_releasing_pods:
        desk.working.count_releasing(+1)  # whoever is placed from here on waits for them, too
    unreached: set[ActionKey] = set()
    actions = [action for action in desk.policy.actions if action != "allocate"]
    for at, action in enumerate(actions):
        if action == "stale-gangs":
            stop_stale_gangs(desk)
            continue
        sharers = 1 + sum(has_work(desk, later) for later in actions[at + 1 :] if later in MAKE_ROOM)
        desk.most_steps = desk.steps + max(0, desk.policy.steps - desk.steps) // sharers
        unreached |= {(action, *found.key) for found in make_room(desk, action)}
    desk.most_steps = desk.policy.steps
    if desk.working.has_releasing_pods:
        desk.working.count_releasing(-1)  # who still waits is told what is free now
    return unreached


def _fate(desk: CycleState, name: str) -> Fate:
    backlog = desk.state.backlog
    mind_reservations(desk)
    target, _ = backlog.find(name)
    seen = 0

    def is_over() -> bool:
        nonlocal seen
        seen, before = len(desk.starts), seen
        is_started = any(start.workload == name for start in desk.starts[before:])
        return is_started or target.key in desk.stuck or not desk.could_fit(target, name)

    keep_promises(desk)
    candidates = backlog.classes_to_try(all_classes=desk.state.rules_digest != desk.active.rules)
    candidates = list(dict.fromkeys((*candidates, *desk.due_by_turns)))
    for group in _split(candidates, backlog.resumed):
        turns, _ = line_up(desk, group, always=target)
        Allocate(desk, turns).run(is_over)
        if is_over():
            break
    is_started = any(start.workload == name for start in desk.starts)
    return Fate(is_started, is_started or desk.could_fit(target, name), tuple(desk.starts))


def _split(candidates: list[WaitingClass], resumed: frozenset[tuple[str, str]]) -> list[list[WaitingClass]]:
    if not resumed:
        return [candidates]
    first = [found for found in candidates if found.key in resumed]
    return [first, [found for found in candidates if found.key not in resumed]]


def _rest(turns: Turns[Lane]) -> list[WaitingClass]:
    return [found for lane in turns.lanes.values() for found in lane.rest()]


def _waits(desk: CycleState) -> tuple[Wait, ...]:
    """What changed in why anything waits, told in the state at the end of the cycle."""
    inquiry = Inquiry(desk.state, desk.active, desk.book)
    told = desk.stuck | {key: desk.state.backlog.by_key[key] for key in desk.verdicts}
    changed = []
    for key, found in told.items():
        verdict = desk.verdicts.get(key)
        now = inquiry.obstacles(found, desk.dimmed.get(key))
        now = with_verdicts(found, now, (verdict,) if verdict is not None else ())
        if now != found.obstacles:
            changed.append(Wait(found.queue, found.digest, now))
    return tuple(sorted(changed, key=lambda wait: (wait.queue, wait.shape)))


def _order_faults(state: ClusterState) -> tuple[Note, ...]:
    """Orders that misbehaved about somebody who waits, each with one example."""
    told: dict[str, str] = {}
    for name in sorted(state.backlog.faults):
        for plugin, detail in state.backlog.faults[name]:
            told.setdefault(plugin, f"{name}: {detail}")
    return tuple(Note("plugin-misbehaved", plugin, told[plugin]) for plugin in sorted(told))
