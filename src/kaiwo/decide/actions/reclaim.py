"""Reclaim: stop work of queues that use more than their fair share, for a workload of a queue that uses less."""

from collections.abc import Iterator

import numpy as np

from kaiwo.decide.make_room.nominations import unpaid_charge
from kaiwo.decide.make_room.reclaim_bounds import NeededPods, ReclaimBounds, level_bounds, node_bounds, with_protections
from kaiwo.decide.make_room.room_state import Attempt, RoomState
from kaiwo.decide.make_room.victim_rules import MoveRule, ReclaimRule
from kaiwo.decide.make_room.victim_search import VictimSearch
from kaiwo.decide.placement.level_room import rows_by_part
from kaiwo.decide.placement.levels import NO_LEVEL, constraint_levels
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.queue_limits import is_within
from kaiwo.model.network.constraint import CONSOLIDATED
from kaiwo.model.obstacle import NeverReclaims, Obstacle, OverQuota, Protection, Reason
from kaiwo.model.workload import Workload
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import (
    QueueShares,
    ReclaimRefusal,
    ReclaimRequest,
    RefusalRule,
    refusal_to_reclaim,
    victim_queues,
)
from kaiwo.snapshot.array_types import BoolArray
from kaiwo.snapshot.backlog import ClassKey, RoleNeeds, WaitingClass, needs_to_make_room_for
from kaiwo.snapshot.queue_table import GPU

QUEUES_PER_STEP = 10
STEPS_PER_PROOF = 40  # what computing the reclaim bounds costs, in pods placed
STEPS_PER_SEARCH = 60  # about what listing the victims of a large cluster costs, in pods placed
MAX_DOMAINS = 4  # in which victims are looked for, for work that must run in one
MANY_PODS = 64  # of a gang: looking at more nodes than it needs is expensive


def owed_classes(
    room: RoomState, stuck: dict[ClassKey, WaitingClass], too_long: dict[ClassKey, Obstacle]
) -> list[WaitingClass]:
    """The classes whose queue is below its fair share by at least what one of them needs."""
    shares = current_shares(room.cycle_state.working.view)
    room.refusals |= _over_share(room, shares, stuck, too_long)
    left = (shares.fair - shares.used).tolist()
    found = []
    for queue, classes in sorted(room.cycle.state.backlog.by_queue.items()):
        row = shares.queues.row.get(queue)
        if row is not None and any(amount > 0 for amount in left[row]):
            found += [
                each
                for each in classes.values()
                if is_within(unpaid_charge(room.cycle, room.cycle_state, each), left[row])
            ]
    return found


def attempt(room: RoomState, placer: Placer, workload: Workload, waiting_class: WaitingClass) -> Attempt:
    cycle_state = room.cycle_state
    if sum(cycle_state.working.queues.is_leaf) == 1:
        return Attempt()  # no other queue has work
    shares = _before_the_cycle(room, waiting_class.queue)
    row = cycle_state.working.queues.row[waiting_class.queue]
    need = np.array(unpaid_charge(room.cycle, cycle_state, waiting_class))
    request = ReclaimRequest(row, need, workload.preemptible)
    if (refusal := refusal_to_reclaim(shares, request)) is not None:
        return Attempt(None, _refused(shares, refusal)) if _others_use(shares, row) else Attempt()
    could_lose = victim_queues(shares, request, room.victims.possible_rows)
    if not could_lose.any():
        return Attempt()  # found without listing the work that runs
    may_lose = np.zeros_like(could_lose)
    may_lose[room.victims.rows] = could_lose[room.victims.rows]
    if not may_lose.any() and not _protected(room, shares, request, may_lose):
        return Attempt()
    candidates, needs, shapes = room.candidates, needs_to_make_room_for(waiting_class), room.cycle.state.backlog.shapes
    cycle_state.budget.used += STEPS_PER_PROOF + int(may_lose.sum()) // QUEUES_PER_STEP
    ran_enough = candidates.until_s <= room.cycle.now_s  # surplus pods have no minimum run time
    look_again_s = 0 if ran_enough.all() else int(candidates.until_s[~ran_enough].min())
    nominated_for = waiting_class.signature.nominated_for
    reclaimable = candidates.reclaimable(may_lose, ran_enough, nominated_for)
    wants = [NeededPods(need.shape, shapes[need.shape], need.needed) for need in needs if need.needed]
    bounds = ReclaimBounds(cycle_state, shares, request, wants, reclaimable)
    if (short := bounds.short()) is not None:
        return Attempt(None, with_protections(short, _protected(room, shares, request, may_lose)), look_again_s)
    tried = 0
    areas = _areas(room, workload, waiting_class, may_lose, ran_enough)
    for rule, is_wide, area in ((*each, area) for each in _searches(needs) for area in areas):
        lanes = candidates.lanes(needs, may_lose, ran_enough, is_wide, nominated_for, area)
        if not lanes and area is None:
            break
        if not lanes:
            continue
        cycle_state.budget.used += STEPS_PER_SEARCH
        search = VictimSearch(room, placer, workload, needs, rule(shares, request), lanes)
        room.budget.refused = None
        made = search.find_room()
        if made is None and room.budget.refused is not None:  # other queues may still have budget
            lanes = candidates.lanes(needs, may_lose, ran_enough, is_wide, nominated_for, area)
            made = VictimSearch(room, placer, workload, needs, rule(shares, request), lanes, True).find_room()
        if made is not None:
            return Attempt(made, None, look_again_s)
        tried = max(tried, len(search.removed))
    protected = _protected(room, shares, request, may_lose)
    if room.budget.refused is not None:
        look_again_s = min(look_again_s or room.budget.again_s, room.budget.again_s)
        protected.append(room.budget.refusal)
    verdict = (
        node_bounds(cycle_state, reclaimable, wants, waiting_class.queue)
        or level_bounds(room.cycle, cycle_state, reclaimable, workload, waiting_class)
        or bounds.undecided(tried)
    )
    return Attempt(None, with_protections(verdict, protected), look_again_s)


