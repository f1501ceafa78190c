"""What every kind of cluster offers: events in, plans out, records of workloads, and its abilities.

`local`, `simulated` and `kubernetes` implement `Cluster` and pass one contract suite. What a kind may lack (logs,
consoles, virtual time) is a small protocol of its own in `Abilities`; None means that this kind does not have it.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from kaiwo.model.cluster_write import ClusterWrite
from kaiwo.model.defragmentation import DefragmentationRun
from kaiwo.model.errors import KaiwoError
from kaiwo.model.events import Event
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.node import CountedAmounts, Node
from kaiwo.model.performance import ProgressReport
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import AttemptRecord, Program, WorkloadRecord

Action = Literal["cancel", "hold", "release", "requeue"]


WorkloadChange = Callable[[Workload], Workload]  # raises ConfigError or RefusedError for what it does not allow


class ChangedWorkload(NamedTuple):
    before: Workload
    after: Workload


class RecordChanges(NamedTuple):
    version: int  # what to ask with the next time
    records: Sequence[WorkloadRecord]  # new or changed, or all of them
    gone: Sequence[str]
    is_all: bool = False  # the version was too old: any workload that is not among the records is gone


class LogFile(NamedTuple):
    attempt: int  # 1 for the first attempt
    path: str  # right after the start the file may not exist yet
    is_over: bool  # the file is complete


class PodRun(NamedTuple):
    """How the machine identifies a running pod."""

    id: str = ""  # a run's id, or a pod's UID; empty: unknown
    grade: str = ""  # how well its GPU share is isolated; empty: unknown


class WorkControl(Protocol):
    """Submit, change and remove workloads, queues and reservations.

    Raises ConfigError, RefusedError or NotFoundError. `who` is the person for the audit log. `only_of` is the user
    whose work that person may change (None: everybody's); it is checked in the same transaction as the change, because
    a name may be submitted again by somebody else at any moment. Kubernetes keeps these objects itself: there settings
    change by annotations, and what else is asked for is refused with the kubectl command that does it.
    """

    actions: Sequence[Action]  # that are not refused for this kind of cluster

    def changeable_fields(self, record: WorkloadRecord) -> Sequence[str]:
        """The fields that `set_many` may change of this workload now, as people write them."""

    def kubectl_stop(self, name: str) -> str:
        """The kubectl command that stops it; empty where `kaiwo cancel` does, or if it is gone."""

    async def put(
        self,
        queues: Sequence[Queue],
        items: Sequence[tuple[Workload, Program]],
        who: str = "",
        dry_run: bool = False,
        reservations: Sequence[Reservation] = (),
    ) -> tuple[Queue | None, ...]:
        """Create or replace queues and reservations and submit workloads, all or none.

        Returns each queue as it was before; None for a new one. `dry_run`: the same result, but nothing is changed. The
        name of a workload that has not ended is refused; the name of an ended one may be used again.
        """

    async def remove(
        self,
        queues: Sequence[str],
        workloads: Sequence[str],
        who: str = "",
        reservations: Sequence[str] = (),
        only_of: str | None = None,
    ) -> tuple[str, ...]:
        """Remove queues and reservations, cancel and forget workloads, all or none.

        Returns the workloads that are still stopping. They stay, as cancelled ones, until `forget_ended`.
        """

    def reservations(self) -> Sequence[Reservation]:
        """Every known reservation by name: pending, active and expired."""

    async def change(self, action: Action, name: str, who: str = "", only_of: str | None = None) -> None:
        """Cancel: stop its pods; then it is `cancelled`. Hold: keep a waiting workload from starting. Release: undo a
        hold. Requeue: stop it if it runs, and let it wait again; an ended one waits again with all its retries."""

    async def change_many(
        self, action: Action, names: Sequence[str], who: str = "", only_of: str | None = None
    ) -> tuple[KaiwoError | None, ...]:
        """Apply the action to many workloads. Returns for each one the refusal, or None when it was done."""

    async def set_many(
        self, names: Sequence[str], change: WorkloadChange, who: str = "", only_of: str | None = None
    ) -> tuple[ChangedWorkload | KaiwoError, ...]:
        """Change workloads in place; each keeps its age. While one runs, only its priority, time limit and estimate
        change. Returns for each one what it was and is, or the refusal."""

    async def checkpoint(self, name: str, at_s: int = 0, who: str = "", only_of: str | None = None) -> int:
        """Record that it saved its work; 0 or a future time means now. Returns the time of its last checkpoint."""

    async def progress(self, report: ProgressReport, who: str = "", only_of: str | None = None) -> None:
        """Take a report of running work; it counts from now on, and comes back as an event."""

    async def forget_ended(self, names: Sequence[str], who: str = "", only_of: str | None = None) -> None:
        """Drop the records of ended workloads."""


class NodeFault(NamedTuple):
    """What is wrong with a node."""

    reason: str = ""
    gpu: str = ""  # only this GPU; empty: the whole node
    is_unreachable: bool = False  # its pods may still run: nothing replaces them


class NodeControl(Protocol):
    async def cordon(self, name: str, cordoned: bool, reason: str = "", who: str = "") -> None:
        """Keep new pods off this node, or allow them again."""

    async def drain(self, name: str, reason: str = "", who: str = "") -> tuple[str, ...]:
        """Cordon the node and stop its pods, which wait again. Returns the evicted workloads."""

    async def fail(self, name: str, fault: NodeFault, who: str = "") -> None:
        """Treat a node, or one of its GPUs, as failed: a virtual one, for practice, or a real one that is known to be
        off. The scheduler then recovers the work on it."""

    async def restore(self, name: str, who: str = "") -> None:
        """The node and all its GPUs work again, as far as people know."""


class DeviceControl(Protocol):
    """Which devices nodes have, and which pods use them."""

    lists_devices: bool  # the cluster's own objects list each node's devices; agents report only their health

    async def change_devices(self, name: str, change: Callable[[Node], Node] | None) -> None:
        """Change a node's devices or their health. NotFoundError when there is no such node.

        Pods keep the devices that they hold: one that the node no longer has stays, unhealthy, until it is unused.
        Where the node's own definition lives elsewhere, `how` is applied on top of it until it is None.
        """

    def devices_in_use(self, name: str) -> frozenset[str]:
        """The devices of a node that pods hold, by the cluster's own ledger."""

    def run_of(self, workload: str, pod: str) -> PodRun:
        """How the machine identifies this pod."""

    async def correct_devices(self, node: str, pod: tuple[str, str], uid: str, devices: tuple[Share, ...]) -> None:
        """Record that a pod runs on other devices than it was given, as the agent of its node says."""

    async def set_counted(self, amounts: CountedAmounts) -> None:
        """Resources that plugins count: starts are checked against them, too."""

    async def set_holders(self, node: str, holders: Mapping[str, tuple[Share, ...]] | None) -> None:
        """Which pods hold which devices, by UID, as the agent of their node says; None: it does not say."""


class LogFiles(Protocol):
    """The output of processes, in files on this machine."""

    def logs_of(self, name: str, pod: str = "", submission: int = 0) -> Sequence[LogFile]:
        """The stored logs of a pod (default: the first pod), from the first attempt to the last."""


class PastWork(Protocol):
    """What is kept of work that has ended. `submission`: 0 means the latest of that name."""

    def submissions_of(self, name: str) -> Sequence[int]:
        """The numbers of the submissions of this name that are kept, the first one first."""

    def submission(self, name: str, number: int = 0) -> WorkloadRecord:
        """One submission of a name."""

    def attempts_of(self, name: str, submission: int = 0) -> Sequence[AttemptRecord]:
        """The attempts that are kept, the first one first."""


class Consoles(Protocol):
    """Interactive input of processes on this machine."""

    def console_of(self, name: str) -> str:
        """The folder with the socket that takes its input; empty: there is none now."""


class Confinement(Protocol):
    """Whether processes on this machine are held to the memory that they asked for."""

    promise: str  # why that is a promise and not a limit; empty: it is a limit
    remedy: str  # what makes it one


class SecretSealer(Protocol):
    """Encrypts the values of environment variables that are marked secret."""

    def seal(self, workload: str, values: Mapping[str, str]) -> dict[str, str]:
        """The values as they may be stored; only processes of this workload get them back."""

    def are_same(self, workload: str, sealed: Mapping[str, str], others: Mapping[str, str]) -> bool:
        """Whether two sets of sealed values hold the same plain ones."""


class VirtualTime(Protocol):
    """A clock that may run faster than wall time."""

    speed: float  # virtual seconds in a real one


class WallClock(Protocol):
    """A clock of this machine, which people may set while it is used."""

    async def follow_system_clock(self) -> int:
        """Set the cluster's clock as the system's clock was set, and move all its times with it: by how many seconds.

        Call it between two cycles, because a plan contains times. Unless it returns 0, the event `ClockMoved` follows,
        with all objects whose times moved; decide nothing before it has been applied.
        """


class MoveControl(Protocol):
    """The run of moves that people asked for. The scheduler carries it out, a few moves in each cycle."""

    def current(self) -> DefragmentationRun | None:
        """The last run, over or not."""

    async def start(self, run: DefragmentationRun, who: str = "") -> DefragmentationRun:
        """Store the run; RefusedError while another one is not over. Returns it as it was stored."""

    async def abort(self, who: str = "") -> DefragmentationRun:
        """Begin no more moves; those that were begun end. NotFoundError when nothing runs."""


class PodUse(NamedTuple):
    """What one running pod uses of its node. None: not known."""

    cpu_milli: int | None = None
    memory_mib: int | None = None


class PodUses(Protocol):
    """Measures the processors and the memory of running pods."""

    async def measure(self) -> Mapping[tuple[str, str], PodUse]:
        """By workload and pod, since the last call; pods of which nothing is known are left out."""


class PodResizer(Protocol):
    """Changes what a running pod asks of its node, without stopping it."""

    async def resize(self, workload: str, pod: str, amounts: PodUse, why: str) -> None:
        """RefusedError if the cluster does not allow it, or the pod is none that can be resized."""


class Sizing(Protocol):
    """Whoever sizes workloads puts a function here."""

    sized: Callable[[Workload, int], Workload]  # a workload that is about to wait, and the number of its submission


class Abilities(NamedTuple):
    work: WorkControl
    nodes: NodeControl
    devices: DeviceControl
    logs: LogFiles | None = None
    console: Consoles | None = None
    virtual_time: VirtualTime | None = None
    past: PastWork | None = None
    confinement: Confinement | None = None
    secrets: SecretSealer | None = None
    wall_clock: WallClock | None = None
    moves: MoveControl | None = None
    uses: PodUses | None = None
    resizer: PodResizer | None = None
    sizing: Sizing | None = None


class Cluster(Protocol):
    """What the scheduling loop, the overview and the API take."""

    kind: str  # local | simulated | kubernetes
    name: str

    on_write: Callable[[ClusterWrite], None]  # called with everything that the scheduler itself does here

    @property
    def abilities(self) -> Abilities:
        """What can be done here besides scheduling."""

    @property
    def is_virtual(self) -> bool:
        """Whether its nodes exist only in the simulation, with no real machine behind them."""

    @property
    def left_out(self) -> int:
        """How many of its objects could not be read since the start."""

    @property
    def failed_pods(self) -> int:
        """How many pods have failed since the start, where no records tell of it."""

    def now_s(self) -> int:
        """The cluster's clock in whole seconds: wall time, or virtual time."""

    def events(self) -> AsyncIterator[tuple[Event, ...]]:
        """The whole state as the first batch, then every change, in order, until `close`. One reader."""

    async def apply(self, plan: Plan) -> tuple[str, ...]:
        """Begin to carry out the plan. Returns at once, with the ids (`workload/pod`) of what was begun.

        Outcomes come back as events: a start becomes PodChanged(running), or PodGone and a WorkloadChanged with a
        back-off (`not_before_s`, `avoid_nodes`) when it was refused. Applying a start twice starts once.
        """

    def record(self, name: str) -> WorkloadRecord:
        """One workload, ended or not."""

    def records(self) -> Sequence[WorkloadRecord]:
        """Every workload that the cluster remembers."""

    def records_since(self, version: int) -> RecordChanges:
        """The workloads that changed after this version; -1: all of them."""

    async def close(self) -> None:
        """Stop watching. Running workloads continue."""
