"""Find a change that does not start a workload at once, but lets other work be evicted for it.

In:    a Question that no single change answers.   Out: the change, verified by whole cycles on a fork of the state.
Sizes are tried from the least up: what is not evicted for the least is not evicted for more.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle import decide
from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.make_room.nominations import unpaid_charge
from kaiwo.decide.make_room.victim_units import VictimUnits
from kaiwo.decide.placement.queue_limits import least_charge
from kaiwo.explain.cheapest_change import SMALL_CLUSTER_NODES, other_models, other_queues
from kaiwo.explain.placement_check import PlacementCheck, is_within
from kaiwo.explain.possible_changes import (
    GPU_MEMORY,
    LEAST,
    SHARE,
    UNITS,
    ChangeKind,
    PossibleChange,
    events_of,
    events_to_undo,
    resized,
    size_of,
    with_model,
)
from kaiwo.explain.raised_quota import only_needed_raise
from kaiwo.explain.smaller_request import DIMENSIONS, PPM, largest_below, small_below
from kaiwo.explain.verify_change import Question
from kaiwo.model.events import Event, PodChanged, PodGone, WorkloadChanged
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.plugins.registry import Registry
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import ReclaimRequest, refusal_to_reclaim, victim_queues
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.backlog import needs_charged_first
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.snapshot import Snapshot

CYCLES = 3  # what others reclaim first may leave something for it
MOST_STEPS = 2_000  # of each cycle: about a tenth of a second


def may_reclaim(question: Question, events: list[Event], undo: list[Event]) -> bool:
    """The rules between queues would let it reclaim something after the change. Costs a millisecond or two."""
    return question.ask_after(events, undo, partial(_may_reclaim, question))


def makes_room(question: Question, events: list[Event], undo: list[Event]) -> bool | None:
    """The cycles after the change start it or make room for it; None: that would take too long to find out."""
    return question.ask_after(events, undo, partial(_next_cycles, question.name))


def _may_reclaim(question: Question, snapshot: Snapshot, policy: Policy, plugins: Registry) -> bool:
    cycle = CycleInput(snapshot.read(), policy, question.active, snapshot.now_s)
    free = CycleState(snapshot, cycle)
    if not cycle.state.backlog.is_queued(question.name):
        return False
    found, _ = cycle.state.backlog.find(question.name)
    row = free.working.queues.row.get(found.queue)
    if row is None:
        return False
    now = current_shares(free.working.view)
    claim = ReclaimRequest(row, np.array(unpaid_charge(cycle, free, found)), question.workload.preemptible)
    return refusal_to_reclaim(now, claim) is None and bool(victim_queues(now, claim).any())


def _next_cycles(name: str, snapshot: Snapshot, policy: Policy, plugins: Registry) -> bool | None:
    state, now_s = snapshot.read(), snapshot.now_s
    policy = replace(policy, steps=min(policy.steps, MOST_STEPS))
    for _ in range(CYCLES):
        plan = decide(state.snapshot(now_s), policy, plugins)
        if _starts_or_nominates(plan, name):
            return True
        if plan.unfinished or plan.unclaimed:
            return None
        if not plan.starts and not plan.evictions:
            return False
        state = _after_plan(state, plan, now_s)
    return False


def _starts_or_nominates(plan: Plan, name: str) -> bool:
    return name in {start.workload for start in plan.starts} | {kept.workload for kept in plan.nominations}


def _after_plan(state: ClusterState, plan: Plan, now_s: int) -> ClusterState:
    """A fork in which the whole plan has happened: what it evicts is gone."""
    fork = state.fork()
    assumed = assume(fork, plan, now_s)
    fork.record_cycle(plan)
    fork.patch(assumed)
    pods = [event.pod for event in assumed if isinstance(event, PodChanged)]
    fork.patch([PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in pods if pod.phase is Phase.ASSUMED])
    fork.patch([PodGone(each.workload, each.pod) for each in plan.evictions])
    return fork


MOST_COST = 1_200  # of the whole search, in the measure of Question.cost: about 50 ms
RULES_COST = 25  # of checking the rules between queues
EVICTING_ACTIONS = {"reclaim", "preempt", "consolidate"}
SMALL_CLUSTER_FACTOR = 4  # small clusters, where a cycle takes 2 ms, are searched longer
FEW = 16  # up to this many sizes are tried one by one


def may_evict_others(question: Question) -> bool:
    """Other work may be evicted for it at all, and it has been tried already."""
    backlog, name = question.state.backlog, question.name
    if name in backlog.gated or name in question.state.pods or backlog.try_all or not question.workload.stops_others:
        return False
    if backlog.find(name)[0].key in backlog.to_try:
        return False
    return not EVICTING_ACTIONS.isdisjoint(question.policy.actions)


class EvictionSearch(NamedTuple):
    """A change after which other work is evicted for the workload, if one was found."""

    change: PossibleChange | None
    is_complete: bool  # False: it, or another that might help, was not tried


def change_that_evicts(question: Question) -> EvictionSearch:
    """Of its size, model or queue: the first that helps."""
    if question.cycle_cost > MOST_COST:
        return EvictionSearch(None, is_complete=False)
    search = _Search(question.resubmitted_last)
    for kind in (search.sizes, search.models, search.queues):
        found = min(kind(), key=lambda change: change.rank, default=None)
        if found is not None:
            return EvictionSearch(found, is_complete=True)
    return EvictionSearch(None, is_complete=not search.gave_up)


def raise_that_evicts(question: Question) -> EvictionSearch:
    """Where one limit or quota leaves too little: raised to the least that the workload needs."""
    found = only_needed_raise(question, PlacementCheck(question))
    if found is None or not _has_victims(question, found[1]):
        return EvictionSearch(None, is_complete=True)
    if question.cycle_cost > MOST_COST:
        return EvictionSearch(found[0], is_complete=False)
    state, workload = question.state, question.workload
    events, undo = events_of(state, workload, found[0]), events_to_undo(state, workload, found[0])
    verdict = makes_room(question, events, undo)
    return EvictionSearch(None if verdict is False else found[0], is_complete=verdict is not None)


def _has_victims(question: Question, need: ResourceVector) -> bool:
    """Some queue has more than is protected from such a claim: most cycles need not be tried."""
    now = current_shares(question.view)
    claim = ReclaimRequest(now.queues.row[question.workload.queue], np.array(need), question.workload.preemptible)
    return bool(victim_queues(now, claim).any())


class _Search:
    """Among the changes that need cancel and submit."""

    def __init__(self, question: Question) -> None:
        self._question, self._workload = question, question.workload
        is_small = len(question.state.node_objects) <= SMALL_CLUSTER_NODES
        self._left = MOST_COST * (SMALL_CLUSTER_FACTOR if is_small else 1)
        self._cycle_looks = question.cycle_cost
        self._roster = VictimUnits(question.state, question.now_s, question.policy.victim_order)
        sizes = [gpu.memory_mib for node in question.state.node_objects.values() for gpu in node.gpus]
        # Less than a hundredth of a device is charged as nothing, and nothing is evicted for that.
        self._largest_mib = max(sizes, default=0)
        self._least = LEAST | {GPU_MEMORY: max(1, self._largest_mib * LEAST[SHARE] // WHOLE_MILLI)}
        self.gave_up = False

    def sizes(self) -> Iterator[PossibleChange]:
        """For every role and dimension the largest that helps."""
        if not self._makes_room(self._least_of_all()):
            return
        for role in self._workload.roles:
            for dimension in DIMENSIONS:
                size = size_of(role, dimension)
                value = self._largest(role, dimension, size)
                if value:
                    subject, given_up = f"{role.name}:{dimension}", PPM * (size - value) // size
                    yield PossibleChange(ChangeKind.SMALLER_SIZE, "researcher", subject, value, given_up)

    def models(self) -> Iterator[PossibleChange]:
        """Every other model."""
        for model in other_models(self._question):
            if self._makes_room(with_model(self._workload, model)):
                yield PossibleChange(ChangeKind.OTHER_MODEL, "researcher", model)
                return

    def queues(self) -> Iterator[PossibleChange]:
        """Every other queue that takes its work."""
        for queue in other_queues(self._question):
            if self._may_pay(queue) and self._makes_room(replace(self._workload, queue=queue)):
                yield PossibleChange(ChangeKind.OTHER_QUEUE, "researcher", queue)
                return

    def _largest(self, role: Role, dimension: str, size: int) -> int:
        def serves(value: int) -> bool:
            return self._makes_room(resized(self._workload, role.name, dimension, value))

        unit, least = UNITS[dimension], self._least_of(role, dimension)
        steps = max(0, (size - least) // unit)
        if steps > FEW:
            return largest_below(size, unit, least, serves)
        return next((value for value in (size - step * unit for step in range(1, steps + 1)) if serves(value)), 0)

    def _makes_room(self, workload: Workload) -> bool:
        if self._left < min(RULES_COST, self._cycle_looks):
            self.gave_up = True
            return False
        events: list[Event] = [WorkloadChanged(workload)]
        undo: list[Event] = [WorkloadChanged(self._workload)]
        if not self._may_evict(workload, events, undo):
            return False
        if self._left < self._cycle_looks:
            self._left, self.gave_up = 0, True  # nothing would be known of the others either
            return False
        self._left -= self._cycle_looks
        verdict = makes_room(self._question, events, undo)
        self.gave_up |= verdict is None
        return bool(verdict)

    def _may_evict(self, workload: Workload, events: list[Event], undo: list[Event]) -> bool:
        """The rules would let other work be evicted or moved for it."""
        actions = self._question.policy.actions
        if "consolidate" in actions or ("preempt" in actions and self._has_below(workload.queue)):
            return True
        self._left -= RULES_COST
        return "reclaim" in actions and may_reclaim(self._question, events, undo)

    def _may_pay(self, queue: str) -> bool:
        """A queue above its limit reclaims nothing; what it reclaims below its parent the parent has already."""
        view, found = self._question.view, self._question.state.backlog.find(self._workload.name)[0]
        least = least_charge(self._question.state, needs_charged_first(found), lambda _: self._largest_mib)
        row = view.queues.row[queue]
        left = (view.queues.limit[row] - view.queue_used[row]).tolist()
        return self._has_below(queue) or is_within(least, left)

    def _has_below(self, queue: str) -> bool:
        return self._roster.has_below(queue, self._workload.priority)

    def _least_of_all(self) -> Workload:
        """As small as it can be in everything at once."""
        least = self._workload
        for role in self._workload.roles:
            for dimension in DIMENSIONS:
                if size_of(role, dimension) > self._least_of(role, dimension):
                    least = resized(least, role.name, dimension, self._least_of(role, dimension))
        return least

    def _least_of(self, role: Role, dimension: str) -> int:
        """A share that is too small to isolate is refused, which says nothing of larger ones."""
        return max(self._least[dimension], small_below(self._question, role, dimension))
