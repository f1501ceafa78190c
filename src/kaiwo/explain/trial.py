"""Would this change start the workload? Asked of `decide` itself, on a fork of the picture.

In:    a picture, a workload's name, a change.   Out: what `decide` would do about it.
Never: touches the picture it was given.
"""

from dataclasses import dataclass

from kaiwo.decide.cycle import BUILTIN, Fate, fate_of
from kaiwo.explain.change import Change, events_of
from kaiwo.model.policy import Policy
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.picture import Picture


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about: one waiting workload in one state of the cluster."""

    picture: Picture
    name: str
    policy: Policy
    now_s: int
    plugins: Registry = BUILTIN

    def starts_with(self, change: Change) -> bool:
        """`decide` starts the workload in the cycle after the change."""
        return self.fate_with(change).is_started

    def fate_with(self, change: Change) -> Fate:
        """What becomes of the workload in the cycle after the change."""
        fork = self.picture.fork()
        fork.patch(events_of(fork, fork.workloads[self.name], change))
        return fate_of(fork.snapshot(self.now_s), self.name, self.policy, self.plugins)
