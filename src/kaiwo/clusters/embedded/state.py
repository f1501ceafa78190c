"""The state of an embedded cluster in memory, and transactions that change all of it or nothing.

Never reads a clock, writes a file, or does work for more than what changed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from kaiwo.clusters.embedded.array_slots import ArraySlots, uses_slot
from kaiwo.clusters.embedded.lifecycle import (
    PlacedRun,
    Run,
    TrackedWorkload,
    array_of,
    successful_run_s,
    with_workload,
)
from kaiwo.clusters.ledger import Ledger
from kaiwo.clusters.protocol import RecordChanges
from kaiwo.clusters.recent_changes import RecentChanges
from kaiwo.model.defragmentation import DefragmentationRun, StepProgress
from kaiwo.model.events import (
    DefragmentationChanged,
    DefragmentationStepChanged,
    Event,
    NodeChanged,
    NodeGone,
    NominationChanged,
    PlannedStartChanged,
    PodChanged,
    PodGone,
    QueueChanged,
    QueueGone,
    RecoveryChanged,
    ReservationChanged,
    ReservationGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import DEFAULT_QUEUE, Queue, implicit_default_queue
from kaiwo.model.recovery import Recovery
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import AttemptRecord, WorkloadRecord

T = TypeVar("T")
PodKey = tuple[str, str]  # workload, pod
SubmissionKey = tuple[str, int]  # workload, number of its submission
TABLES = (
    "nodes",
    "queues",
    "workloads",
    "earlier",
    "attempts",
    "pods",
    "runs",
    "nominations",
    "planned_starts",
    "recoveries",
    "reservations",
    "defragmentation",
    "move_steps",
)


class EmbeddedState:
    """All that a cluster stores. Change it only inside a `transaction`."""

    def __init__(self, *, runs_processes: bool = False, new_run_id: Callable[[], str] | None = None) -> None:
        numbers = count(1)
        self.runs_processes = runs_processes  # False: a command takes simulated time too
        self.new_run_id = new_run_id or (lambda: str(next(numbers)))
        self.why_no_runs = ""  # why no process can be started now; empty: any can
        self.version = 0
        self.nodes: dict[str, Node] = {}
        self.nodes_version = 0  # how often a node changed
        self.queues: dict[str, Queue] = {}
        self.workloads: dict[str, TrackedWorkload] = {}
        self.earlier: dict[SubmissionKey, TrackedWorkload] = {}  # ended work whose name was submitted again
        self.attempts: dict[tuple[str, int, int], AttemptRecord] = {}  # by workload, submission and attempt
        self.pods: dict[PodKey, PlacedRun] = {}
        self.runs: dict[str, Run] = {}  # runs that have a folder
        self.nominations: dict[str, tuple[Nomination, ...]] = {}  # by workload
        self.planned_starts: dict[str, PlannedStart] = {}  # by workload
        self.recoveries: dict[str, Recovery] = {}  # by workload: those under way
        self.reservations: dict[str, Reservation] = {}
        self.defragmentation: dict[str, DefragmentationRun] = {}  # the last one, by its name
        self.move_steps: dict[tuple[str, int], StepProgress] = {}  # of that run
        # Indexes of the tables above.
        self.records: dict[str, WorkloadRecord] = {}
        self.ledger = Ledger()
        self.pods_of: dict[str, dict[str, PlacedRun]] = {}  # by workload
        self.pods_on: dict[str, dict[PodKey, None]] = {}  # by node
        self.pod_of_run: dict[str, PodKey] = {}
        self.runs_of: dict[SubmissionKey, dict[str, Run]] = {}  # oldest first
        self.earlier_of: dict[str, dict[int, None]] = {}  # numbers of the earlier submissions, by workload
        self.dependents: dict[str, dict[str, None]] = {}  # by the workload that they wait for, also if it failed
        self.tasks_of: dict[str, dict[str, None]] = {}  # by array, as `array_of` names it
        self.array_slots = ArraySlots()
        # Sizes the next start of a submission of a workload; it must be quick, and must not raise.
        self.sized: Callable[[Workload, int], Workload] = lambda workload, _: workload
        self.living_count: dict[str, int] = {}  # by queue: workloads that need it
        self.children: dict[str, dict[str, None]] = {}  # by parent queue
        # Ended work in the order of its last end. All tasks of an array that were submitted together are one entry:
        # they are kept or forgotten as one.
        self.ended: dict[SubmissionKey, dict[SubmissionKey, None]] = {}
        self.ended_count = 0  # of workloads, not of entries
        self._recent = RecentChanges()
        self._committed = 0  # the version of the last committed transaction

    @contextmanager
    def transaction(self, now_s: int) -> Iterator["Transaction"]:
        """Changes that are rolled back when the block raises."""
        transaction = Transaction(self, now_s)
        self.version += 1
        try:
            yield transaction
        except BaseException:
            transaction.roll_back()
            self.version -= 1
            raise
        self._committed = self.version

    def load(self, rows: Mapping[str, Mapping[Any, Any]]) -> None:
        """Fill an empty state."""
        for table in TABLES:
            for key, value in rows[table].items():
                self.put(table, key, value)
        ends = {group: max(map(self.ended_s, members)) for group, members in self.ended.items()}
        self.ended = {group: self.ended[group] for group in sorted(ends, key=ends.__getitem__)}
        self.version = max((tracked.record.version for tracked in self.workloads.values()), default=0)
        self._committed = self.version
        self._recent.begin_at(self.version)

    def records_since(self, after: int) -> RecordChanges:
        """The workloads that changed since then. Any thread may call this, even during a transaction.

        Changes of an uncommitted transaction may be included; they are reported again after the commit.
        """
        committed, names = self._committed, self._recent.since(after)
        if names is None:
            return RecordChanges(committed, list(self.records.values()), (), is_all=True)
        found = {name: self.records.get(name) for name in names}
        return RecordChanges(
            committed,
            [record for record in found.values() if record is not None],
            [name for name, record in found.items() if record is None],
        )

    def submission(self, key: SubmissionKey) -> TrackedWorkload | None:
        """The latest submission of a name, or an earlier one that is kept."""
        current = self.workloads.get(key[0])
        return current if current is not None and current.record.submission == key[1] else self.earlier.get(key)

    def submissions_of(self, name: str) -> list[int]:
        """The numbers of all submissions of a name that are kept, the first one first."""
        current = self.workloads.get(name)
        return sorted([*self.earlier_of.get(name, ()), *([] if current is None else [current.record.submission])])

    def ended_s(self, key: SubmissionKey) -> int:
        tracked = self.submission(key)
        return 0 if tracked is None else tracked.record.ended_s

    def as_events(self) -> tuple[Event, ...]:
        events: list[Event] = [NodeChanged(node) for node in self.nodes.values()]
        events += [QueueChanged(queue) for queue in self.queues.values()]
        events += [ReservationChanged(reservation) for reservation in self.reservations.values()]
        events += [WorkloadChanged(tracked.workload) for tracked in self.workloads.values() if tracked.wants_pods]
        events += [PodChanged(placement.pod) for placement in self.pods.values()]
        events += [NominationChanged(nomination) for each in self.nominations.values() for nomination in each]
        events += [PlannedStartChanged(planned) for planned in self.planned_starts.values()]
        events += [RecoveryChanged(recovery) for recovery in self.recoveries.values()]
        events += [DefragmentationChanged(run) for run in self.defragmentation.values()]
        events += [DefragmentationStepChanged(step) for _, step in sorted(self.move_steps.items())]
        return tuple(events)

    def put(self, table: str, key: Any, value: Any) -> Any:
        """Set one value, or drop it with None; returns the one before. For `Transaction` and `load` only."""
        rows: dict[Any, Any] = getattr(self, table)
        before = rows.pop(key, None) if value is None else rows.get(key)
        if value is not None:
            rows[key] = value
        match table:
            case "workloads":
                self._index_workload(key, before, value)
            case "earlier":
                self._index_earlier(key, before, value)
            case "pods":
                self._index_pod(key, before, value)
            case "runs":
                self._index_run(before, value)
            case "nodes":
                self.nodes_version += 1
            case "queues":
                _move(self.children, key, before and before.parent, value and value.parent)
        return before

    def _index_workload(self, name: str, before: TrackedWorkload | None, after: TrackedWorkload | None) -> None:
        self._recent.note(name, self.version)
        if before is not None and before.needs_queue:
            self.living_count[before.workload.queue] -= 1
        if after is not None and after.needs_queue:
            queue = after.workload.queue
            self.living_count[queue] = self.living_count.get(queue, 0) + 1
        if after is None:
            self.records.pop(name, None)
        else:
            self.records[name] = after.record
        _move(self.tasks_of, name, _array(before), _array(after))
        self.array_slots.index(before, after)
        old, new = _waits_for(before), _waits_for(after)
        if old != new:
            for other in old:
                _drop(self.dependents, other, name)
            for other in new:
                self.dependents.setdefault(other, {})[name] = None
        was = _submission_key(before) if before is not None and before.is_over else None
        now = _submission_key(after) if after is not None and after.is_over else None
        if before is not None and was is not None and was != now and was not in self.earlier:
            self._drop_ended(before)
        if after is not None and now is not None and now != was:
            self._add_ended(after)

    def _index_earlier(self, key: SubmissionKey, before: TrackedWorkload | None, after: TrackedWorkload | None) -> None:
        name, number = key
        if after is not None:
            self.earlier_of.setdefault(name, {})[number] = None
            if key not in self.ended.get(_ended_group(after), ()):
                self._add_ended(after)
        elif before is not None:
            _drop(self.earlier_of, name, number)
            current = self.workloads.get(name)
            if current is None or current.record.submission != number or not current.is_over:
                self._drop_ended(before)

    def _add_ended(self, tracked: TrackedWorkload) -> None:
        group = _ended_group(tracked)
        members = self.ended.pop(group, {})
        self.ended_count += _submission_key(tracked) not in members
        members[_submission_key(tracked)] = None
        self.ended[group] = members

    def _drop_ended(self, tracked: TrackedWorkload) -> None:
        group, key = _ended_group(tracked), _submission_key(tracked)
        self.ended_count -= key in self.ended.get(group, ())
        _drop(self.ended, group, key)

    def _index_pod(self, key: PodKey, before: PlacedRun | None, after: PlacedRun | None) -> None:
        if before is not None:
            self.ledger.give_back(before.pod)
            _drop(self.pods_of, key[0], key[1])
            _drop(self.pods_on, before.pod.node, key)
            del self.pod_of_run[before.run.id]
        if after is not None:
            self.ledger.take(after.pod)
            self.pods_of.setdefault(key[0], {})[key[1]] = after
            self.pods_on.setdefault(after.pod.node, {})[key] = None
            self.pod_of_run[after.run.id] = key

    def _index_run(self, before: Run | None, after: Run | None) -> None:
        if before is not None:
            _drop(self.runs_of, (before.workload, before.submission), before.id)
        if after is not None:
            self.runs_of.setdefault((after.workload, after.submission), {})[after.id] = after


class Transaction:
    """One step of the state: the values before it, its events, and what to do once it is stored."""

    def __init__(self, state: EmbeddedState, now_s: int) -> None:
        self.state = state
        self.now_s = now_s
        self.events: list[Event] = []
        self.runs_to_start: list[PlacedRun] = []
        self.runs_to_stop: list[PlacedRun] = []
        self.runs_to_limit: list[PlacedRun] = []  # their workload's time limit has changed
        self.after_commit: list[Callable[[], None]] = []  # called on the event loop
        self.before: dict[tuple[str, Any], Any] = {}  # (table, key): the value before

    def changed_rows(self, table: str) -> Iterator[tuple[Any, Any]]:
        """What the transaction wrote to a table: key, and value or None."""
        rows = getattr(self.state, table)
        return ((key, rows.get(key)) for changed_table, key in self.before if changed_table == table)

    def roll_back(self) -> None:
        for (table, key), value in reversed(self.before.items()):
            self.state.put(table, key, value)

    def put_workload(self, tracked: TrackedWorkload) -> None:
        """Set a workload; the scheduler gets an event when that changes what it must do."""
        name = tracked.workload.name
        tracked = replace(tracked, record=replace(tracked.record, version=self.state.version))
        before: TrackedWorkload | None = self._put("workloads", name, tracked)
        did_want = before is not None and before.wants_pods
        if tracked.wants_pods:
            if before is None or not did_want or before.workload != tracked.workload:
                self.events.append(WorkloadChanged(tracked.workload))
        elif did_want:
            self.events.append(WorkloadGone(name, successful_run_s(tracked.record)))
            self.put_nominations(name, ())
            self.put_planned_start(name, None)
            put_recovery(self, name, None)
        self._pass_on_slot(before, tracked)

    def _pass_on_slot(self, before: TrackedWorkload | None, after: TrackedWorkload | None) -> None:
        """Let the next task of an array start in the slot that this one has left."""
        if before is None or not uses_slot(before) or uses_slot(after):
            return
        heir = self.state.array_slots.next_waiting(array_of(before.workload), self.state.workloads)
        if heir is not None:
            self.put_workload(with_workload(heir, array_slots=0))

    def drop_workload(self, name: str) -> None:
        self._pass_on_slot(self._put("workloads", name, None), None)
        self.put_nominations(name, ())
        self.put_planned_start(name, None)
        put_recovery(self, name, None)
        self.events.append(WorkloadGone(name))

    def put_earlier(self, tracked: TrackedWorkload) -> None:
        """Keep an ended workload under the number of its submission; its name may then be used again."""
        self._put("earlier", _submission_key(tracked), tracked)

    def drop_earlier(self, key: SubmissionKey) -> None:
        self._put("earlier", key, None)

    def put_attempt(self, key: SubmissionKey, attempt: AttemptRecord) -> None:
        self._put("attempts", (*key, attempt.number), attempt)

    def drop_attempt(self, key: SubmissionKey, number: int) -> None:
        if (*key, number) in self.state.attempts:
            self._put("attempts", (*key, number), None)

    def put_pod(self, placement: PlacedRun) -> None:
        pod = placement.pod
        self._put("pods", (pod.workload, pod.name), placement)
        self.events.append(PodChanged(pod))

    def drop_pod(self, workload: str, pod: str) -> None:
        self._put("pods", (workload, pod), None)
        self.events.append(PodGone(workload, pod))

    def put_node(self, node: Node) -> None:
        self._put("nodes", node.name, node)
        self.events.append(NodeChanged(node))

    def drop_node(self, name: str) -> None:
        self._put("nodes", name, None)
        self.events.append(NodeGone(name))

    def put_queue(self, queue: Queue) -> None:
        self._put("queues", queue.name, queue)
        self.events.append(QueueChanged(queue))
        self._update_default_queue()

    def drop_queue(self, name: str) -> None:
        self._put("queues", name, None)
        self.events.append(QueueGone(name))
        self._update_default_queue()

    def _update_default_queue(self) -> None:
        """As long as nobody has defined it, what it may have depends on whether there are others."""
        known, fitting = self.state.queues.get(DEFAULT_QUEUE), implicit_default_queue(self.state.queues)
        if known is not None and known.is_implicit and known != fitting:
            self.put_queue(fitting)

    def put_reservation(self, reservation: Reservation, is_known: bool = False) -> None:
        """Add or change a reservation. `is_known`: the scheduler decided it, so it needs no event."""
        self._put("reservations", reservation.name, reservation)
        if not is_known:
            self.events.append(ReservationChanged(reservation))

    def drop_reservation(self, name: str) -> None:
        self._put("reservations", name, None)
        self.events.append(ReservationGone(name))

    def put_planned_start(self, name: str, planned: PlannedStart | None) -> None:
        """Set a workload's planned start. The scheduler planned it, so it needs no event."""
        if planned != self.state.planned_starts.get(name):
            self._put("planned_starts", name, planned)

    def put_nominations(self, name: str, nominations: tuple[Nomination, ...]) -> None:
        """Set a workload's nominations. The scheduler decided them, so they need no event."""
        if nominations != self.state.nominations.get(name, ()):
            self._put("nominations", name, nominations or None)

    def put_run(self, run: Run) -> None:
        self._put("runs", run.id, run)

    def drop_run(self, run_id: str) -> None:
        """Forget a run; its folder is removed later."""
        self._put("runs", run_id, None)

    def _put(self, table: str, key: Any, value: Any) -> Any:
        before = self.state.put(table, key, value)
        self.before.setdefault((table, key), before)
        return before


