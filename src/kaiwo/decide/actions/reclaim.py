"""The actions that make room: reclaim between queues, preempt inside one, consolidate for a waiting workload.

In:    the desk with the classes that are stuck.   Out: evictions with their beneficiary's whole placement, on the desk.
"""

from collections.abc import Iterator

import numpy as np

from kaiwo.decide.actions.make_room_turns import Attempt, give_turns
from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.candidate_nodes import CandidateNodes
from kaiwo.decide.make_room.node_bounds import node_bounds
from kaiwo.decide.make_room.nominations import claim_beside, has_its_space
from kaiwo.decide.make_room.reclaim_bounds import ReclaimBounds, and_kept
from kaiwo.decide.make_room.victim_rules import MoveRule, NobodyLoses, PreemptRule, ReclaimRule
from kaiwo.decide.make_room.victim_search import RoomMade, VictimSearch
from kaiwo.model.obstacle import NeverReclaims, Obstacle, OverQuota, Protection, Reason, WorkProtected
from kaiwo.model.plan import Cause
from kaiwo.model.workload import Workload
from kaiwo.queues.current_shares import standing
from kaiwo.queues.reclaim_rules import QueueShares, Refusal, Rule, may_claim, victim_queues
from kaiwo.queues.reclaim_rules import ReclaimRequest as QueueClaim
from kaiwo.snapshot.array_types import BoolArray
from kaiwo.snapshot.backlog import RoleNeeds, WaitingClass, needs_to_make_room_for
from kaiwo.snapshot.queue_table import GPU, ResourceVector

QUEUES_A_STEP = 10
STEPS_A_PROOF = 40  # and what the sums cost
STEPS_A_CLAIM = 60  # about what listing the victims of a large cluster costs, in pods placed
MANY_PODS = 64  # of a gang: looking at more nodes than it needs is dear


def make_room(desk: CycleState, action: str) -> list[WaitingClass]:
    """Try one action for everybody who is stuck, in the order of turns. Returns those whom the budget did not reach.

    Whom the last cycle did not reach share the budget with those who came: neither waits for the other to end.
    """
    came, left = _candidates(desk, action)
    most = desk.most_steps
    if came and left:
        desk.most_steps -= max(0, most - desk.steps) // 2
    unreached = _make_room_for(desk, action, came)
    desk.most_steps = most
    return unreached + _make_room_for(desk, action, left)


def has_work(desk: CycleState, action: str) -> bool:
    """There is somebody for whom the action could make room, at a glance."""
    waiting = desk.stuck | desk.state.backlog.pending_for(action)
    return any(_has_below(desk, found) for found in waiting.values()) if action == "preempt" else bool(waiting)


def _make_room_for(desk: CycleState, action: str, waiting: list[WaitingClass]) -> list[WaitingClass]:
    """Last come those who could never start: they are told what keeps them, and nobody's turn hangs on their size."""
    hopeless = desk.state.backlog.impossible
    waiting = [found for found in waiting if not has_its_space(desk, found)]
    last = [found for found in waiting if found.key in hopeless]
    first = [found for found in waiting if found.key not in hopeless]
    attempt, cause = _ATTEMPTS[action]
    return [found for group in (first, last) for found in give_turns(desk, action, group, attempt, cause)]


def _candidates(desk: CycleState, action: str) -> tuple[list[WaitingClass], list[WaitingClass]]:
    """Who was tried, and no room sought yet: those of this cycle, and those whom the last one did not reach."""
    backlog = desk.state.backlog
    left = backlog.pending_for(action)
    came = {key: found for key, found in desk.stuck.items() if key not in left}
    if action == "reclaim":
        owed = {found.key: found for found in _owed(desk)}
        if not left and (desk.stuck or not backlog.pending_actions):
            return list(owed.values()), []  # for all who wait: what one may take hangs on all the others
        return [owed[key] for key in owed if key in came], [owed[key] for key in owed if key in left]
    if action == "preempt":
        return [each for each in came.values() if _has_below(desk, each)], [
            each for each in left.values() if _has_below(desk, each)
        ]
    return list(came.values()), list(left.values())


def _owed(desk: CycleState) -> list[WaitingClass]:
    """The classes whose queue has less than its share by at least what one of them needs."""
    now = standing(desk.working)
    _tell_who_is_at_the_share(desk, now)
    left = (now.fair - now.used).tolist()
    found = []
    for queue, classes in sorted(desk.state.backlog.by_queue.items()):
        row = now.queues.row.get(queue)
        if row is not None and any(amount > 0 for amount in left[row]):
            found += [each for each in classes.values() if _is_within(claim_beside(desk, each), left[row])]
    return found


