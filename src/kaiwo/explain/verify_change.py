"""Verify that a change would start a workload: `decide` itself tries it, on a fork of the cluster state.

In:    a cluster state, a workload's name, a change.   Out: what `decide` would do about it.
Never: changes the state it was given.
All waiting work takes part, also what cannot start: whose turn it is depends on what is first in each queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from msgspec import structs

from kaiwo.decide.cycle import BUILTIN, Fate, decide, fate_of
from kaiwo.explain.possible_changes import PossibleChange, events_of, events_to_undo
from kaiwo.model.events import Event, WorkloadChanged, WorkloadGone
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import ActivePlugins, Registry
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy

Answer = TypeVar("Answer")

START_COST = 3
CYCLE_COST = 60  # beside what depends on the numbers of nodes, classes and pods
MOST_CANCEL_COST = 200


@dataclass(eq=False)
class Question:
    """What is asked about: one waiting workload in one state of the cluster."""

    state: ClusterState
    name: str
    policy: Policy
    now_s: int
    plugins: Registry = BUILTIN
    set_aside: tuple[str, ...] = ()  # plugins that misbehaved
    is_private: bool = False  # nothing else uses the state: trials may be made on it
    cost: int = 0  # of the trials so far: see `_try`
    _outcomes: dict[PossibleChange, Fate] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        """The one that waits."""
        return self.state.workloads[self.name]

    @cached_property
    def active(self) -> ActivePlugins:
        """The plugins that answer."""
        active = self.plugins.active(self.policy)
        for name in self.set_aside:
            active = active.without(name)
        return active

    @cached_property
    def view(self) -> View:
        """The cluster as it is, with the space that is kept for the workload free."""
        working = WorkingCopy(Snapshot(self.state, self.now_s))
        queue = working.queues.row.get(self.workload.queue)
        for kept in self.state.nominations.get(self.name, {}).values():
            if queue is not None:
                working.release(kept, queue, is_non_preemptible=not self.workload.preemptible)
        return working.view

    @cached_property
    def resubmitted(self) -> "Question":
        """The same question after the workload was cancelled and submitted again, as a change of it requires.

        What was planned or kept for it is gone then, and a cycle gave it to others. Without its demand the shares of
        others are larger, too: where a cycle costs little, it is run to see whether they take more.
        """
        state = self.state
        has_space = self.name in state.planned_starts or self.name in state.nominations
        if not has_space and self.cycle_cost > MOST_CANCEL_COST:
            return self
        fork = state.fork()
        fork.patch([WorkloadGone(self.name)])
        plan = decide(fork.snapshot(self.now_s), self.policy, self.plugins)
        if not has_space and not plan.starts and not plan.nominations:
            return self
        fork.record_cycle(plan)
        fork.patch(assume(fork, plan, self.now_s))
        fork.patch([WorkloadChanged(_resubmitted(self.workload, self.now_s))])
        return Question(fork, self.name, self.policy, self.now_s, self.plugins, self.set_aside)

    @cached_property
    def cycle_cost(self) -> int:
        """About what a whole cycle of `decide` costs, in the measure of `_try`."""
        classes = self.state.backlog.by_key.values()
        pods = sum(needed for found in classes for _, _, needed in found.needs)  # each is placed by itself
        return CYCLE_COST + (len(self.state.node_objects) + len(classes) + pods) // 4

    @cached_property
    def resubmitted_last(self) -> "Question":
        """The same question, always after cancel and submit: to ask whether other work would be evicted for it.

        It was submitted last, is in no preemption cool-down, and its preemption delay is over.
        """
        fork = self.resubmitted.state.fork()
        anew = structs.replace(_resubmitted(self.workload, self.now_s), preemption_delay_s=0)
        fork.patch([WorkloadGone(self.name), WorkloadChanged(anew)])
        return Question(fork, self.name, self.policy, self.now_s, self.plugins, self.set_aside, is_private=True)

    def is_tried(self, change: PossibleChange) -> bool:
        """The answer is known already."""
        return change in self._outcomes

    def starts_after(self, change: PossibleChange) -> bool:
        """`decide` starts the workload in the cycle after the change."""
        return self.outcome_after(change).is_started

    def outcome_after(self, change: PossibleChange) -> Fate:
        """What the cycle after the change does about the workload; tried once for each change."""
        outcome = self._outcomes.get(change)
        if outcome is None:
            outcome = self._outcomes[change] = self._try(change)
        return outcome

    def _try(self, change: PossibleChange) -> Fate:
        """A trial costs 20, 1 for each class that is tried, and a few for each pod that stops or starts."""

        def ask(snapshot: Snapshot, policy: Policy, plugins: Registry) -> Fate:
            backlog = self._fork.backlog
            self.cost += 20 + len(backlog.by_key if backlog.try_all else backlog.to_try)
            outcome = fate_of(snapshot, self.name, policy, plugins)
            self.cost += START_COST * len(outcome.starts)
            return outcome

        events = events_of(self._fork, _resubmitted(self.workload, self.now_s), change)
        undo = events_to_undo(self._fork, self.workload, change)
        self.cost += len(events) + len(undo)
        return self.ask_after(events, undo, ask)

    def ask_after(
        self, events: list[Event], undo: list[Event], ask: Callable[[Snapshot, Policy, Registry], Answer]
    ) -> Answer:
        """The answer in a fork after a change. The fork is used again, so everything is put back."""
        fork = self._fork
        is_open, all_open = set(fork.backlog.to_try), fork.backlog.try_all
        fork.patch(events)
        answer = ask(fork.snapshot(self.now_s), self.policy, self.plugins)
        fork.patch(undo)
        fork.backlog.try_all = all_open
        fork.backlog.to_try = {key: fork.backlog.by_key[key] for key in is_open}
        return answer

    @cached_property
    def _fork(self) -> ClusterState:
        return self.state if self.is_private else self.state.fork()


def _resubmitted(workload: Workload, now_s: int) -> Workload:
    """As it is when its owner cancels it and submits it again: without its back-off."""
    return structs.replace(workload, submitted_s=now_s, not_before_s=0, not_before_why="")