def put_recovery(transaction: Transaction, name: str, recovery: Recovery | None) -> None:
    """Set a workload's recovery. The scheduler decided it, so it needs no event."""
    if recovery != transaction.state.recoveries.get(name):
        transaction._put("recoveries", name, recovery)


def put_defragmentation(transaction: Transaction, run: DefragmentationRun) -> None:
    transaction._put("defragmentation", run.name, run)


def drop_defragmentation(transaction: Transaction, name: str) -> None:
    """Forget a run with all its steps."""
    transaction._put("defragmentation", name, None)
    for key in [key for key in transaction.state.move_steps if key[0] == name]:
        transaction._put("move_steps", key, None)


def put_move_step(transaction: Transaction, step: StepProgress) -> None:
    transaction._put("move_steps", (step.run, step.number), step)


class TransactionRunner(Protocol):
    """What the actions of people and agents need from their cluster: it runs transactions on its state."""

    state: EmbeddedState

    async def transact(self, act: Callable[[Transaction], T]) -> T:
        """Run one transaction, store it and publish its events."""


def _submission_key(tracked: TrackedWorkload) -> SubmissionKey:
    return tracked.workload.name, tracked.record.submission


def _ended_group(tracked: TrackedWorkload) -> SubmissionKey:
    return array_of(tracked.workload) or tracked.workload.name, tracked.record.submission


def _array(tracked: TrackedWorkload | None) -> str:
    return "" if tracked is None else array_of(tracked.workload)


def _waits_for(tracked: TrackedWorkload | None) -> tuple[str, ...]:
    if tracked is None or tracked.is_over:
        return ()
    return (*tracked.workload.after, *tracked.workload.after_failed)


def _move(index: dict[str, dict[Any, None]], key: Any, before: str | None, after: str | None) -> None:
    if before != after:
        if before:
            _drop(index, before, key)
        if after:
            index.setdefault(after, {})[key] = None


def _drop(index: dict[Any, dict[Any, Any]], group: Any, key: Any) -> None:
    members = index.get(group)
    if members is not None:
        members.pop(key, None)
        if not members:
            del index[group]