def _has_below(desk: CycleState, found: WaitingClass) -> bool:
    """Something less important runs in its queue; the first in a line is the most important."""
    queue, priority = found.queue, desk.state.workloads[found.waiters.at(0)[1]].priority
    return desk.roster.has_below(queue, priority) or desk.roster.has_guarded_below(queue, priority)


def _tell_who_is_at_the_share(desk: CycleState, now: QueueShares) -> None:
    """Where somebody has more than their share, those who may not take it are told what keeps them from it.

    So are those in queues that have no share at all, wherever others use anything.
    """
    over = (now.used > now.fair)[:, GPU] & np.array(now.queues.is_leaf, np.bool_)
    is_somebody_over = bool(over.any())
    if not is_somebody_over and now.fair[:, GPU].all():
        return
    for key, found in desk.stuck.items():
        row = now.queues.row.get(found.queue)
        milli = desk.least(found)[GPU]
        if row is None or not milli or found.signature.nominated_for or (over.sum() == 1 and over[row]):
            continue
        used, fair = int(now.used[row, GPU]) + milli, int(now.fair[row, GPU])
        is_told = is_somebody_over or (not fair and key not in desk.dimmed and _others_use(now, row))
        if is_told and used > fair and desk.may_start(found):
            desk.verdicts[key] = Obstacle(Reason.OVER_FAIR_SHARE, used, fair, "milli-gpu", found.queue)


def _is_within(need: ResourceVector, left: list[int]) -> bool:
    return all(amount <= most for amount, most in zip(need, left, strict=True) if amount)


def _reclaim(desk: CycleState, workload: Workload, found: WaitingClass) -> RoomMade | None:
    """From queues that have more than their share, for one that has less."""
    now = _before_the_cycle(desk, found.queue)
    row, beside = desk.working.queues.row[found.queue], np.array(claim_beside(desk, found))
    claim = QueueClaim(row, beside, workload.preemptible)
    if (refusal := may_claim(now, claim)) is not None:
        if _others_use(now, row):
            desk.verdicts[found.key] = _refused(now, refusal)
        return None
    may_lose = victim_queues(now, claim, desk.roster.rows(now.queues.row))
    if not may_lose.any() and not _kept(desk, now, claim, may_lose):
        return None
    needs = needs_to_make_room_for(found)
    desk.steps += STEPS_A_PROOF + int(may_lose.sum()) // QUEUES_A_STEP
    ran_enough = _ran_enough(desk, may_lose)
    takes = _sieve(desk).takeable(may_lose, ran_enough, found.signature.nominated_for)
    sums = ReclaimBounds(desk, now, claim, needs, takes)
    if (short := sums.short()) is not None:
        desk.verdicts[found.key] = and_kept(short, _kept(desk, now, claim, may_lose))
        return None
    looked_at = 0
    for rule, wide in _searches(needs):
        lanes = _sieve(desk).lanes(needs, may_lose, ran_enough, wide)
        if not lanes:
            break
        desk.steps += STEPS_A_CLAIM
        attempt = VictimSearch(desk, workload, needs, rule(now, claim), lanes)
        room = desk.spared.watched(attempt.meet)
        if room is None and desk.spared.refused is not None:  # of others perhaps more may be stopped
            lanes = _sieve(desk).lanes(needs, may_lose, ran_enough, wide)
            room = VictimSearch(desk, workload, needs, rule(now, claim), lanes, within_budgets=True).meet()
        if room is not None:
            return room
        looked_at = max(looked_at, attempt.looked_at)
    kept = _kept(desk, now, claim, may_lose)
    if desk.spared.refused is not None:
        desk.look_again(desk.spared.again_s)
        kept.append(desk.spared.refusal)
    verdict = node_bounds(desk, takes, sums.wants, found.queue) or sums.undecided(looked_at)
    desk.verdicts[found.key] = and_kept(verdict, kept)
    return None


def _others_use(now: QueueShares, row: int) -> bool:
    """Where nobody else has anything, nobody need be told that it may not be taken."""
    others = np.array(now.queues.is_leaf, np.bool_)
    others[row] = False
    return bool(now.used[others].any())


