"""Who had to go for others not long ago makes nobody else go yet.

In:    the desk, somebody who waits.   Out: whether it is held off; on the desk until when, if it could take otherwise.
Whoever may make others go only until it has to go itself makes only so many go: that is why taking back comes to an
end, whatever is waiting.
"""

import numpy as np

from kaiwo.decide.desk import Desk
from kaiwo.decide.kept import claim_beside
from kaiwo.model.policy import Policy
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.reservation import clock_words
from kaiwo.model.workload import Workload
from kaiwo.queues.reclaim_rules import Claim, may_claim, victim_queues
from kaiwo.queues.share import standing
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.picture import Picture


def held_off_until_s(picture: Picture, name: str, policy: Policy) -> int:
    """When a workload may make others go again; 0: nobody holds it off."""
    stopped = picture.stopped.get(name)
    return stopped.at_s + policy.hold_off_s if stopped is not None else 0


def is_held_off(desk: Desk, workload: Workload, found: WaitingClass, action: str) -> bool:
    """It waits; the next look is when it need not any more."""
    until_s = held_off_until_s(desk.picture, workload.name, desk.policy)
    if desk.working.now_s >= until_s:
        return False
    desk.look_again(until_s)
    if _could_take(desk, workload, found, action):
        desk.verdicts[found.key] = held_off(workload.name, until_s)
    return True


def held_off(name: str, until_s: int, left_s: int = 0) -> Obstacle:
    """What is told of it. The time that is left is for whoever asks: in the books it would change with every cycle."""
    return Obstacle(Reason.HELD_OFF, left_s, 0, "s", name, clock_words(until_s))


def _could_take(desk: Desk, workload: Workload, found: WaitingClass, action: str) -> bool:
    """There is something that the rules would let go for it."""
    if action != "reclaim":
        return action == "preempt" and desk.roster.has_below(found.queue, workload.priority)
    now = standing(desk.working)
    claim = Claim(now.queues.row[found.queue], np.array(claim_beside(desk, found)), workload.preemptible)
    if may_claim(now, claim) is not None:
        return False
    return bool(victim_queues(now, claim, desk.roster.rows(now.queues.row)).any())
