"""The protocol through which the overview, the partitioning loop and the API use the scheduling loop."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from kaiwo.clusters.protocol import Cluster
from kaiwo.history.journal_writer import Journal
from kaiwo.model.events import Event
from kaiwo.model.plan import Note, Plan
from kaiwo.model.policy import Policy
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.counted_nodes import CountedNodes
from kaiwo.runtime.loop.cycle_phases import CyclePhases
from kaiwo.runtime.loop.cycle_runner import CycleSummary
from kaiwo.runtime.loop.learned_run_times import RunTimes
from kaiwo.runtime.loop.loop_metrics import Allocations, Health
from kaiwo.runtime.loop.recovery_history import RecoveryHistory
from kaiwo.runtime.loop.start_gate import StartGate
from kaiwo.snapshot.cluster_state import ClusterState

T = TypeVar("T")


class LoopListener(Protocol):
    """Is told on the event loop what the scheduling loop does. It must be quick, and must not change the state."""

    def applied(self, events: Sequence[Event]) -> None:
        """These events are in the state now."""

    def decided(self, plan: Plan) -> None:
        """This plan is about to be carried out; the state does not have its effects yet."""


class LiveLoop(Protocol):
    """The running scheduling loop, with its cluster, state and counters."""

    state: ClusterState
    cluster: Cluster
    policy: Policy
    plugins: Registry
    journal: Journal
    last_cycle: CycleSummary | None
    evicted: Counter[tuple[str, str]]  # pods by queue and cause, since the start
    allocations: Allocations
    recoveries: RecoveryHistory
    ready: bool
    revision: int
    busy_since: float | None
    health: Health
    phases: CyclePhases
    run_times: RunTimes | None  # None: nothing is learned
    counted: CountedNodes
    gate: StartGate
    listeners: list[LoopListener]

    def clock(self) -> tuple[int, int]:
        """The cluster's time, and the number of the last cycle."""

    def recent_notes(self) -> Sequence[Note]:
        """What the last cycle noted."""

    def changed(self, after: int) -> Awaitable[int]:
        """Wait until the revision is above this."""

    def add_events(self, events: Sequence[Event]) -> Awaitable[None]:
        """Events of a source beside the cluster, such as a file with a topology."""

    def use_policy(self, policy: Policy) -> Awaitable[None]:
        """Decide by another policy from the next cycle on."""

    def ask(self, question: Callable[[ClusterState], T]) -> Awaitable[T]:
        """Run this in a worker thread while the cluster state does not change."""
