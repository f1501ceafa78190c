"""The state of a cluster that Kaiwo keeps itself, in memory, and changes to it that happen whole or not at all.

In:    values put and dropped inside a `Change`.   Out: the state with its indexes, the rows changed, the events.
Never: reads a clock, writes a file, or does work for more than what changed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import Life, Placement, Run, array_of, run_of
from kaiwo.clusters.ledger import Ledger
from kaiwo.clusters.protocol import News
from kaiwo.clusters.recent_changes import Recent
from kaiwo.model.events import (
    Event,
    NodeChanged,
    NodeGone,
    NominationChanged,
    PlannedStartChanged,
    PodChanged,
    PodGone,
    QueueChanged,
    QueueGone,
    ReservationChanged,
    ReservationGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload_record import WorkloadRecord

PodKey = tuple[str, str]  # workload, pod
TABLES = ("nodes", "queues", "lives", "pods", "runs", "kept", "promises", "reservations")


class EmbeddedState:
    """Everything a cluster keeps. Change it only through `changing`."""

    def __init__(self, *, runs_processes: bool = False, new_run_id: Callable[[], str] | None = None) -> None:
        numbers = count(1)
        self.runs_processes = runs_processes  # else work with a command takes simulated time too
        self.new_run_id = new_run_id or (lambda: str(next(numbers)))
        self.version = 0
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.lives: dict[str, Life] = {}
        self.pods: dict[PodKey, Placement] = {}
        self.runs: dict[str, Run] = {}  # those that left a folder behind
        self.kept: dict[str, tuple[Nomination, ...]] = {}  # by workload: the space kept for its pods
        self.promises: dict[str, PlannedStart] = {}  # by workload: its planned start
        self.reservations: dict[str, Reservation] = {}
        # Indexes, kept along with the above.
        self.records: dict[str, WorkloadRecord] = {}
        self.ledger = Ledger()
        self.pods_of: dict[str, dict[str, Placement]] = {}  # by workload
        self.pods_on: dict[str, dict[PodKey, None]] = {}  # by node
        self.pod_of_run: dict[str, PodKey] = {}
        self.runs_of: dict[str, dict[str, Run]] = {}  # by workload, oldest first
        self.dependents: dict[str, dict[str, None]] = {}  # by the workload they wait for, or waited for in vain
        self.tasks_of: dict[str, dict[str, None]] = {}  # by array, as `array_of` names it
        self.living_in: dict[str, int] = {}  # by queue, those that need it
        self.children: dict[str, dict[str, None]] = {}  # by parent queue
        self.ended: dict[str, None] = {}  # oldest first
        self._recent = Recent()
        self._settled = 0  # the version of the last change that was kept

    @contextmanager
    def changing(self, now_s: int) -> Iterator["Transaction"]:
        """A change that is undone when the block raises."""
        change = Transaction(self, now_s)
        self.version += 1
        try:
            yield change
        except BaseException:
            change.undo()
            self.version -= 1
            raise
        self._settled = self.version

    def load(self, rows: Mapping[str, Mapping[Any, Any]]) -> None:
        """Fill an empty world. Ended lives must come oldest first."""
        for table in TABLES:
            for key, value in rows[table].items():
                self.put(table, key, value)
        self.version = max((life.record.version for life in self.lives.values()), default=0)
        self._settled = self.version
        self._recent.begin_at(self.version)

    def news(self, after: int) -> News:
        """The workloads that changed since. Any thread may ask, also while another one makes a change.

        What a change has done before it is kept may be told too early; it is told again after that.
        """
        settled, names = self._settled, self._recent.since(after)
        if names is None:
            return News(settled, list(self.records.values()), (), is_all=True)
        found = {name: self.records.get(name) for name in names}
        return News(
            settled,
            [record for record in found.values() if record is not None],
            [name for name, record in found.items() if record is None],
        )

    def whole_state(self) -> tuple[Event, ...]:
        """The events that make an empty picture equal to this."""
        events: list[Event] = [NodeChanged(node) for node in self.nodes.values()]
        events += [QueueChanged(queue) for queue in self.queues.values()]
        events += [ReservationChanged(reservation) for reservation in self.reservations.values()]
        events += [WorkloadChanged(life.workload) for life in self.lives.values() if life.wants_pods]
        events += [PodChanged(placement.pod) for placement in self.pods.values()]
        events += [NominationChanged(nomination) for kept in self.kept.values() for nomination in kept]
        events += [PlannedStartChanged(promise) for promise in self.promises.values()]
        return tuple(events)

    def put(self, table: str, key: Any, value: Any) -> Any:
        """Set one value, or drop it with None; returns the one before. For `Change` and `load` only."""
        rows: dict[Any, Any] = getattr(self, table)
        before = rows.pop(key, None) if value is None else rows.get(key)
        if value is not None:
            rows[key] = value
        match table:
            case "lives":
                self._index_life(key, before, value)
            case "pods":
                self._index_pod(key, before, value)
            case "runs":
                self._index_run(before, value)
            case "queues":
                _move(self.children, key, before and before.parent, value and value.parent)
        return before

    def _index_life(self, name: str, before: Life | None, after: Life | None) -> None:
        self._recent.note(name, self.version)
        if before is not None and before.needs_queue:
            self.living_in[before.workload.queue] -= 1
        if after is not None and after.needs_queue:
            queue = after.workload.queue
            self.living_in[queue] = self.living_in.get(queue, 0) + 1
        if after is None:
            self.records.pop(name, None)
        else:
            self.records[name] = after.record
        _move(self.tasks_of, name, _array(before), _array(after))
        old, new = _waits_for(before), _waits_for(after)
        if old != new:
            for other in old:
                _drop(self.dependents, other, name)
            for other in new:
                self.dependents.setdefault(other, {})[name] = None
        if after is None or not after.is_over:
            self.ended.pop(name, None)
        elif before is None or not before.is_over:
            self.ended[name] = None

    def _index_pod(self, key: PodKey, before: Placement | None, after: Placement | None) -> None:
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
            _drop(self.runs_of, before.workload, before.id)
        if after is not None:
            self.runs_of.setdefault(after.workload, {})[after.id] = after


class Transaction:
    """One step of the world: what was before, what to tell, and what to do outside once it is kept."""

    def __init__(self, world: EmbeddedState, now_s: int) -> None:
        self.world = world
        self.now_s = now_s
        self.events: list[Event] = []
        self.begins: list[Placement] = []  # runs to begin
        self.stops: list[Placement] = []  # runs to stop
        self.afterwards: list[Callable[[], None]] = []  # on the event loop, once it is told
        self.before: dict[tuple[str, Any], Any] = {}  # (table, key): the value before the change

    def rows(self, table: str) -> Iterator[tuple[Any, Any]]:
        """What the change wrote to a table: key, and value or None."""
        rows = getattr(self.world, table)
        return ((key, rows.get(key)) for at, key in self.before if at == table)

    def undo(self) -> None:
        """Put everything back."""
        for (table, key), value in reversed(self.before.items()):
            self.world.put(table, key, value)

    def put_life(self, life: Life) -> None:
        """Keep a life, and tell the scheduler when that changes what it must do."""
        name = life.workload.name
        life = replace(life, record=replace(life.record, version=self.world.version))
        before: Life | None = self._put("lives", name, life)
        did_want = before is not None and before.wants_pods
        if life.wants_pods:
            if before is None or not did_want or before.workload != life.workload:
                self.events.append(WorkloadChanged(life.workload))
        elif did_want:
            self.events.append(WorkloadGone(name, run_of(life.record)))
            self.put_kept(name, ())
            self.put_promise(name, None)

    def drop_life(self, name: str) -> None:
        """Forget a workload."""
        self._put("lives", name, None)
        self.put_kept(name, ())
        self.put_promise(name, None)
        self.events.append(WorkloadGone(name))

    def put_pod(self, placement: Placement) -> None:
        """A pod holds a place, or its phase changed."""
        pod = placement.pod
        self._put("pods", (pod.workload, pod.name), placement)
        self.events.append(PodChanged(pod))

    def drop_pod(self, workload: str, pod: str) -> None:
        """A pod holds nothing any more."""
        self._put("pods", (workload, pod), None)
        self.events.append(PodGone(workload, pod))

    def put_node(self, node: Node) -> None:
        """A node is there, or is different now."""
        self._put("nodes", node.name, node)
        self.events.append(NodeChanged(node))

    def drop_node(self, name: str) -> None:
        """A node left."""
        self._put("nodes", name, None)
        self.events.append(NodeGone(name))

    def put_queue(self, queue: Queue) -> None:
        """A queue is there, or is different now."""
        self._put("queues", queue.name, queue)
        self.events.append(QueueChanged(queue))

    def drop_queue(self, name: str) -> None:
        """A queue was removed."""
        self._put("queues", name, None)
        self.events.append(QueueGone(name))

    def put_reservation(self, reservation: Reservation, is_known: bool = False) -> None:
        """GPUs are reserved, or reserved differently. `is_known`: whoever decided so knows it already."""
        self._put("reservations", reservation.name, reservation)
        if not is_known:
            self.events.append(ReservationChanged(reservation))

    def drop_reservation(self, name: str) -> None:
        """A reservation was removed."""
        self._put("reservations", name, None)
        self.events.append(ReservationGone(name))

    def put_promise(self, name: str, promise: PlannedStart | None) -> None:
        """The planned start of a workload. Whoever planned it knows it already: only a new reader is told."""
        if promise != self.world.promises.get(name):
            self._put("promises", name, promise)

    def put_kept(self, name: str, kept: tuple[Nomination, ...]) -> None:
        """The space that is kept for a workload. Whoever decided so knows it already: only a new reader is told."""
        if kept != self.world.kept.get(name, ()):
            self._put("kept", name, kept or None)

    def put_run(self, run: Run) -> None:
        """A run that leaves a folder behind."""
        self._put("runs", run.id, run)

    def drop_run(self, run_id: str) -> None:
        """A run whose folder is no longer wanted."""
        self._put("runs", run_id, None)

    def _put(self, table: str, key: Any, value: Any) -> Any:
        before = self.world.put(table, key, value)
        self.before.setdefault((table, key), before)
        return before


def _array(life: Life | None) -> str:
    return "" if life is None else array_of(life.workload)


def _waits_for(life: Life | None) -> tuple[str, ...]:
    if life is None or life.is_over:
        return ()
    return (*life.workload.after, *life.workload.after_failed)


def _move(index: dict[str, dict[Any, None]], key: Any, before: str | None, after: str | None) -> None:
    if before != after:
        if before:
            _drop(index, before, key)
        if after:
            index.setdefault(after, {})[key] = None


def _drop(index: dict[str, dict[Any, Any]], group: str, key: Any) -> None:
    members = index.get(group)
    if members is not None:
        members.pop(key, None)
        if not members:
            del index[group]
