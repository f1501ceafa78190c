"""Who had to go for others not long ago makes nobody else go yet; nor does one who asked to wait for a while.

In:    the desk, somebody who waits.   Out: whether it must wait; on the desk until when, if it could take otherwise.
Whoever may make others go only until it has to go itself makes only so many go: that is why taking back comes to an
end, whatever is waiting.
"""

import numpy as np

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.nominations import claim_beside
from kaiwo.model.obstacle import Obstacle, Reason, WaitsUntil
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.queues.current_shares import standing
from kaiwo.queues.reclaim_rules import ReclaimRequest, may_claim, victim_queues
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState

WAITS_OUT = (Reason.HELD_OFF, Reason.PATIENT)


def cooldown_until_s(state: ClusterState, name: str, policy: Policy) -> int:
    """When a workload may make others go again; 0: nobody holds it off."""
    stopped = state.last_stop.get(name)
    return stopped.at_s + policy.hold_off_s if stopped is not None else 0


def must_wait(desk: CycleState, workload: Workload, found: WaitingClass, action: str) -> bool:
    """Nobody is stopped for it yet; the next look is when somebody may be."""
    told = waits_out(desk.state, workload, desk.policy, desk.working.now_s)
    if told is None or (action == "consolidate" and told[1].reason is Reason.PATIENT):  # who moves is not stopped
        return False
    until_s, obstacle = told
    desk.look_again(until_s)
    known = desk.verdicts.get(found.key)  # of another of its class: one is told
    if (known is None or known.reason not in WAITS_OUT) and _could_take(desk, workload, found, action):
        desk.verdicts[found.key] = obstacle
    return True


def waits_out(state: ClusterState, workload: Workload, policy: Policy, now_s: int) -> tuple[int, Obstacle] | None:
    """Until when nobody is stopped for a workload, and what is told of it; None: somebody may be.

    The time that is left is for whoever asks: in the books it would change with every cycle.
    """
    found = (
        (cooldown_until_s(state, workload.name, policy), Reason.HELD_OFF),
        (workload.submitted_s + workload.preemption_delay_s if workload.preemption_delay_s else 0, Reason.PATIENT),
    )
    until_s, reason = max(found)
    return (until_s, Obstacle(reason, 0, 0, "s", workload.name, WaitsUntil(until_s))) if until_s > now_s else None


def _could_take(desk: CycleState, workload: Workload, found: WaitingClass, action: str) -> bool:
    """There is something that the rules would let go for it."""
    if action != "reclaim":
        return action == "preempt" and desk.roster.has_below(found.queue, workload.priority)
    now = standing(desk.working)
    claim = ReclaimRequest(now.queues.row[found.queue], np.array(claim_beside(desk, found)), workload.preemptible)
    if may_claim(now, claim) is not None:
        return False
    return bool(victim_queues(now, claim, desk.roster.rows(now.queues.row)).any())
