"""What every kind of cluster can do. `local`, `simulated` and `kubernetes` pass one contract suite.

In:    plans and people's wishes.   Out: events, of which the first batch is the whole state.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

from kaiwo.model.events import Event
from kaiwo.model.gpu import Share
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadRecord


class News(NamedTuple):
    """What became of the workloads since a version that somebody had seen."""

    version: int  # what to ask with the next time
    records: Sequence[WorkloadRecord]  # new or different, or all of them
    gone: Sequence[str]
    is_all: bool = False  # it was too long ago: whatever is not among the records is gone


class LogFile(NamedTuple):
    """What one attempt of a pod wrote."""

    attempt: int  # the first is 1
    path: str  # right after the start the file may not be there yet
    is_over: bool  # nothing more comes


class Cluster(Protocol):
    """Pods and nodes: what the scheduler needs."""

    kind: str  # local | simulated | kubernetes

    def now_s(self) -> int:
        """The cluster's clock in whole seconds: wall time, or virtual time."""

    def events(self) -> AsyncIterator[tuple[Event, ...]]:
        """The whole state as the first batch, then every change, in order, until `close`. One reader."""

    async def apply(self, plan: Plan) -> tuple[str, ...]:
        """Take the plan to the cluster. Returns the ids of what was begun (`workload/pod`) at once.

        Outcomes come back as events: a start becomes PodChanged(running), or PodGone and a WorkloadChanged with a
        back-off (`not_before_s`, `avoid_nodes`) when it was refused. Applying a start twice starts once.
        """

    async def change_devices(self, name: str, how: Callable[[Node], Node] | None) -> None:
        """Let the node show other devices, or other health of them. NotFoundError when there is none of that name.

        Work keeps the devices that it holds: one that the node does not show any more stays, unhealthy, until nobody
        is on it. Where the node's own definition lives elsewhere, `how` is laid over it until it is None.
        """

    def devices_in_use(self, name: str) -> frozenset[str]:
        """The devices of a node that somebody holds, by the cluster's own books."""

    def run_of(self, workload: str, pod: str) -> tuple[str, str]:
        """By what its machine knows a pod (a run's id, a pod's UID), and the grade of its grant; empty: not known."""

    async def correct_devices(self, pod: tuple[str, str], uid: str, devices: tuple[Share, ...]) -> None:
        """A pod runs on other devices than it was given: the books follow."""

    async def close(self) -> None:
        """Stop watching. Running work goes on."""


class Work(Protocol):
    """What people do to workloads, queues and nodes. Raises ConfigError, RefusedError or NotFoundError.

    `who` is the person for the audit log.
    """

    async def put(
        self,
        queues: Sequence[Queue],
        items: Sequence[tuple[Workload, Program]],
        who: str = "",
        dry_run: bool = False,
        reservations: Sequence[Reservation] = (),
    ) -> tuple[Queue | None, ...]:
        """Create or replace queues and reservations and submit work, all or none.

        Returns the queues as they were; None: it is new.

        `dry_run`: the same answer or refusal, and nothing is changed.
        """

    async def remove(
        self, queues: Sequence[str], workloads: Sequence[str], who: str = "", reservations: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Remove queues and reservations, cancel and forget work, all or none.

        Returns the workloads that are still stopping.

        Those stay, as cancelled ones, until somebody forgets them.
        """

    def reservations(self) -> Sequence[Reservation]:
        """Every reservation that is kept, by name: pending, active, and over."""

    async def submit(self, items: Sequence[tuple[Workload, Program]], who: str = "") -> None:
        """All or none. A name that a living workload has is refused; that of an ended one is taken over."""

    async def cancel(self, name: str, who: str = "") -> None:
        """Stop its pods, then it is `cancelled`."""

    async def hold(self, name: str, who: str = "") -> None:
        """Keep a waiting workload from starting."""

    async def release(self, name: str, who: str = "") -> None:
        """Undo `hold`."""

    async def requeue(self, name: str, who: str = "") -> None:
        """Stop it if it runs, then let it wait again; an ended one waits again with fresh retries."""

    async def checkpoint(self, name: str, at_s: int = 0, who: str = "") -> int:
        """It saved its work then; 0, or a time to come: now. Returns when it last did."""

    async def put_queue(self, queue: Queue, who: str = "") -> None:
        """Create or replace a queue."""

    async def remove_queue(self, name: str, who: str = "") -> None:
        """Refused while living workloads or child queues name it; `default` stays."""

    async def put_node(self, node: Node, who: str = "") -> None:
        """Create or replace a virtual node."""

    async def remove_node(self, name: str, who: str = "") -> None:
        """Take a virtual node away; its pods are lost and their workloads wait again."""

    async def cordon(self, name: str, cordoned: bool, reason: str = "", who: str = "") -> None:
        """No new pods on this node, or again."""

    async def drain(self, name: str, reason: str = "", who: str = "") -> tuple[str, ...]:
        """Cordon it and stop its pods, which wait again. Returns the workloads that had to go."""

    def record(self, name: str) -> WorkloadRecord:
        """One workload, living or ended."""

    def records(self) -> Sequence[WorkloadRecord]:
        """Every workload the cluster remembers: the living, and the ended that are kept."""

    def news(self, after: int) -> News:
        """The workloads that changed since the version of the last news; -1: all of them."""

    def log_path(self, name: str, pod: str = "") -> str:
        """The file its output goes to (of the first pod when none is named); empty when it has none.

        Right after the start the file may not be there yet.
        """

    async def forget_ended(self, names: Sequence[str], who: str = "") -> None:
        """Drop ended workloads from the store."""
