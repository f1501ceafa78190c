"""Tell which workloads may not preempt others yet: recently preempted ones, and those that asked to wait first.

In:    a waiting workload.   Out: until when it waits, and the obstacle that says so.
A workload may preempt others only until it is preempted itself, so it preempts only a bounded number: that is why
reclaiming back and forth comes to an end.
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
    """Until when no other work is stopped for a workload."""

    until_s: int
    obstacle: Obstacle


def cooldown_of(state: ClusterState, workload: Workload, policy: Policy, now_s: int) -> Cooldown | None:
    """None: other work may be stopped for it.

    The obstacle names the end and not the time that is left: that would change with every cycle.
    """
    found = (
        (cooldown_until_s(state, workload.name, policy), Reason.HELD_OFF),
        (workload.submitted_s + workload.preemption_delay_s if workload.preemption_delay_s else 0, Reason.PATIENT),
    )
    until_s, reason = max(found)
    if until_s <= now_s:
        return None
    return Cooldown(until_s, Obstacle(reason, 0, 0, "s", workload.name, WaitsUntil(until_s)))


def cooldown_until_s(state: ClusterState, name: str, policy: Policy) -> int:
    """When a workload that was preempted may preempt others again; 0: it was not."""
    stopped = state.last_stop.get(name)
    return stopped.at_s + policy.hold_off_s if stopped is not None else 0


def is_cooling_down(room: RoomState, workload: Workload, found: WaitingClass, action: str) -> bool:
    """No other work is stopped for it yet; the next look is when that may be."""
    cycle = room.cycle
    cooldown = cooldown_of(cycle.state, workload, cycle.policy, cycle.now_s)
    if cooldown is None:
        return False
    if action == "consolidate" and cooldown.obstacle.reason is Reason.PATIENT:
        return False  # work that moves is not stopped
    room.look_again(cooldown.until_s)
    known = room.refusals.get(found.key)  # of another workload of its class: one is enough
    if (known is None or known.reason not in COOLDOWN_REASONS) and _has_victims(room, workload, found, action):
        room.refusals[found.key] = cooldown.obstacle
    return True


def _has_victims(room: RoomState, workload: Workload, found: WaitingClass, action: str) -> bool:
    """There is work that the rules would let it stop."""
    if action != "reclaim":
        return action == "preempt" and room.victims.has_below(found.queue, workload.priority)
    now = current_shares(room.free.working.view)
    need = np.array(unpaid_charge(room.cycle, room.free, found))
    request = ReclaimRequest(now.queues.row[found.queue], need, workload.preemptible)
    if refusal_to_reclaim(now, request) is not None:
        return False
    return bool(victim_queues(now, request, room.victims.rows(now.queues.row)).any())