def _refused(now: QueueShares, refusal: Refusal) -> Obstacle:
    if refusal.rule is Rule.NEVER_RECLAIMS:
        return Obstacle(Reason.OVER_FAIR_SHARE, subject=now.queues.names[refusal.queue], facts=NeverReclaims())
    unit = ("milli-gpu", "milli-cpu", "mib", *("milli-gpu" for _ in now.queues.models))[refusal.resource]
    facts, queue = OverQuota() if refusal.rule is Rule.OVER_QUOTA else None, now.queues.names[refusal.queue]
    return Obstacle(Reason.OVER_FAIR_SHARE, refusal.amount, refusal.bound, unit, queue, facts)


def _kept(desk: CycleState, now: QueueShares, claim: QueueClaim, may_lose: BoolArray) -> list[Protection]:
    """What the rules would let go, and is kept by disruption budgets or minimum run times."""
    guarded = desk.roster.guarded
    rows = guarded.rows(now.queues)
    could_lose = victim_queues(now, claim, rows).nonzero()[0].tolist() if len(rows) else []
    found = [guarded.protection(now.queues.names[row]) for row in could_lose]
    young = _sieve(desk).kept_by_time(may_lose) if may_lose.any() else []
    return [*filter(None, found), *young]


def _before_the_cycle(desk: CycleState, claimant: str) -> QueueShares:
    """How the queues stand, what this cycle started left out: nobody loses old work over new work that just began.

    The claimant and those above it stand as they do now.
    """
    now = standing(desk.working)
    path = list(now.queues.path[now.queues.row[claimant]])
    used = np.minimum(now.used, now.queues.all_used)
    used[path] = now.used[path]
    return now._replace(used=used, fixed=now.fixed.copy())


def _preempt(desk: CycleState, workload: Workload, found: WaitingClass) -> RoomMade | None:
    """From less important work of the same queue."""
    if not _has_below(desk, found):
        return None
    now = standing(desk.working)

    def attempt(within_budgets: bool) -> RoomMade | None:
        lanes = desk.roster.lanes([found.queue], lambda unit: unit.workload.priority < workload.priority)
        rule = PreemptRule(now, now.queues.row[found.queue], np.array(claim_beside(desk, found)))
        claim = VictimSearch(desk, workload, needs_to_make_room_for(found), rule, lanes, within_budgets)
        return claim.meet() if lanes else None

    room = desk.spared.watched(lambda: attempt(within_budgets=False))
    if room is None and desk.spared.refused is not None:
        room = attempt(within_budgets=True)
    if room is None:
        _tell_what_is_kept(desk, workload, found)
    return room


def _tell_what_is_kept(desk: CycleState, workload: Workload, found: WaitingClass) -> None:
    by_budget = desk.roster.guarded.protection(found.queue, below=workload.priority)
    kept: list[Protection] = [by_budget] if by_budget is not None else []
    if desk.spared.refused is not None:
        desk.look_again(desk.spared.again_s)
        kept.append(desk.spared.refusal)
    if kept:
        facts = WorkProtected(tuple(kept))
        desk.verdicts.setdefault(found.key, Obstacle(Reason.NO_WAY_TO_PREEMPT, subject=found.queue, facts=facts))


def _consolidate(desk: CycleState, workload: Workload, found: WaitingClass) -> RoomMade | None:
    """Move others together; nobody loses a place."""
    lanes = desk.roster.lanes(sorted(desk.roster.queues()), lambda unit: unit.workload.name != workload.name)
    if not lanes:
        return None
    return VictimSearch(desk, workload, needs_to_make_room_for(found), NobodyLoses(), lanes).meet()


def _searches(needs: RoleNeeds) -> Iterator[tuple[type[ReclaimRule], bool]]:
    """One after the other, until one succeeds. A large gang looks first where the first victims are, and no further."""
    if sum(needed for _, _, needed in needs) >= MANY_PODS:
        yield ReclaimRule, False
    yield ReclaimRule, True
    yield MoveRule, True


def _ran_enough(desk: CycleState, may_lose: BoolArray) -> BoolArray:
    """Per unit: its minimum run time is over; surplus pods are not protected by it."""
    until_s = _sieve(desk).until_s
    is_over: BoolArray = until_s <= desk.working.now_s
    if not is_over.all():
        desk.look_again(int(until_s[~is_over].min()))
    return is_over


def _sieve(desk: CycleState) -> CandidateNodes:
    if desk.sieve is None:
        desk.sieve = CandidateNodes(desk)
    return desk.sieve


_ATTEMPTS: dict[str, tuple[Attempt, Cause]] = {
    "reclaim": (_reclaim, Cause.RECLAIM),
    "preempt": (_preempt, Cause.PREEMPT),
    "consolidate": (_consolidate, Cause.CONSOLIDATE),
}
MAKE_ROOM = tuple(_ATTEMPTS)
