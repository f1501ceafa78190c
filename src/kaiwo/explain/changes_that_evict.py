"""A change that does not start a workload at once, and lets others be stopped for it.

In:    a Question that no single change answers.   Out: the change, verified by whole cycles; None: there is none.
Sizes are tried from the least up: what is not stopped for the least is not stopped for more.

Also: Would others be stopped for a workload? Asked of whole cycles of `decide`, on a fork of the picture.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle import decide
from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.make_room.nominations import unpaid_charge
from kaiwo.decide.make_room.victim_units import VictimUnits
from kaiwo.decide.placement.queue_limits import least_charge
from kaiwo.explain.cheapest_change import SMALL, other_models, other_queues
from kaiwo.explain.placement_check import Room, is_within
from kaiwo.explain.possible_changes import (
    GPU_MEMORY,
    LEAST,
    SHARE,
    UNITS,
    Change,
    Kind,
    events_of,
    events_to_undo,
    resized,
    size_of,
    with_model,
)
from kaiwo.explain.raised_quota import only_raise
from kaiwo.explain.smaller_request import DIMENSIONS, PPM, largest_below, small_below
from kaiwo.explain.verify_change import Question
from kaiwo.model.events import Event, PodChanged, PodGone, WorkloadChanged
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.plugins.registry import Registry
from kaiwo.queues.current_shares import standing
from kaiwo.queues.reclaim_rules import ReclaimRequest, may_claim, victim_queues
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.backlog import needs_charged_first
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.queue_table import ResourceVector
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
    cycle = CycleInput(snapshot.read(), policy, question.active, snapshot.now_s)
    free = CycleState(snapshot, cycle)
    if not cycle.state.backlog.is_queued(question.name):
        return False
    found, _ = cycle.state.backlog.find(question.name)
    row = free.working.queues.row.get(found.queue)
    if row is None:
        return False
    now = standing(free.working.view)
    claim = ReclaimRequest(row, np.array(unpaid_charge(cycle, free, found)), question.workload.preemptible)
    return may_claim(now, claim) is None and bool(victim_queues(now, claim).any())


def _next_cycles(name: str, snapshot: Snapshot, policy: Policy, plugins: Registry) -> bool | None:
    state, now_s = snapshot.read(), snapshot.now_s
    policy = replace(policy, steps=min(policy.steps, MOST_STEPS))
    for _ in range(CYCLES):
        plan = decide(state.snapshot(now_s), policy, plugins)
        if _serves(plan, name):
            return True
        if plan.unfinished or plan.unclaimed:
            return None
        if not plan.starts and not plan.evictions:
            return False
        state = _carried_out(state, plan, now_s)
    return False


def _serves(plan: Plan, name: str) -> bool:
    return name in {start.workload for start in plan.starts} | {kept.workload for kept in plan.nominations}


def _carried_out(state: ClusterState, plan: Plan, now_s: int) -> ClusterState:
    """A fork in which all of the plan has happened: who was told to go is gone."""
    fork = state.fork()
    assumed = assume(fork, plan, now_s)
    fork.record_cycle(plan)
    fork.patch(assumed)
    pods = [event.pod for event in assumed if isinstance(event, PodChanged)]
    fork.patch([PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in pods if pod.phase is Phase.ASSUMED])
    fork.patch([PodGone(each.workload, each.pod) for each in plan.evictions])
    return fork


MOST_LOOKS = 1_200  # what all of it may cost, in the looks of `trial`: about 50 ms
RULE_LOOKS = 25  # what it costs to ask the rules
TAKING = {"reclaim", "preempt", "consolidate"}
LONGER = 4  # so much for small clusters, where a cycle takes 2 ms
FEW = 16  # so many sizes are tried one by one


def may_ever_take(question: Question) -> bool:
    """Others may be stopped for it at all, and it is its turn to be asked about."""
    backlog, name = question.state.backlog, question.name
    if name in backlog.gated or name in question.state.pods or backlog.try_all or not question.workload.stops_others:
        return False
    if backlog.find(name)[0].key in backlog.to_try:
        return False
    return not TAKING.isdisjoint(question.policy.actions)


def change_that_takes(question: Question) -> tuple[Change | None, bool]:
    """Of its size, model or queue: the first that helps; and whether all that might help was tried."""
    if question.cycle_looks > MOST_LOOKS:
        return None, False
    search = _Search(question.as_the_last)
    for kind in (search.sizes, search.models, search.queues):
        found = min(kind(), key=lambda change: change.rank, default=None)
        if found is not None:
            return found, True
    return None, not search.gave_up


def raise_that_takes(question: Question) -> tuple[Change | None, bool]:
    """Where one bound leaves too little: raised to what the workload pays at least; and whether that was tried."""
    found = only_raise(question, Room(question))
    if found is None or not _has_victims(question, found[1]):
        return None, True
    if question.cycle_looks > MOST_LOOKS:
        return found[0], False
    state, workload = question.state, question.workload
    told, undone = events_of(state, workload, found[0]), events_to_undo(state, workload, found[0])
    verdict = is_served(question, told, undone)
    return (None if verdict is False else found[0]), verdict is not None


def _has_victims(question: Question, need: ResourceVector) -> bool:
    """Somebody has more than is protected from such a claim: most cycles need not be tried."""
    now = standing(question.view)
    claim = ReclaimRequest(now.queues.row[question.workload.queue], np.array(need), question.workload.preemptible)
    return bool(victim_queues(now, claim).any())


class _Search:
    """Among the changes that one makes by cancel and submit."""

    def __init__(self, question: Question) -> None:
        self._question, self._workload = question, question.workload
        is_small = len(question.state.node_objects) <= SMALL
        self._left = MOST_LOOKS * (LONGER if is_small else 1)
        self._cycle_looks = question.cycle_looks
        self._roster = VictimUnits(question.state, question.now_s, question.policy.victim_order)
        sizes = [gpu.memory_mib for node in question.state.node_objects.values() for gpu in node.gpus]
        # Less than a hundredth of a device is paid for with next to nothing, and nobody is stopped for nothing.
        self._largest_mib = max(sizes, default=0)
        self._least = LEAST | {GPU_MEMORY: max(1, self._largest_mib * LEAST[SHARE] // WHOLE_MILLI)}
        self.gave_up = False

    def sizes(self) -> Iterator[Change]:
        """For every role and dimension the largest that helps."""
        if not self._serves(self._least_of_all()):
            return
        for role in self._workload.roles:
            for dimension in DIMENSIONS:
                size = size_of(role, dimension)
                value = self._largest(role, dimension, size)
                if value:
                    subject, given_up = f"{role.name}:{dimension}", PPM * (size - value) // size
                    yield Change(Kind.SMALLER_SIZE, "researcher", subject, value, given_up)

    def models(self) -> Iterator[Change]:
        """Every other model."""
        for model in other_models(self._question):
            if self._serves(with_model(self._workload, model)):
                yield Change(Kind.OTHER_MODEL, "researcher", model)
                return

    def queues(self) -> Iterator[Change]:
        """Every other queue that takes its work."""
        for queue in other_queues(self._question):
            if self._may_pay(queue) and self._serves(replace(self._workload, queue=queue)):
                yield Change(Kind.OTHER_QUEUE, "researcher", queue)
                return

    def _largest(self, role: Role, dimension: str, size: int) -> int:
        def serves(value: int) -> bool:
            return self._serves(resized(self._workload, role.name, dimension, value))

        unit, least = UNITS[dimension], self._least_of(role, dimension)
        steps = max(0, (size - least) // unit)
        if steps > FEW:
            return largest_below(size, unit, least, serves)
        return next((value for value in (size - step * unit for step in range(1, steps + 1)) if serves(value)), 0)

    def _serves(self, workload: Workload) -> bool:
        if self._left < min(RULE_LOOKS, self._cycle_looks):
            self.gave_up = True
            return False
        told: list[Event] = [WorkloadChanged(workload)]
        undone: list[Event] = [WorkloadChanged(self._workload)]
        if not self._may_take(workload, told, undone):
            return False
        if self._left < self._cycle_looks:
            self._left, self.gave_up = 0, True  # of the others nothing would be known, either
            return False
        self._left -= self._cycle_looks
        verdict = is_served(self._question, told, undone)
        self.gave_up |= verdict is None
        return bool(verdict)

    def _may_take(self, workload: Workload, told: list[Event], undone: list[Event]) -> bool:
        """The rules say that somebody might be stopped or moved for it."""
        actions = self._question.policy.actions
        if "consolidate" in actions or ("preempt" in actions and self._has_below(workload.queue)):
            return True
        self._left -= RULE_LOOKS
        return "reclaim" in actions and may_reclaim(self._question, told, undone)

    def _may_pay(self, queue: str) -> bool:
        """A queue takes nothing from others above its limit; what it takes below its parent the parent has already."""
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
        """A share that is too small to be kept apart is refused, and says nothing of larger ones."""
        return max(self._least[dimension], small_below(self._question, role, dimension))