def _over_share(
    room: RoomState, shares: QueueShares, stuck: dict[ClassKey, WaitingClass], too_long: dict[ClassKey, Obstacle]
) -> dict[ClassKey, Obstacle]:
    """Why stuck classes at their own fair share may not reclaim what other queues use."""
    over = (shares.used > shares.fair)[:, GPU] & np.array(shares.queues.is_leaf, np.bool_)
    is_any_over = bool(over.any())
    if not is_any_over and shares.fair[:, GPU].all():
        return {}
    found = {}
    for key, waiting in stuck.items():
        row = shares.queues.row.get(waiting.queue)
        milli = room.cycle_state.charges.least(waiting)[GPU]
        if row is None or not milli or waiting.signature.nominated_for or (over.sum() == 1 and over[row]):
            continue
        used, fair = int(shares.used[row, GPU]) + milli, int(shares.fair[row, GPU])
        matters = is_any_over or (not fair and key not in too_long and _others_use(shares, row))
        if matters and used > fair and room.cycle_state.charges.may_start(waiting):
            found[key] = Obstacle(Reason.OVER_FAIR_SHARE, used, fair, "milli-gpu", waiting.queue)
    return found


def _others_use(shares: QueueShares, row: int) -> bool:
    """Another queue uses something: only then does it matter that nothing may be reclaimed."""
    others = np.array(shares.queues.is_leaf, np.bool_)
    others[row] = False
    return bool(shares.used[others].any())


def _refused(shares: QueueShares, refusal: ReclaimRefusal) -> Obstacle:
    if refusal.rule is RefusalRule.NEVER_RECLAIMS:
        return Obstacle(Reason.OVER_FAIR_SHARE, subject=shares.queues.names[refusal.queue], facts=NeverReclaims())
    unit = ("milli-gpu", "milli-cpu", "mib", *("milli-gpu" for _ in shares.queues.models))[refusal.resource]
    facts, queue = OverQuota() if refusal.rule is RefusalRule.OVER_QUOTA else None, shares.queues.names[refusal.queue]
    return Obstacle(Reason.OVER_FAIR_SHARE, refusal.amount, refusal.bound, unit, queue, facts)


def _protected(room: RoomState, shares: QueueShares, request: ReclaimRequest, may_lose: BoolArray) -> list[Protection]:
    """What could be reclaimed from these queues if no disruption budget or minimum run time protected it."""
    protected = room.victims.protected
    rows = protected.rows(shares.queues)
    could_lose = victim_queues(shares, request, rows).nonzero()[0].tolist() if len(rows) else []
    by_budget = [protected.protection(shares.queues.names[row]) for row in could_lose]
    by_run_time = room.candidates.protected_by_run_time(may_lose) if may_lose.any() else []
    return [*filter(None, by_budget), *by_run_time]


def _before_the_cycle(room: RoomState, queue: str) -> QueueShares:
    """The queue shares without what this cycle started for others: no queue loses older work because of new work."""
    shares = current_shares(room.cycle_state.working.view)
    path = list(shares.queues.path[shares.queues.row[queue]])
    used = np.minimum(shares.used, shares.queues.all_used)
    used[path] = shares.used[path]
    return shares._replace(used=used, non_preemptible=shares.non_preemptible.copy())


def _areas(
    room: RoomState, workload: Workload, waiting_class: WaitingClass, may_lose: BoolArray, ran_enough: BoolArray
) -> list[BoolArray | None]:
    """Where to look for victims: one domain after the other, if the whole workload must run in one."""
    levels = waiting_class.signature.levels
    part = next((each for each in levels.parts if not each.name), None) if levels is not None else None
    if levels is None or part is None or not part.constraint.required:
        return [None]
    nodes = room.cycle_state.working.nodes
    found = constraint_levels(nodes, part.constraint, CONSOLIDATED)
    if found.unknown or found.required == NO_LEVEL:
        return []
    domains = found.levels[found.required].domain_of_node
    home = domains[rows_by_part(room.cycle.state, nodes, workload, levels).get(levels.parts.index(part), [])]
    nominated_for = waiting_class.signature.nominated_for
    needs = needs_to_make_room_for(waiting_class)
    able = room.candidates.domains_with_room(needs, may_lose, ran_enough, domains, nominated_for)
    chosen = [number for number in able if not len(home) or number in home][:MAX_DOMAINS]
    return [domains == number for number in chosen]


def _searches(needs: RoleNeeds) -> Iterator[tuple[type[ReclaimRule], bool]]:
    """Tried in order until one succeeds. A large gang first looks only at the nodes of the first victims."""
    if sum(need.needed for need in needs) >= MANY_PODS:
        yield ReclaimRule, False
    yield ReclaimRule, True
    yield MoveRule, True
