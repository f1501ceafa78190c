"""Preemption cool-down: workloads that were just preempted, or asked for a delay, may not preempt others yet.

Without it, two workloads could preempt each other again and again.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.decide.make_room.nominations import unpaid_charge
from kaiwo.decide.make_room.room_state import RoomState
from kaiwo.model.obstacle import Obstacle, Reason, WaitsUntil
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import ReclaimRequest, refusal_to_reclaim, victim_queues
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState

COOLDOWN_REASONS = (Reason.HELD_OFF, Reason.PATIENT)


class Cooldown(NamedTuple):
    until_s: int
    obstacle: Obstacle


def cooldown_of(state: ClusterState, workload: Workload, policy: Policy, now_s: int) -> Cooldown | None:
    """The obstacle names the end, not the time left, which would change with every cycle."""
    stopped, delay_s = state.last_stop.get(workload.name), workload.preemption_delay_s
    cooldown_s = stopped.at_s + policy.hold_off_s if stopped is not None else 0
    until_s, reason = max(
        (cooldown_s, Reason.HELD_OFF), (workload.submitted_s + delay_s if delay_s else 0, Reason.PATIENT)
    )
    if until_s <= now_s:
        return None
    return Cooldown(until_s, Obstacle(reason, 0, 0, "s", workload.name, WaitsUntil(until_s)))


def is_cooling_down(room: RoomState, workload: Workload, waiting_class: WaitingClass, action: str) -> bool:
    """Whether no other work may be stopped for it yet; if so, plan a cycle for when that changes."""
    cycle = room.cycle
    cooldown = cooldown_of(cycle.state, workload, cycle.policy, cycle.now_s)
    if cooldown is None:
        return False
    if action == "consolidate" and cooldown.obstacle.reason is Reason.PATIENT:
        return False  # moved work is not stopped
    room.look_again(cooldown.until_s)
    known = room.refusals.get(waiting_class.key)  # found for another workload of its class: one is enough
    if (known is None or known.reason not in COOLDOWN_REASONS) and _has_victims(room, workload, waiting_class, action):
        room.refusals[waiting_class.key] = cooldown.obstacle
    return True


def _has_victims(room: RoomState, workload: Workload, waiting_class: WaitingClass, action: str) -> bool:
    if action != "reclaim":
        return action == "preempt" and room.victims.has_below(waiting_class.queue, workload.priority)
    shares = current_shares(room.cycle_state.working.view)
    need = np.array(unpaid_charge(room.cycle, room.cycle_state, waiting_class))
    request = ReclaimRequest(shares.queues.row[waiting_class.queue], need, workload.preemptible)
    if refusal_to_reclaim(shares, request) is not None:
        return False
    could_lose = victim_queues(shares, request, room.victims.possible_rows)
    return bool(could_lose.any() and could_lose[room.victims.rows].any())
