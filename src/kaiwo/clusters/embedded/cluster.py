"""What `local` and `simulated` share: the `Cluster` protocol on top of an EmbeddedState.

Where a transaction is stored, and what runs outside, is up to the subclass.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from kaiwo.clusters.embedded import reservations, transitions
from kaiwo.clusters.embedded.admission import find_workload
from kaiwo.clusters.embedded.node_actions import EmbeddedDevices, EmbeddedNodes
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.embedded.user_actions import EmbeddedWork
from kaiwo.clusters.plan_checks import by_workload, eviction_sentence
from kaiwo.clusters.protocol import Abilities, RecordChanges
from kaiwo.model.errors import ClusterError
from kaiwo.model.events import Event
from kaiwo.model.plan import Plan
from kaiwo.model.workload_record import WorkloadRecord

T = TypeVar("T")
ENDED_KEPT = 5000


class EmbeddedCluster:
    kind = name = "embedded"
    left_out = 0

    def __init__(self, state: EmbeddedState, ended_kept: int = ENDED_KEPT) -> None:
        self.state = state
        self.ended_kept = ended_kept
        self.work, self.nodes, self.devices = EmbeddedWork(self), EmbeddedNodes(self), EmbeddedDevices(self)
        self._outbox: asyncio.Queue[tuple[Event, ...] | None] | None = None
        self._is_closed = False

    @property
    def abilities(self) -> Abilities:
        return Abilities(self.work, self.nodes, self.devices)

    def now_s(self) -> int:
        raise NotImplementedError

    async def start(self) -> None:
        """Get ready to run; `events` calls this too."""

    async def transact(self, act: Callable[[Transaction], T]) -> T:
        """Run one transaction: act on the state, store it, publish its events, and carry it out."""
        raise NotImplementedError

    def audit(self, who: str, verb: str, objects: Sequence[str]) -> None:
        """Record in the audit log what a person did; the default is to record nothing."""

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
            reservations.record_picked_devices(transaction, plan)
            expired.extend(reservations.expire(transaction, plan.expired))
            for name, evicted in by_workload(plan.evictions).items():
                if name in expired:
                    continue  # it was cancelled as a whole
                sentence = eviction_sentence(evicted[0])
                pods = transitions.evict(transaction, name, [each.pod for each in evicted], sentence)
                begun += [f"{name}/{pod}" for pod in pods]
            for name, started in by_workload(plan.starts).items():
                begun += [f"{name}/{pod}" for pod in transitions.start(transaction, name, started)]
            return tuple(begun)

        begun = await self.transact(act)
        self.audit("scheduler", "expire", expired)
        return begun

    def record(self, name: str) -> WorkloadRecord:
        return find_workload(self.state, name).record

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
        transitions.forget_oldest_ended(transaction, self.ended_kept)
        return result

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
