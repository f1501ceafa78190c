"""Find a change that does not start a workload at once, but lets other work be evicted for it.

The smallest size is tried first: if no work is evicted for that, none is for a larger one.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle import decide
from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.make_room.nominations import unpaid_charge
from kaiwo.decide.make_room.victim_filters import victim_filters
from kaiwo.decide.make_room.victim_units import VictimUnits
from kaiwo.decide.placement.queue_limits import is_within, least_charge
from kaiwo.explain.cheapest_change import SMALL_CLUSTER_NODES, other_models, other_queues
from kaiwo.explain.placement_check import PlacementCheck
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
from kaiwo.explain.smaller_request import DIMENSIONS, largest_below, small_below, smaller_size
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.events import Event, PodChanged, PodGone, WorkloadChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.plan import Plan
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import ReclaimRequest, refusal_to_reclaim, victim_queues
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.backlog import needs_charged_first
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.snapshot import Snapshot

CYCLES = 3  # what others reclaim first may leave something for it
MAX_STEPS = 2_000  # of each cycle: about a tenth of a second
MAX_COST = 1_200  # of the whole search, in the unit of WhatIf.cost: about 50 ms
RULES_COST = 25  # of checking the rules between queues
EVICTING_ACTIONS = {"reclaim", "preempt", "consolidate"}
SMALL_CLUSTER_FACTOR = 4  # small clusters, where a cycle takes 2 ms, are searched longer
FEW = 16  # up to this many sizes are tried one by one


def makes_room(what_if: WhatIf, events: list[Event], undo: list[Event]) -> bool | None:
    """Whether the cycles after the change start it or make room for it; None: finding out would take too long."""
    return what_if.ask_after(events, undo, partial(_next_cycles, what_if))


def _may_reclaim(what_if: WhatIf, snapshot: Snapshot) -> bool:
    """The rules between queues would let it reclaim something. Takes a millisecond or two."""
    cycle = CycleInput(snapshot.read(), what_if.policy, what_if.active, snapshot.now_s)
    cycle_state = CycleState(snapshot, cycle)
    backlog, row = cycle.state.backlog, cycle_state.working.queues.row.get(cycle.state.workloads[what_if.name].queue)
    if row is None or not backlog.is_queued(what_if.name):
        return False
    found = backlog.class_of(what_if.name)
    shares = current_shares(cycle_state.working.view)
    request = ReclaimRequest(row, np.array(unpaid_charge(cycle, cycle_state, found)), what_if.workload.preemptible)
    return refusal_to_reclaim(shares, request) is None and bool(victim_queues(shares, request).any())


def _next_cycles(what_if: WhatIf, snapshot: Snapshot) -> bool | None:
    state, now_s = snapshot.read(), snapshot.now_s
    policy = replace(what_if.policy, steps=min(what_if.policy.steps, MAX_STEPS))
    for _ in range(CYCLES):
        plan = decide(state.snapshot(now_s), policy, what_if.plugins)
        if what_if.name in {start.workload for start in plan.starts} | {
            nominee.workload for nominee in plan.nominations
        }:
            return True
        if plan.unfinished or plan.unclaimed:
            return None
        if not plan.starts and not plan.evictions:
            return False
        state = after_plan(state, plan, now_s)
    return False


def after_plan(state: ClusterState, plan: Plan, now_s: int) -> ClusterState:
    """A fork in which the whole plan was carried out, and evicted pods are gone."""
    fork = state.fork()
    assumed = assume(fork, plan, now_s)
    fork.record_cycle(plan)
    fork.patch(assumed)
    pods = [event.pod for event in assumed if isinstance(event, PodChanged)]
    fork.patch([PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in pods if pod.phase is Phase.ASSUMED])
    fork.patch([PodGone(each.workload, each.pod) for each in plan.evictions])
    return fork


def may_evict_others(what_if: WhatIf) -> bool:
    """Other work may be evicted for it at all, and it has been tried already."""
    backlog, name = what_if.state.backlog, what_if.name
    if name in backlog.gated or name in what_if.state.pods or backlog.try_all or not what_if.workload.stops_others:
        return False
    return backlog.class_of(name).key not in backlog.to_try and not EVICTING_ACTIONS.isdisjoint(what_if.policy.actions)


class EvictionSearch(NamedTuple):
    """A change after which other work is evicted for the workload, if one was found."""

    change: PossibleChange | None
    is_complete: bool  # False: it, or another that might help, was not tried


def change_that_evicts(what_if: WhatIf) -> EvictionSearch:
    """The first change of its size, model or queue that helps."""
    if what_if.cycle_cost > MAX_COST:
        return EvictionSearch(None, is_complete=False)
    search = _Search(what_if.resubmitted_last)
    for kind in (search.sizes, search.models, search.queues):
        found = min(kind(), key=lambda change: change.rank, default=None)
        if found is not None:
            return EvictionSearch(found, is_complete=True)
    return EvictionSearch(None, is_complete=not search.gave_up)


def raise_that_evicts(what_if: WhatIf) -> EvictionSearch:
    """If exactly one limit or quota leaves too little: whether raising it to the least charge lets work be evicted."""
    found = only_needed_raise(what_if, PlacementCheck(what_if))
    if found is None or not _has_victims(what_if, found[1]):
        return EvictionSearch(None, is_complete=True)
    if what_if.cycle_cost > MAX_COST:
        return EvictionSearch(found[0], is_complete=False)
    state, workload = what_if.state, what_if.workload
    events, undo = events_of(state, workload, found[0]), events_to_undo(state, workload, found[0])
    verdict = makes_room(what_if, events, undo)
    return EvictionSearch(None if verdict is False else found[0], is_complete=verdict is not None)


def _has_victims(what_if: WhatIf, need: ResourceVector) -> bool:
    """Some queue uses more than is protected. If none does, no cycle needs to be tried."""
    shares = current_shares(what_if.view)
    request = ReclaimRequest(shares.queues.row[what_if.workload.queue], np.array(need), what_if.workload.preemptible)
    return bool(victim_queues(shares, request).any())


class _Search:
    """Tries the changes that need cancel and submit."""

    def __init__(self, what_if: WhatIf) -> None:
        self._what_if, self._workload = what_if, what_if.workload
        is_small = len(what_if.state.node_objects) <= SMALL_CLUSTER_NODES
        self._left = MAX_COST * (SMALL_CLUSTER_FACTOR if is_small else 1)
        self._cycle_cost = what_if.cycle_cost
        may_stop = victim_filters(what_if.view, what_if.active, what_if.policy)
        self._victims = VictimUnits(what_if.state, what_if.now_s, what_if.policy, may_stop=may_stop)
        sizes = [gpu.memory_mib for node in what_if.state.node_objects.values() for gpu in node.gpus]
        # Less than a hundredth of a device is charged as nothing, and nothing is evicted for that.
        self._largest_mib = max(sizes, default=0)
        self._least = LEAST | {GPU_MEMORY: max(1, self._largest_mib * LEAST[SHARE] // WHOLE_MILLI)}
        self.gave_up = False

    def sizes(self) -> Iterator[PossibleChange]:
        """For every role and dimension the largest size that helps."""
        if not self._makes_room(self._least_of_all()):
            return
        for role in self._workload.roles:
            for dimension in DIMENSIONS:
                size = size_of(role, dimension)
                if value := self._largest(role, dimension, size):
                    yield smaller_size(role, dimension, value)

    def models(self) -> Iterator[PossibleChange]:
        for model in other_models(self._what_if):
            if self._makes_room(with_model(self._workload, model)):
                yield PossibleChange(ChangeKind.OTHER_MODEL, "researcher", model)
                return

    def queues(self) -> Iterator[PossibleChange]:
        for queue in other_queues(self._what_if):
            if self._may_pay(queue) and self._makes_room(replace(self._workload, queue=queue)):
                yield PossibleChange(ChangeKind.OTHER_QUEUE, "researcher", queue)
                return

    def _largest(self, role: Role, dimension: str, size: int) -> int:
        def serves(value: int) -> bool:
            return self._makes_room(resized(self._workload, role.name, dimension, value))

        unit, least = UNITS[dimension], self._least_of(role, dimension)
        steps = (size - least) // unit
        if steps > FEW:
            return largest_below(size, unit, least, serves)
        return next(filter(serves, (size - step * unit for step in range(1, steps + 1))), 0)

    def _makes_room(self, workload: Workload) -> bool:
        if self._left < min(RULES_COST, self._cycle_cost):
            self.gave_up = True
            return False
        events, undo = list[Event]([WorkloadChanged(workload)]), list[Event]([WorkloadChanged(self._workload)])
        if not self._may_evict(workload, events, undo):
            return False
        if self._left < self._cycle_cost:
            self._left, self.gave_up = 0, True  # the other changes cannot be tried either
            return False
        self._left -= self._cycle_cost
        verdict = makes_room(self._what_if, events, undo)
        self.gave_up |= verdict is None
        return bool(verdict)

    def _may_evict(self, workload: Workload, events: list[Event], undo: list[Event]) -> bool:
        """The rules would let other work be evicted or moved for it."""
        actions = self._what_if.policy.actions
        if "consolidate" in actions or ("preempt" in actions and self._has_below(workload.queue)):
            return True
        self._left -= RULES_COST
        return "reclaim" in actions and self._what_if.ask_after(events, undo, partial(_may_reclaim, self._what_if))

    def _may_pay(self, queue: str) -> bool:
        """A queue above its limit reclaims nothing; its parent already pays for what is reclaimed below it."""
        view, found = self._what_if.view, self._what_if.state.backlog.class_of(self._workload.name)
        least = least_charge(self._what_if.state, needs_charged_first(found), lambda _: self._largest_mib)
        row = view.queues.row[queue]
        left = (view.queues.limit[row] - view.queue_used[row]).tolist()
        return self._has_below(queue) or is_within(least, left)

    def _has_below(self, queue: str) -> bool:
        return self._victims.has_below(queue, self._workload.priority)

    def _least_of_all(self) -> Workload:
        """As small as it can be in everything at once."""
        least = self._workload
        for role in self._workload.roles:
            for dimension in DIMENSIONS:
                if size_of(role, dimension) > self._least_of(role, dimension):
                    least = resized(least, role.name, dimension, self._least_of(role, dimension))
        return least

    def _least_of(self, role: Role, dimension: str) -> int:
        """The least size to try. Smaller shares may be too small to isolate: that would not rule out larger ones."""
        return max(self._least[dimension], small_below(self._what_if, role, dimension))
