"""What `local` and `simulated` share: the `Cluster` protocol on top of an EmbeddedState.

Where a transaction is stored, and what runs outside, is up to the subclass.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import TypeVar

from kaiwo.clusters.embedded import ended_work, reservations, transitions
from kaiwo.clusters.embedded.admission import find_submission, find_workload
from kaiwo.clusters.embedded.defragmentation import EmbeddedMoves, record_moves
from kaiwo.clusters.embedded.ended_work import DEFAULT_RETENTION, Retention
from kaiwo.clusters.embedded.node_actions import EmbeddedDevices, EmbeddedNodes, remember_bad_nodes
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.embedded.user_actions import EmbeddedWork
from kaiwo.clusters.plan_checks import by_workload, eviction_sentence, stops_only_named
from kaiwo.clusters.protocol import Abilities, RecordChanges
from kaiwo.model.cluster_write import ClusterWrite, ignore_write
from kaiwo.model.errors import ClusterError
from kaiwo.model.events import Event
from kaiwo.model.plan import Plan
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import AttemptRecord, WorkloadRecord

T = TypeVar("T")
FORGET_EVERY_S = 60  # of the cluster's time
SLICE = 200  # starts that are told to the audit before the event loop gets a turn
MAX_NAMED = 20  # pods of one workload that the audit names


class EmbeddedCluster:
    kind = name = "embedded"
    left_out = failed_pods = 0  # its records tell of failed attempts

    def __init__(self, state: EmbeddedState, retention: Retention = DEFAULT_RETENTION) -> None:
        self.state = state
        self.retention = retention
        self._next_forget_s = 0
        self.on_write: Callable[[ClusterWrite], None] = ignore_write
        self.work, self.nodes, self.devices = EmbeddedWork(self), EmbeddedNodes(self), EmbeddedDevices(self)
        self.moves = EmbeddedMoves(self)
        self._outbox: asyncio.Queue[tuple[Event, ...] | None] | None = None
        self._is_closed = False

    @property
    def abilities(self) -> Abilities:
        return Abilities(self.work, self.nodes, self.devices, past=self, moves=self.moves, sizing=self.state)

    def now_s(self) -> int:
        raise NotImplementedError

    async def start(self) -> None:
        """Get ready to run; `events` calls this too."""

    async def transact(self, act: Callable[[Transaction], T], is_acknowledged: bool = True) -> T:
        """Run one transaction: act on the state, store it, publish its events, and carry it out.

        Whoever acknowledges it to somebody waits until it survives a power cut; the scheduler's own need not.
        """
        raise NotImplementedError

    async def events(self) -> AsyncIterator[tuple[Event, ...]]:
        await self.start()
        outbox: asyncio.Queue[tuple[Event, ...] | None] = asyncio.Queue()

        def subscribe(transaction: Transaction) -> None:
            first_batch = transaction.state.as_events()
            transaction.after_commit.append(lambda: self._subscribe(outbox, first_batch))

        await self.transact(subscribe)
        while (batch := await outbox.get()) is not None:
            yield batch

    async def apply(self, plan: Plan) -> tuple[str, ...]:
        if plan.is_empty:
            return ()
        expired: list[str] = []

        def act(transaction: Transaction) -> tuple[str, ...]:
            begun: list[str] = []
            transitions.record_nominations(transaction, plan)
            transitions.record_planned_starts(transaction, plan)
            transitions.record_recoveries(transaction, plan)
            reservations.record_picked_devices(transaction, plan)
            record_moves(transaction, plan)
            remember_bad_nodes(transaction, plan.bad_nodes)
            expired.extend(reservations.expire(transaction, plan.expired))
            for name, evicted in by_workload(plan.evictions).items():
                if name in expired:
                    continue  # it was cancelled as a whole
                sentence = eviction_sentence(evicted[0], self._workload(evicted[0].beneficiary))
                stopped = [each.pod for each in evicted]
                pods = transitions.evict(transaction, name, stopped, sentence, stops_only_named(evicted))
                begun += [f"{name}/{pod}" for pod in pods]
            for name, started in by_workload(plan.starts).items():
                begun += [f"{name}/{pod}" for pod in transitions.start(transaction, name, started)]
            return tuple(begun)

        begun = await self.transact(act, is_acknowledged=False)
        await self._tell_writes(plan, frozenset(begun), expired)
        return begun

    def _workload(self, name: str) -> Workload | None:
        tracked = self.state.workloads.get(name)
        return None if tracked is None else tracked.workload

    async def _tell_writes(self, plan: Plan, begun: Collection[str], expired: Sequence[str]) -> None:
        """One write for each workload that was started or stopped; in slices, for a plan may start thousands."""
        for name in expired:
            self.on_write(ClusterWrite("expire", f"workload/{name}", "its allocation expired"))
        for name, evicted in by_workload(plan.evictions).items():
            pods = [each.pod for each in evicted if f"{name}/{each.pod}" in begun]
            if pods:
                sentence = eviction_sentence(evicted[0], self._workload(evicted[0].beneficiary))
                self.on_write(ClusterWrite("evict", f"workload/{name}", sentence, old=_few(pods)))
        for told, (name, started) in enumerate(by_workload(plan.starts).items(), 1):
            if told % SLICE == 0:
                await asyncio.sleep(0)
            places = [f"{each.pod} on {each.node}" for each in started if f"{name}/{each.pod}" in begun]
            if places:
                reason = "backfill before a planned start" if started[0].until_s else "its turn, and it fits"
                self.on_write(ClusterWrite("start", f"workload/{name}", reason, new=_few(places)))

    def record(self, name: str) -> WorkloadRecord:
        return find_workload(self.state, name).record

    def submissions_of(self, name: str) -> Sequence[int]:
        return self.state.submissions_of(find_workload(self.state, name).workload.name)

    def submission(self, name: str, number: int = 0) -> WorkloadRecord:
        return find_submission(self.state, name, number).record

    def attempts_of(self, name: str, submission: int = 0) -> Sequence[AttemptRecord]:
        found = find_submission(self.state, name, submission).record
        return ended_work.attempts_of(self.state, (name, found.submission))

    def records(self) -> Sequence[WorkloadRecord]:
        return list(self.state.records.values())

    def records_since(self, version: int) -> RecordChanges:
        return self.state.records_since(version)

    async def close(self) -> None:
        self._is_closed = True
        if self._outbox is not None:
            self._outbox.put_nowait(None)

    def _act(self, act: Callable[[Transaction], T], transaction: Transaction) -> T:
        if self._is_closed:
            raise ClusterError("the cluster is closed")
        result = act(transaction)
        self._forget_old(transaction)
        return result

    def _forget_old(self, transaction: Transaction) -> None:
        if transaction.now_s >= self._next_forget_s:
            is_more = ended_work.forget_old(transaction, self.retention, self.ended_bytes(), self.run_bytes)
            self._next_forget_s = transaction.now_s + (0 if is_more else FORGET_EVERY_S)

    def ended_bytes(self) -> int:
        """The size of what ended runs have left on disk."""
        return 0

    def run_bytes(self, run_id: str) -> int:
        """What one of them has left."""
        return 0

    def _publish(self, transaction: Transaction) -> None:
        """Publish the events of a transaction. Call it only once the transaction is stored."""
        if transaction.events and self._outbox is not None:
            self._outbox.put_nowait(tuple(transaction.events))
        for callback in transaction.after_commit:
            callback()

    def _subscribe(self, outbox: "asyncio.Queue[tuple[Event, ...] | None]", first_batch: tuple[Event, ...]) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(None)
        outbox.put_nowait(first_batch)
        self._outbox = outbox


def _few(names: Sequence[str]) -> list[str]:
    more = [f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return [*names[:MAX_NAMED], *more]
