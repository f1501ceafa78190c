"""Verify that a change would start a workload: `decide` itself tries it, on a fork of the cluster state.

All waiting work takes part, even what cannot start: whose turn it is depends on what is first in each queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TypeVar

from msgspec import structs

from kaiwo.decide.cycle import BUILTIN, TrialOutcome, decide, outcome_of
from kaiwo.decide.placement.queue_limits import ClassCharges
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange, QueueBoundRef, events_of, events_to_undo
from kaiwo.model.events import Event, WorkloadChanged, WorkloadGone
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import ActivePlugins, Registry
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.backlog import ClassKey
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy

Answer = TypeVar("Answer")

START_COST = 3
CYCLE_COST = 60  # besides what depends on the numbers of nodes, classes and pods
MAX_CANCEL_COST = 200


@dataclass(eq=False)
class WhatIf:
    """One waiting workload in one state of the cluster, about which changes are tried."""

    state: ClusterState
    name: str
    policy: Policy
    now_s: int
    plugins: Registry = BUILTIN
    set_aside: tuple[str, ...] = ()  # plugins that misbehaved
    is_private: bool = False  # nothing else uses the state: trials may be made on it
    cost: int = 0  # of the trials so far: see `_try`
    _outcomes: dict[PossibleChange, TrialOutcome] = field(default_factory=dict)
    _barred: dict[str, frozenset[ClassKey]] = field(default_factory=dict)  # by the queue that has more room

    @property
    def workload(self) -> Workload:
        return self.state.workloads[self.name]

    @cached_property
    def active(self) -> ActivePlugins:
        active = self.plugins.active(self.policy)
        for name in self.set_aside:
            active = active.without(name)
        return active

    @cached_property
    def view(self) -> View:
        """The cluster as it is, with the space nominated for the workload free."""
        working = WorkingCopy(Snapshot(self.state, self.now_s))
        queue = working.queues.row.get(self.workload.queue)
        for kept in self.state.nominations.get(self.name, {}).values():
            if queue is not None:
                working.release(kept, queue, is_non_preemptible=not self.workload.preemptible)
        return working.view

    @cached_property
    def resubmitted(self) -> "WhatIf":
        """The same after the workload was cancelled and submitted again, as a change of it requires.

        Its planned start and nominations are gone then, and a cycle has given their space to others. Without its demand
        the shares of others are larger, too: where a cycle costs little, it is run to see whether they take more.
        """
        state = self.state
        has_space = self.name in state.planned_starts or self.name in state.nominations
        if not has_space and self.cycle_cost > MAX_CANCEL_COST:
            return self
        fork = state.fork()
        fork.patch([WorkloadGone(self.name)])
        plan = decide(fork.snapshot(self.now_s), self.policy, self.plugins)
        if not has_space and not plan.starts and not plan.nominations:
            return self
        fork.record_cycle(plan)
        fork.patch(assume(fork, plan, self.now_s))
        fork.patch([WorkloadChanged(_resubmitted(self.workload, self.now_s))])
        return WhatIf(fork, self.name, self.policy, self.now_s, self.plugins, self.set_aside)

    @cached_property
    def cycle_cost(self) -> int:
        """About what a whole cycle costs, in the unit of `_try`."""
        classes = self.state.backlog.by_key.values()
        pods = sum(needed for found in classes for _, _, needed in found.needs)  # each is placed by itself
        return CYCLE_COST + (len(self.state.node_objects) + len(classes) + pods) // 4

    @cached_property
    def resubmitted_last(self) -> "WhatIf":
        """Submitted again behind all other work, without a cool-down or delay: would work be evicted for it?"""
        fork = self.resubmitted.state.fork()
        resubmitted = structs.replace(_resubmitted(self.workload, self.now_s), preemption_delay_s=0)
        fork.patch([WorkloadGone(self.name), WorkloadChanged(resubmitted)])
        return WhatIf(fork, self.name, self.policy, self.now_s, self.plugins, self.set_aside, is_private=True)

    def is_tried(self, change: PossibleChange) -> bool:
        return change in self._outcomes

    def starts_after(self, change: PossibleChange) -> bool:
        """`decide` starts the workload in the cycle after the change."""
        return self.outcome_after(change).is_started

    def outcome_after(self, change: PossibleChange) -> TrialOutcome:
        """What the cycle after the change does about the workload; tried once for each change."""
        if change not in self._outcomes:
            self._outcomes[change] = self._try(change)
        return self._outcomes[change]

    def _try(self, change: PossibleChange) -> TrialOutcome:
        """A trial costs 20, 1 for each class that is tried, and a few for each pod that stops or starts."""
        barred = self._barred_after(change)

        def ask(snapshot: Snapshot) -> TrialOutcome:
            backlog = self._fork.backlog
            tried = len(backlog.by_key) - len(barred) if backlog.try_all else len(backlog.to_try)
            self.cost += 20 + tried
            outcome = outcome_of(snapshot, self.name, self.policy, self.plugins, barred)
            self.cost += START_COST * len(outcome.starts)
            return outcome

        events = events_of(self._fork, _resubmitted(self.workload, self.now_s), change)
        undo = events_to_undo(self._fork, self.workload, change)
        self.cost += len(events) + len(undo)
        return self.ask_after(events, undo, ask)

    def ask_after(self, events: list[Event], undo: list[Event], ask: Callable[[Snapshot], Answer]) -> Answer:
        """The answer in a fork after a change. The fork is used again, so everything is undone."""
        fork = self._fork
        to_try, try_all = set(fork.backlog.to_try), fork.backlog.try_all
        seen, fork.seen_requests = fork.seen_requests, fork.seen_requests.copy()  # a trial is no arrival
        fork.patch(events)
        answer = ask(fork.snapshot(self.now_s))
        fork.patch(undo)
        fork.seen_requests = seen
        fork.backlog.try_all = try_all
        fork.backlog.to_try = {key: fork.backlog.by_key[key] for key in to_try}
        return answer

    def _barred_after(self, change: PossibleChange) -> frozenset[ClassKey]:
        """The classes whose queues have too little left for them, before the change and after it."""
        match change.kind, change.subject:
            case ChangeKind.STOP, str(stopped):
                return self.barred_with_room_in(self.state.workloads[stopped].queue)
            case ChangeKind.QUOTA, QueueBoundRef(raised):
                return self.barred_with_room_in(raised)
        return self.barred_with_room_in("")

    def barred_with_room_in(self, queue: str) -> frozenset[ClassKey]:
        """The same if this queue has more left.

        That is for its own work, and for that of every queue on its path and below it.
        """
        if queue not in self._barred:
            queues = self.view.queues
            row = queues.row.get(queue)
            path = set(queues.path[row]) if row is not None else set()
            given = {name for name, at in queues.row.items() if not path.isdisjoint(queues.path[at])}
            more = chain.from_iterable(self.state.backlog.by_queue.get(name, {}).values() for name in given)
            self._barred[queue] = self._barred_now.difference(found.key for found in more)
        return self._barred[queue]

    @cached_property
    def _barred_now(self) -> frozenset[ClassKey]:
        """The classes that could never start, or whose queues have too little left; none where time may change that."""
        state = self.state
        has_ends = state.planned_starts or state.reservations.objects or state.reservations.live or state.expiring
        if has_ends or state.failures.resting:
            return frozenset()
        charges, backlog = ClassCharges(state, WorkingCopy(Snapshot(state, self.now_s))), state.backlog
        able = {
            key for key, found in backlog.by_key.items() if key not in backlog.impossible and charges.may_start(found)
        }
        return frozenset(backlog.by_key.keys() - able - {backlog.class_of(self.name).key})

    @cached_property
    def _fork(self) -> ClusterState:
        return self.state if self.is_private else self.state.fork()


def _resubmitted(workload: Workload, now_s: int) -> Workload:
    """As if its owner had cancelled it and submitted it again: without its back-off."""
    return structs.replace(workload, submitted_s=now_s, not_before_s=0, not_before_why="")
