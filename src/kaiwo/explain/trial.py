"""Would this change start the workload? Asked of `decide` itself, on a fork of the picture.

In:    a picture, a workload's name, a change.   Out: what would start.
Never: touches the picture it was given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.explain.change import Change, events_of
from kaiwo.model.event import Event
from kaiwo.model.plan import Start
from kaiwo.model.policy import Policy
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.picture import Picture

MOST_CYCLES = 20  # a cycle whose budget ran out goes on in the next


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about: one waiting workload in one state of the cluster."""

    picture: Picture
    name: str
    policy: Policy
    now_s: int
    plugins: Registry = BUILTIN

    def starts_with(self, change: Change) -> bool:
        """The workload starts in the cycle after the change."""
        starts = self.after(events_of(self.picture, self.picture.workloads[self.name], change))
        return any(start.workload == self.name for start in starts)

    def after(self, events: Sequence[Event]) -> list[Start]:
        """What starts with these events, in the order of the turns, until the workload does or nothing moves."""
        fork = self.picture.fork()
        fork.patch(events)
        starts: list[Start] = []
        for _ in range(MOST_CYCLES):
            plan = decide(fork.snapshot(self.now_s), self.policy, self.plugins, with_waits=False)
            fork.patch(fork.assume(plan, self.now_s))
            fork.absorb(plan)
            starts.extend(plan.starts)
            if not plan.unfinished or any(start.workload == self.name for start in plan.starts):
                break
        return starts
