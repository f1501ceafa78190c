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
from kaiwo.explain.change import Change, events_of, events_to_undo
from kaiwo.model.event import WorkloadChanged, WorkloadGone
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import Active, Registry
from kaiwo.snapshot.assumed import assume
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working import Working

Answer = TypeVar("Answer")


@dataclass(eq=False)
class Question:
    """What is asked about: one waiting workload in one state of the cluster."""

    picture: Picture
    name: str
    policy: Policy
    now_s: int
    plugins: Registry = BUILTIN
    set_aside: tuple[str, ...] = ()  # plugins that misbehaved
    looks: int = 0  # what the trials cost so far: see `fate_with`
    _fates: dict[Change, Fate] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        """The one that waits."""
        return self.picture.workloads[self.name]

    @cached_property
    def active(self) -> Active:
        """The plugins that answer."""
        active = self.plugins.active(self.policy)
        for name in self.set_aside:
            active = active.without(name)
        return active

    @cached_property
    def view(self) -> Working:
        """The cluster as it is, with the space that is kept for the workload free."""
        view = Working(Snapshot(self.picture, self.now_s))
        queue = view.queues.row.get(self.workload.queue)
        for kept in self.picture.nominations.get(self.name, {}).values():
            if queue is not None:
                view.give_back(kept, queue, is_fixed=not self.workload.preemptible)
        return view

    @cached_property
    def resubmitted(self) -> "Question":
        """The same question after the workload was cancelled and submitted again, as one who changes it has to do.

        What was planned or kept for it is gone then, and a cycle gave it to others.
        """
        picture = self.picture
        if self.name not in picture.promises and self.name not in picture.nominations:
            return self
        fork = picture.fork()
        fork.patch([WorkloadGone(self.name)])
        plan = decide(fork.snapshot(self.now_s), self.policy, self.plugins)
        fork.absorb(plan)
        fork.patch(assume(fork, plan, self.now_s))
        fork.patch([WorkloadChanged(structs.replace(self.workload, submitted_s=self.now_s))])
        return Question(fork, self.name, self.policy, self.now_s, self.plugins, self.set_aside)

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

    def is_served_with(self, change: Change) -> bool:
        """In the cycle after the change `decide` starts the workload, or makes room for it."""
        plan = self._after(change, decide)
        is_kept = any(kept.workload == self.name for kept in plan.nominations)
        return is_kept or any(start.workload == self.name for start in plan.starts)

    def _try(self, change: Change) -> Fate:
        """A trial costs 20 looks, and one for each class that has a try."""

        def ask(snapshot: Snapshot, policy: Policy, plugins: Registry) -> Fate:
            backlog = self._fork.backlog
            self.looks += 20 + len(backlog.by_key if backlog.all_open else backlog.open)
            return fate_of(snapshot, self.name, policy, plugins)

        return self._after(change, ask)

    def _after(self, change: Change, ask: Callable[[Snapshot, Policy, Registry], Answer]) -> Answer:
        """The answer in a fork with the change. The fork is used again, so all is put back."""
        fork = self._fork
        is_open, all_open = set(fork.backlog.open), fork.backlog.all_open
        undone = events_to_undo(fork, self.workload, change)
        fork.patch(events_of(fork, self.workload, change))
        answer = ask(fork.snapshot(self.now_s), self.policy, self.plugins)
        fork.patch(undone)
        fork.backlog.all_open = all_open
        fork.backlog.open = {key: fork.backlog.by_key[key] for key in is_open}
        return answer

    @cached_property
    def _fork(self) -> Picture:
        return self.picture.fork()
