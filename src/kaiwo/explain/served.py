"""Would others be stopped for a workload? Asked of whole cycles of `decide`, on a fork of the picture.

In:    a Question, what would be changed.   Out: whether the next cycles start the workload or make room for it.
Most cycles need not be tried: where its queue may take nothing, or nobody has anything to take, the rules say so.
"""

from functools import partial

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle import decide
from kaiwo.decide.desk import Desk
from kaiwo.decide.kept import claim_beside
from kaiwo.explain.trial import Question
from kaiwo.model.event import Event, PodChanged, PodGone
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase
from kaiwo.plugins.registry import Registry
from kaiwo.queues.reclaim_rules import Claim, may_claim, victim_queues
from kaiwo.queues.share import standing
from kaiwo.snapshot.assumed import assume
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.snapshot import Snapshot

CYCLES = 3  # what others take first may leave something for it
MOST_STEPS = 2_000  # of each: about a tenth of a second


def may_reclaim(question: Question, told: list[Event], undone: list[Event]) -> bool:
    """The rules between queues would let it take something after the change. Costs a millisecond or two."""
    return question.after(told, undone, partial(_may_reclaim, question))


def is_served(question: Question, told: list[Event], undone: list[Event]) -> bool | None:
    """The next cycles after the change start it, or make room for it; None: that would take too long to find out."""
    return question.after(told, undone, partial(_next_cycles, question.name))


def _may_reclaim(question: Question, snapshot: Snapshot, policy: Policy, plugins: Registry) -> bool:
    desk = Desk(snapshot, policy, question.active)
    if not desk.picture.backlog.stands(question.name):
        return False
    found, _ = desk.picture.backlog.stand_of(question.name)
    row = desk.working.queues.row.get(found.queue)
    if row is None:
        return False
    now = standing(desk.working)
    claim = Claim(row, np.array(claim_beside(desk, found)), question.workload.preemptible)
    return may_claim(now, claim) is None and bool(victim_queues(now, claim).any())


def _next_cycles(name: str, snapshot: Snapshot, policy: Policy, plugins: Registry) -> bool | None:
    picture, now_s = snapshot.read(), snapshot.now_s
    policy = replace(policy, steps=min(policy.steps, MOST_STEPS))
    for _ in range(CYCLES):
        plan = decide(picture.snapshot(now_s), policy, plugins)
        if _serves(plan, name):
            return True
        if plan.unfinished or plan.unclaimed:
            return None
        if not plan.starts and not plan.evictions:
            return False
        picture = _carried_out(picture, plan, now_s)
    return False


def _serves(plan: Plan, name: str) -> bool:
    return name in {start.workload for start in plan.starts} | {kept.workload for kept in plan.nominations}


def _carried_out(picture: Picture, plan: Plan, now_s: int) -> Picture:
    """A fork in which all of the plan has happened: who was told to go is gone."""
    fork = picture.fork()
    assumed = assume(fork, plan, now_s)
    fork.absorb(plan)
    fork.patch(assumed)
    pods = [event.pod for event in assumed if isinstance(event, PodChanged)]
    fork.patch([PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in pods if pod.phase is Phase.ASSUMED])
    fork.patch([PodGone(each.workload, each.pod) for each in plan.evictions])
    return fork
