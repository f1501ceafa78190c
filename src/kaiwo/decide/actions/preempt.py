"""Preempt: stop less important work of the same queue for a waiting workload."""

import numpy as np

from kaiwo.decide.make_room.nominations import unpaid_charge
from kaiwo.decide.make_room.room_state import Attempt, RoomMade, RoomState
from kaiwo.decide.make_room.victim_rules import PreemptRule
from kaiwo.decide.make_room.victim_search import VictimSearch
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.model.obstacle import Obstacle, Protection, Reason, WorkProtected
from kaiwo.model.workload import Workload
from kaiwo.queues.current_shares import current_shares
from kaiwo.snapshot.backlog import WaitingClass, needs_to_make_room_for


def has_victims(room: RoomState, waiting_class: WaitingClass) -> bool:
    """Something less important runs in its queue. The first workload of a class is its most important."""
    queue, priority = waiting_class.queue, room.cycle.state.workloads[waiting_class.waiters.name_at(0)].priority
    return room.victims.has_below(queue, priority) or room.victims.has_protected_below(queue, priority)


def attempt(room: RoomState, placer: Placer, workload: Workload, waiting_class: WaitingClass) -> Attempt:
    if not has_victims(room, waiting_class):
        return Attempt()
    shares = current_shares(room.cycle_state.working.view)

    def search(within_budgets: bool) -> RoomMade | None:
        lanes = room.victims.lanes([waiting_class.queue], lambda unit: unit.workload.priority < workload.priority)
        need = np.array(unpaid_charge(room.cycle, room.cycle_state, waiting_class))
        rule = PreemptRule(shares, shares.queues.row[waiting_class.queue], need)
        needs = needs_to_make_room_for(waiting_class)
        victims = VictimSearch(room, placer, workload, needs, rule, lanes, within_budgets)
        return victims.find_room() if lanes else None

    room.budget.refused = None
    made = search(within_budgets=False)
    if made is None and room.budget.refused is not None:
        made = search(within_budgets=True)
    return Attempt(made) if made is not None else _refused(room, workload, waiting_class)


def _refused(room: RoomState, workload: Workload, waiting_class: WaitingClass) -> Attempt:
    by_budget = room.victims.protected.protection(waiting_class.queue, below=workload.priority)
    protections: list[Protection] = [by_budget] if by_budget is not None else []
    look_again_s = 0
    if room.budget.refused is not None:
        look_again_s = room.budget.again_s
        protections.append(room.budget.refusal)
    if not protections:
        return Attempt()
    facts = WorkProtected(tuple(protections))
    return Attempt(None, Obstacle(Reason.NO_WAY_TO_PREEMPT, subject=waiting_class.queue, facts=facts), look_again_s)
