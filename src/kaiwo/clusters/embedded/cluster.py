"""What `local` and `simulated` share: both protocols on top of a World that Kaiwo keeps itself.

In:    plans and people's wishes.   Out: changes of the world, made one at a time, and their events.
Never: decides. Where a change is kept, and what runs outside, is the subclass's business.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from kaiwo.clusters.embedded import reservations as reserving
from kaiwo.clusters.embedded import transitions, user_actions
from kaiwo.clusters.embedded import user_actions as batch
from kaiwo.clusters.embedded.admission import Item, check_node, find_life, find_node, is_same
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.ledger import in_use, keep_held
from kaiwo.clusters.plan_checks import by_workload, eviction_sentence
from kaiwo.clusters.protocol import LogFile, News
from kaiwo.model.errors import ClusterError, ConfigError, KaiwoError, NotFoundError, RefusedError
from kaiwo.model.events import Event
from kaiwo.model.gpu import Share
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload_record import WorkloadRecord

T = TypeVar("T")
ENDED_KEPT = 5000


class EmbeddedCluster:
    """A cluster whose whole state is a World."""

    kind = "embedded"

    def __init__(self, world: EmbeddedState, ended_kept: int = ENDED_KEPT) -> None:
        self.world = world
        self.ended_kept = ended_kept
        self._outbox: asyncio.Queue[tuple[Event, ...] | None] | None = None
        self._is_closed = False

    def now_s(self) -> int:
        """The cluster's clock in whole seconds."""
        raise NotImplementedError

    async def start(self) -> None:
        """Get ready; `events` does it too."""

    async def _make(self, act: Callable[[Transaction], T]) -> T:
        """Make one change: act on the world, keep it, tell it, and carry it out."""
        raise NotImplementedError

    def _audit(self, who: str, verb: str, objects: Sequence[str]) -> None:
        """Note what a person did."""

    # What the scheduler needs.

    async def events(self) -> AsyncIterator[tuple[Event, ...]]:
        """The whole state as the first batch, then every change, in order, until `close`. One reader."""
        await self.start()
        outbox: asyncio.Queue[tuple[Event, ...] | None] = asyncio.Queue()

        def subscribe(change: Transaction) -> None:
            state = change.world.whole_state()
            change.afterwards.append(lambda: self._begin_reader(outbox, state))

        await self._make(subscribe)
        while (batch := await outbox.get()) is not None:
            yield batch

    async def apply(self, plan: Plan) -> tuple[str, ...]:
        """Take the plan to the cluster. Returns the ids of what was begun (`workload/pod`) at once."""
        evictions = by_workload(plan.evictions)
        starts = by_workload(plan.starts)
        expired: list[str] = []
        if plan.is_empty:
            return ()

        def act(change: Transaction) -> tuple[str, ...]:
            begun: list[str] = []
            transitions.keep_space(change, plan)
            transitions.keep_promises(change, plan)
            reserving.keep_picked(change, plan)
            expired.extend(reserving.expire(change, plan.expired))
            for name, leaving in evictions.items():
                if name in expired:
                    continue  # all of it has been told to go, for good
                pods = transitions.evict(change, name, [each.pod for each in leaving], eviction_sentence(leaving[0]))
                begun += [f"{name}/{pod}" for pod in pods]
            for name, coming in starts.items():
                begun += [f"{name}/{pod}" for pod in transitions.start(change, name, coming)]
            return tuple(begun)

        begun = await self._make(act)
        self._audit("scheduler", "expire", expired)
        return begun

    async def close(self) -> None:
        """Stop watching. Running work goes on."""
        self._is_closed = True
        if self._outbox is not None:
            self._outbox.put_nowait(None)

    # What people do.

    async def put(
        self,
        queues: Sequence[Queue],
        items: Sequence[Item],
        who: str = "",
        dry_run: bool = False,
        reservations: Sequence[Reservation] = (),
    ) -> tuple[Queue | None, ...]:
        """Queues, reservations and work together, all or none. Returns the queues as they were before; None: new."""
        queues, items = list(queues), list(items)
        there = dict(self.world.reservations)

        def act(change: Transaction) -> tuple[Queue | None, ...]:
            before = tuple(change.world.queues.get(queue.name) for queue in queues)
            workloads = batch.put(change, queues, items)
            reserving.put(change, reservations)
            if dry_run:
                raise _DryRunError(before)
            batch.begin(change, workloads, items)
            return before

        try:
            before = await self._make(act)
        except _DryRunError as done:
            return done.before
        changed = [queue.name for queue, old in zip(queues, before, strict=True) if not is_same(queue, old)]
        self._audit(who, "put-queue", changed)
        new = [each.name for each in reservations if not reserving.is_same(each, there.get(each.name))]
        self._audit(who, "put-reservation", new)
        self._audit(who, "submit", [workload.name for workload, _ in items])
        return before

    async def remove(
        self, queues: Sequence[str], workloads: Sequence[str], who: str = "", reservations: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Queues, reservations and work together, all or none. Returns the workloads that are still stopping."""
        message = user_actions.cancelled(who)

        def act(change: Transaction) -> tuple[str, ...]:
            reserving.remove(change, reservations)
            return batch.remove(change, queues, workloads, message)

        stopping = await self._make(act)
        self._audit(who, "remove-reservation", reservations)
        self._audit(who, "remove", workloads)
        self._audit(who, "remove-queue", queues)
        return stopping

    def reservations(self) -> Sequence[Reservation]:
        """Every reservation that is kept, by name: also those that are over."""
        return [found for _, found in sorted(self.world.reservations.items())]

    async def submit(self, items: Sequence[Item], who: str = "") -> None:
        """All or none. A name that a living workload has is refused; that of an ended one is taken over."""
        await self.put((), items, who)

    async def cancel(self, name: str, who: str = "") -> None:
        """Stop its pods, then it is `cancelled`."""
        await self._steer_one("cancel", name, who)

    async def hold(self, name: str, who: str = "") -> None:
        """Keep a waiting workload from starting."""
        await self._steer_one("hold", name, who)

    async def release(self, name: str, who: str = "") -> None:
        """Undo `hold`."""
        await self._steer_one("release", name, who)

    async def requeue(self, name: str, who: str = "") -> None:
        """Stop it if it runs, then let it wait again; an ended one waits again with fresh retries."""
        await self._steer_one("requeue", name, who)

    async def steer(self, verb: str, names: Sequence[str], who: str = "") -> tuple[KaiwoError | None, ...]:
        """Cancel, hold, release or requeue many in one change; for each, why not, or None: it is done."""
        step = user_actions.STEPS[verb]

        def act(change: Transaction) -> tuple[KaiwoError | None, ...]:
            refusals: list[KaiwoError | None] = []
            for name in names:
                try:
                    step(change, name, who)
                    refusals.append(None)
                except (ConfigError, NotFoundError, RefusedError) as refusal:
                    refusals.append(refusal)
            return tuple(refusals)

        refusals = await self._make(act)
        self._audit(who, verb, [name for name, refusal in zip(names, refusals, strict=True) if refusal is None])
        return refusals

    async def checkpoint(self, name: str, at_s: int = 0, who: str = "") -> int:
        """It saved its work then; 0: now. Returns when it last did."""
        saved_s = await self._make(lambda change: user_actions.checkpoint(change, name, at_s))
        self._audit(who, "checkpoint", [name])
        return saved_s

    async def put_queue(self, queue: Queue, who: str = "") -> None:
        """Create or replace a queue."""
        await self.put((queue,), (), who)

    async def remove_queue(self, name: str, who: str = "") -> None:
        """Refused while living workloads or child queues name it; `default` stays."""
        await self.remove((name,), (), who)

    async def put_node(self, node: Node, who: str = "") -> None:
        """Create or replace a virtual node."""

        def act(change: Transaction) -> None:
            check_node(change.world, node)
            if change.world.nodes.get(node.name) != node:
                change.put_node(node)

        await self._make(act)
        self._audit(who, "put-node", [node.name])

    async def remove_node(self, name: str, who: str = "") -> None:
        """Take a virtual node away; its pods are lost and their workloads wait again."""

        def act(change: Transaction) -> None:
            find_node(change.world, name)
            change.drop_node(name)
            clear_node(change, name, f"its node {name} is gone")

        await self._make(act)
        self._audit(who, "remove-node", [name])

    async def change_devices(self, name: str, how: Callable[[Node], Node] | None) -> None:
        """Let the node show other devices, or other health of them; those in use stay."""

        def act(change: Transaction) -> None:
            node = find_node(change.world, name)
            after = node if how is None else keep_held(how(node), node, change.world.ledger.use_of(name))
            if after != node:
                change.put_node(after)

        await self._make(act)

    def devices_in_use(self, name: str) -> frozenset[str]:
        """Those that somebody holds."""
        return in_use(self.world.ledger.use_of(name))

    def run_of(self, workload: str, pod: str) -> tuple[str, str]:
        """The run's id; the grade is the subclass's business."""
        placement = self.world.pods.get((workload, pod))
        return ("" if placement is None else placement.run.id), ""

    async def correct_devices(self, pod: tuple[str, str], uid: str, devices: tuple[Share, ...]) -> None:
        """Nobody but Kaiwo itself hands out devices here."""
        raise RefusedError(f"{'/'.join(pod)} is no pod of a kubelet: this cluster hands out its devices itself")

    async def cordon(self, name: str, cordoned: bool, reason: str = "", who: str = "") -> None:
        """No new pods on this node, or again."""
        await self._make(lambda change: _cordon(change, name, cordoned, reason))
        self._audit(who, "cordon" if cordoned else "uncordon", [name])

    async def drain(self, name: str, reason: str = "", who: str = "") -> tuple[str, ...]:
        """Cordon it and stop its pods, which wait again. Returns the workloads that had to go."""

        def act(change: Transaction) -> tuple[str, ...]:
            _cordon(change, name, True, reason or "drained")
            return clear_node(change, name, f"its node {name} is drained")

        gone = await self._make(act)
        self._audit(who, "drain", [name])
        return gone

    async def forget_ended(self, names: Sequence[str], who: str = "") -> None:
        """Drop ended workloads from the store."""

        def act(change: Transaction) -> None:
            for name in names:
                if not find_life(change.world, name).is_over:
                    raise RefusedError(f"workload {name} has not ended; cancel it first")
            transitions.forget(change, dict.fromkeys(names))

        await self._make(act)
        self._audit(who, "forget", names)

    def record(self, name: str) -> WorkloadRecord:
        """One workload, living or ended."""
        return find_life(self.world, name).record

    def records(self) -> Sequence[WorkloadRecord]:
        """Every workload the cluster remembers: the living, and the ended that are kept."""
        return list(self.world.records.values())

    def news(self, after: int) -> News:
        """The workloads that changed since the version of the last news; -1: all of them."""
        return self.world.news(after)

    def log_path(self, name: str, pod: str = "") -> str:
        """The file its output goes to (of the first pod when none is named); empty when it has none."""
        logs = self.logs_of(name, pod)
        return logs[-1].path if logs else ""

    def logs_of(self, name: str, pod: str = "") -> Sequence[LogFile]:
        """What each attempt wrote that is still kept, the first one first (of the first pod when none is named)."""
        life = find_life(self.world, name)
        names = [each for each, _ in transitions.ordered_pods(life.workload)]
        if pod and pod not in names:
            raise NotFoundError(f"workload {name} has no pod {pod}; it has {', '.join(names[:5])}")
        return ()

    # Shared steps.

    def _act(self, act: Callable[[Transaction], T], change: Transaction) -> T:
        """What every change does inside its transaction."""
        if self._is_closed:
            raise ClusterError("the cluster is closed")
        result = act(change)
        transitions.trim(change, self.ended_kept)
        return result

    def _begin_reader(self, outbox: "asyncio.Queue[tuple[Event, ...] | None]", state: tuple[Event, ...]) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(None)
        outbox.put_nowait(state)
        self._outbox = outbox

    def _tell(self, events: Sequence[Event]) -> None:
        if events and self._outbox is not None:
            self._outbox.put_nowait(tuple(events))

    async def _steer_one(self, verb: str, name: str, who: str) -> None:
        (refusal,) = await self.steer(verb, (name,), who)
        if refusal is not None:
            raise refusal


class _DryRunError(Exception):
    """Raised inside a change so that it is undone."""

    def __init__(self, before: tuple[Queue | None, ...]) -> None:
        self.before = before


def clear_node(change: Transaction, name: str, message: str) -> tuple[str, ...]:
    """Stop every pod on a node. Returns the workloads that had to go."""
    leaving: dict[str, list[str]] = {}
    for workload, pod in list(change.world.pods_on.get(name, ())):
        leaving.setdefault(workload, []).append(pod)
    return tuple(workload for workload, pods in leaving.items() if transitions.evict(change, workload, pods, message))


def _cordon(change: Transaction, name: str, cordoned: bool, reason: str) -> None:
    node = find_node(change.world, name)
    after = replace(node, cordoned=cordoned, reason=reason if cordoned else "")
    if after != node:
        change.put_node(after)
