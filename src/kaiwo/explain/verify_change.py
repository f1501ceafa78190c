"""Would this change start the workload? Asked of `decide` itself, on a fork of the picture.

In:    a picture, a workload's name, a change.   Out: what `decide` would do about it.
Never: touches the picture it was given.
Everybody who waits takes part, also those who cannot start: whose turn it is hangs on what stands first in each queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from msgspec import structs

from kaiwo.decide.cycle import BUILTIN, Fate, decide, fate_of
from kaiwo.explain.possible_changes import Change, events_of, events_to_undo
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

A_START = 3  # looks
A_CYCLE = 60  # looks, beside what hangs on how many there are
MOST_FOR_A_CANCEL = 200


@dataclass(eq=False)
class Question:
    """What is asked about: one waiting workload in one state of the cluster."""

    state: ClusterState
    name: str
    policy: Policy
    now_s: int
    plugins: Registry = BUILTIN
    set_aside: tuple[str, ...] = ()  # plugins that misbehaved
    is_private: bool = False  # nobody else looks at the picture: trials may be made on it
    looks: int = 0  # what the trials cost so far: see `fate_with`
    _fates: dict[Change, Fate] = field(default_factory=dict)

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
        """The same question after the workload was cancelled and submitted again, as one who changes it has to do.

        What was planned or kept for it is gone then, and a cycle gave it to others. Without its wish the shares of
        others are larger, too: where a cycle costs little, it is asked whether they take more.
        """
        state = self.state
        has_space = self.name in state.planned_starts or self.name in state.nominations
        if not has_space and self.cycle_looks > MOST_FOR_A_CANCEL:
            return self
        fork = state.fork()
        fork.patch([WorkloadGone(self.name)])
        plan = decide(fork.snapshot(self.now_s), self.policy, self.plugins)
        if not has_space and not plan.starts and not plan.nominations:
            return self
        fork.record_cycle(plan)
        fork.patch(assume(fork, plan, self.now_s))
        fork.patch([WorkloadChanged(_submitted_anew(self.workload, self.now_s))])
        return Question(fork, self.name, self.policy, self.now_s, self.plugins, self.set_aside)

    @cached_property
    def cycle_looks(self) -> int:
        """About what a whole cycle of `decide` costs, in looks: see `fate_with`."""
        classes = self.state.backlog.by_key.values()
        pods = sum(needed for found in classes for _, _, needed in found.needs)  # of large gangs each is placed alone
        return A_CYCLE + (len(self.state.node_objects) + len(classes) + pods) // 4

    @cached_property
    def as_the_last(self) -> "Question":
        """The same question once more, always after cancel and submit: to ask whether others would be stopped for it.

        It came last, nobody holds it off from stopping others, and it has waited as long as it lets others be.
        """
        fork = self.resubmitted.state.fork()
        anew = structs.replace(_submitted_anew(self.workload, self.now_s), preemption_delay_s=0)
        fork.patch([WorkloadGone(self.name), WorkloadChanged(anew)])
        return Question(fork, self.name, self.policy, self.now_s, self.plugins, self.set_aside, is_private=True)

    def is_tried(self, change: Change) -> bool:
        """The answer is known already."""
        return change in self._fates

    def starts_with(self, change: Change) -> bool:
        """`decide` starts the workload in the cycle after the change."""
        return self.fate_with(change).is_started

    def fate_with(self, change: Change) -> Fate:
        """What becomes of the workload in the cycle after the change; asked once for each change."""
        fate = self._fates.get(change)
        if fate is None:
            fate = self._fates[change] = self._try(change)
        return fate

    def _try(self, change: Change) -> Fate:
        """A trial costs 20 looks, one for each class that has a try, and some for each pod that goes or starts."""

        def ask(snapshot: Snapshot, policy: Policy, plugins: Registry) -> Fate:
            backlog = self._fork.backlog
            self.looks += 20 + len(backlog.by_key if backlog.try_all else backlog.to_try)
            fate = fate_of(snapshot, self.name, policy, plugins)
            self.looks += A_START * len(fate.starts)
            return fate

        told = events_of(self._fork, _submitted_anew(self.workload, self.now_s), change)
        undone = events_to_undo(self._fork, self.workload, change)
        self.looks += len(told) + len(undone)
        return self.after(told, undone, ask)

    def after(
        self, told: list[Event], undone: list[Event], ask: Callable[[Snapshot, Policy, Registry], Answer]
    ) -> Answer:
        """The answer in a fork that is told of a change. The fork is used again, so all is put back."""
        fork = self._fork
        is_open, all_open = set(fork.backlog.to_try), fork.backlog.try_all
        fork.patch(told)
        answer = ask(fork.snapshot(self.now_s), self.policy, self.plugins)
        fork.patch(undone)
        fork.backlog.try_all = all_open
        fork.backlog.to_try = {key: fork.backlog.by_key[key] for key in is_open}
        return answer

    @cached_property
    def _fork(self) -> ClusterState:
        return self.state if self.is_private else self.state.fork()


def _submitted_anew(workload: Workload, now_s: int) -> Workload:
    """As it comes when its owner cancels it and submits it again: a back-off that is over is not part of that."""
    return structs.replace(workload, submitted_s=now_s, not_before_s=0, not_before_why="")
