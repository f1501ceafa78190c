"""The local cluster: an embedded cluster with its state in SQLite and its jobs as processes or in simulated time.

It survives `kill -9` at any moment: no event is published, and no run is started or stopped, before its transaction is
on disk. After a crash the stored starts and stops are carried out again.
"""

import asyncio
import contextlib
import heapq
import logging
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.admission import find_workload
from kaiwo.clusters.embedded.cluster import ENDED_KEPT, EmbeddedCluster
from kaiwo.clusters.embedded.lifecycle import PlacedRun, simulated_exit
from kaiwo.clusters.embedded.node_actions import evict_all_pods
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.local.clock import Clock, first_time_ms, ticks
from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.clusters.local.home_folder import Home
from kaiwo.clusters.local.process_environment import environment
from kaiwo.clusters.local.processes import Processes, RunListener, ShareProvider
from kaiwo.clusters.local.run_folder import RunCondition, RunFolder, RunSpec
from kaiwo.clusters.local.sqlite_store import Store
from kaiwo.clusters.protocol import Abilities, Cluster, LogFile
from kaiwo.model.errors import ClusterError, ConfigError, NotFoundError
from kaiwo.model.gpu import Gpu, with_health_of
from kaiwo.model.node import Node
from kaiwo.model.queue import DEFAULT_QUEUE, UNBOUNDED_DEFAULT_QUEUE
from kaiwo.model.workload import Phase, Workload, ordered_pods, request_of

T = TypeVar("T")
GRACE_S = 10.0  # between SIGTERM and SIGKILL
BATCH = 200  # run events in one transaction
HEARTBEAT_S = 2.0
RETRY_S = 1.0
MAX_SPEED = 100_000

log = logging.getLogger(__name__)
RunEvent = Callable[[Transaction], None]


class LocalCluster(EmbeddedCluster):
    """One per home folder and process. Call `start` or read `events` on the event loop that it should use."""

    kind = name = "local"

    def __init__(
        self,
        home: Path | str,
        nodes: Sequence[Node] | None = None,
        *,
        speed: float = 1.0,
        grace_s: float = GRACE_S,
        ended_kept: int = ENDED_KEPT,
        ticks: Callable[[], float] = ticks,
        default_nodes: Callable[[], Sequence[Node]] | None = None,
        shares: ShareProvider | None = None,
    ) -> None:
        """`nodes`: exactly these; None: those that the cluster had before, or `default_nodes` the first time."""
        if not 0 < speed <= MAX_SPEED:
            raise ConfigError(f"--speed is {speed:g}; it must be above 0 and at most {MAX_SPEED:,}", "--speed")
        super().__init__(EmbeddedState(runs_processes=True, new_run_id=partial(secrets.token_hex, 6)), ended_kept)
        self.grace_s = grace_s
        self.home = Home(Path(home).resolve())
        try:
            self._store = Store(self.home.state)
            self.state.load(self._store.load())
            stored_ms = self._store.meta("clock_ms")
            with self.state.transaction(first_time_ms(stored_ms, False) // 1000) as transaction:
                _set_up_nodes(transaction, nodes, default_nodes)
                self._store.save(transaction)
            is_wall_time = speed == 1.0 and not self.is_virtual
            self.clock = Clock(first_time_ms(stored_ms, is_wall_time), speed, ticks)
            self._store_time()
        except BaseException:
            self.home.close()
            raise
        shares = None if self.is_virtual else shares
        if shares is not None:
            self.devices.grade_of = shares.grade_of
        self._listener = RunListener(
            started=self._reporting(transitions.run_started),
            overdue=self._reporting(transitions.run_overdue),
            ended=self._reporting(transitions.run_ended),
            refused=self._reporting(transitions.run_refused),
        )
        self._processes = Processes(self.home.runs, self._listener, shares)
        self._ends: list[tuple[int, str]] = []  # of simulated runs: when, which
        self._run_events: list[RunEvent] = []
        self._discarded: list[str] = []  # runs whose folders must be removed
        self.faults = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._writing = asyncio.Lock()
        self._writer = ThreadPoolExecutor(1, "kaiwo-store")
        self._wake = asyncio.Event()
        self._has_discarded = asyncio.Event()

    @property
    def abilities(self) -> Abilities:
        return Abilities(self.work, self.nodes, self.devices, logs=self, console=self, virtual_time=self.clock)

    @property
    def is_virtual(self) -> bool:
        return are_virtual(list(self.state.nodes.values()))

    def now_s(self) -> int:
        return self.clock.now_s()

    async def start(self) -> None:
        """Continue where the last Kaiwo in this home folder stopped: find its processes, and finish what it began."""
        if self._tasks or self._is_closed:
            return
        self._tasks = [
            asyncio.create_task(self._process_run_events(), name="kaiwo-cluster"),
            asyncio.create_task(self._heartbeat(), name="kaiwo-heartbeat"),
        ]
        for placement in list(self.state.pods.values()):
            self._run(placement)
        self._processes.check_shares(is_first=True)

    async def close(self) -> None:
        """Stop watching. Running work continues; virtual time stops."""
        if self._is_closed:
            return
        await super().close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._processes.close()
        async with self._writing:
            await asyncio.to_thread(self._writer.shutdown)  # a heartbeat that was cut short may still be writing
            with contextlib.suppress(ClusterError):
                self._store.set_meta("clock_ms", str(self.clock.now_ms()))
            self._store.close()
        self.home.close()

    def logs_of(self, name: str, pod: str = "") -> Sequence[LogFile]:
        """The logs of a pod (default: the first that has one), the first attempt first."""
        names = [each for each, _ in ordered_pods(find_workload(self.state, name).workload)]
        if pod and pod not in names:
            raise NotFoundError(f"workload {name} has no pod {pod}; it has {', '.join(names[:5])}")
        runs = list(self.state.runs_of.get(name, {}).values())
        for each in [pod] if pod else names:
            if mine := [run for run in runs if run.pod == each]:
                return [LogFile(run.attempt, str(self._folder(run.id).log), self._is_over(run.id)) for run in mine]
        return ()

    def console_of(self, name: str) -> str:
        """The folder with the socket that takes its input; empty: there is none now."""
        tracked = find_workload(self.state, name)
        placement = self.state.pods_of.get(name, {}).get(_first_pod(tracked.workload))
        if placement is None or not placement.run.is_process or not tracked.record.program.is_interactive:
            return ""
        return str(self._folder(placement.run.id).path)

    async def transact(self, act: Callable[[Transaction], T]) -> T:
        await self.start()
        # When a caller gives up, the next transaction must still wait until the thread has written this one.
        return await asyncio.shield(asyncio.create_task(self._transact(act)))

    async def _transact(self, act: Callable[[Transaction], T]) -> T:
        async with self._writing:
            transaction, result = await self._write(self._commit, act)
            self._publish(transaction)
            self._carry_out(transaction)
            return result

    async def _write(self, work: Callable[..., T], *arguments: Any) -> T:
        """On a separate thread: SQLite releases the interpreter lock at every statement, and on the event loop each
        would wait until the other threads release it again, up to 150 ms for one small transaction."""
        if self._is_closed:
            raise ClusterError("the cluster is closed")
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *arguments)

    def _commit(self, act: Callable[[Transaction], T]) -> tuple[Transaction, T]:
        with self.state.transaction(self.now_s()) as transaction:
            result = self._act(act, transaction)
            self._store.save(transaction)
        return transaction, result

    def _carry_out(self, transaction: Transaction) -> None:
        for placement in transaction.runs_to_start:
            self._run(placement)
        for placement in transaction.runs_to_stop:
            self._processes.stop(placement.run.id)
        discarded = [run_id for run_id, run in transaction.changed_rows("runs") if run is None]
        if discarded:
            self._discarded += discarded
            self._has_discarded.set()

    def audit(self, who: str, verb: str, objects: Sequence[str]) -> None:
        if not objects:
            return
        try:
            self.home.audit(who, verb, objects)
        except OSError as error:  # the change is made: a full disk must not make it look refused
            log.error("the audit log cannot be written: %s", error)

    def _run(self, placement: PlacedRun) -> None:
        run, pod = placement.run, placement.pod
        if pod.phase is Phase.DONE:
            return
        if not run.is_process:
            heapq.heappush(self._ends, (run.ends_s, run.id))
            self._wake.set()
            return
        self._processes.run(run.id, self._spec(placement), has_begun=pod.phase is Phase.RUNNING)
        if pod.phase is Phase.RELEASING:
            self._processes.stop(run.id)

    def _spec(self, placement: PlacedRun) -> RunSpec:
        record = self.state.workloads[placement.run.workload].record
        request = request_of(record.workload, placement.run.pod)
        folder, node = self.home.runs / placement.run.id, self.state.nodes.get(placement.pod.node)
        return RunSpec(
            command=record.program.command,
            env=environment(record, placement, node, str(folder), str(self.home.path)),
            workdir=record.program.workdir or str(folder / "work"),
            log=str(folder / "log"),
            time_limit_s=record.workload.time_limit_s / self.clock.speed,  # the supervisor has a real clock
            grace_s=self.grace_s,
            workload=placement.run.workload,
            pod=placement.run.pod,
            devices=placement.pod.devices,
            isolation=request.isolation,
            least_grade=request.least_grade,
            console=record.program.is_interactive and placement.run.pod == _first_pod(record.workload),
        )

    def _reporting(self, transition: Callable[..., None]) -> Callable[..., None]:
        """A callback that puts the transition on the list of run events."""

        def report(*arguments: Any) -> None:
            self._run_events.append(lambda transaction: transition(transaction, *arguments))
            self._wake.set()

        return report

    async def _process_run_events(self) -> None:
        """Turn run events, and simulated runs that are due, into transactions; sleep until there are more."""
        while True:
            self._wake.clear()
            self._end_due_runs()
            if self._run_events:
                await self._process_batch(self._run_events[:BATCH])
                continue
            due_s = max(self.clock.real_s_until(self._ends[0][0]), 0.001) if self._ends else None
            # Not `wait_for`: when the event is set in the same turn, Python 3.11's swallows a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(due_s):
                    await self._wake.wait()

    async def _process_batch(self, batch: list[RunEvent]) -> None:
        def act(transaction: Transaction) -> None:
            for event in batch:
                event(transaction)

        try:
            await self.transact(act)
        except ClusterError as error:
            # For example, the disk is full. The events stay at the head of the list and are tried again.
            log.error("run events cannot be stored yet: %s", error)
            await asyncio.sleep(RETRY_S)
        except Exception:
            # One faulty event must not stop all others; alone it is dropped, and a restart repairs its run.
            self.faults += 1
            log.exception("a run event failed")
            if len(batch) > 1:
                for event in batch:
                    await self._process_batch([event])
            else:
                self._run_events.remove(batch[0])
        else:
            del self._run_events[: len(batch)]

    def _end_due_runs(self) -> None:
        now_s = self.now_s()
        while self._ends and self._ends[0][0] <= now_s:
            _, run_id = heapq.heappop(self._ends)
            key = self.state.pod_of_run.get(run_id)
            if key is not None:
                self._listener.ended(run_id, simulated_exit(self.state.pods[key].run))

    async def _heartbeat(self) -> None:
        self._discarded += await asyncio.to_thread(self._stray_folders)
        while True:
            with contextlib.suppress(ClusterError):  # the disk is full: the clock stops until it can be stored
                async with self._writing:
                    await self._write(self._store_time)
                if self._store.wants_checkpoint():
                    await asyncio.to_thread(self._store.checkpoint)
            discarded, self._discarded = self._discarded, []
            if discarded:
                await asyncio.to_thread(self._remove_folders, discarded)
            self._processes.check_shares(is_first=False)
            self._has_discarded.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._has_discarded.wait()

    def _store_time(self) -> None:
        limit_ms = self.clock.next_limit_ms()
        self._store.set_meta("clock_ms", str(limit_ms))
        self.clock.set_limit(limit_ms)

    def _folder(self, run_id: str) -> RunFolder:
        return RunFolder(self.home.runs / run_id)

    def _is_over(self, run_id: str) -> bool:
        key = self.state.pod_of_run.get(run_id)
        return key is None or self.state.pods[key].pod.phase is Phase.DONE

    def _stray_folders(self) -> list[str]:
        """Folders that a crash left behind after their runs were forgotten."""
        found = [path.name for path in self.home.runs.iterdir() if path.name not in self.state.runs]
        return [name for name in found if self._folder(name).condition() is not RunCondition.RUNNING]

    def _remove_folders(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            shutil.rmtree(self.home.runs / run_id, ignore_errors=True)


def are_virtual(nodes: Iterable[Node]) -> bool:
    return all(VIRTUAL_LABEL in node.labels for node in nodes)


def _set_up_nodes(
    transaction: Transaction, nodes: Sequence[Node] | None, find_nodes: Callable[[], Sequence[Node]] | None
) -> None:
    """Create the default queue and the nodes. A real machine stays a node even when its driver does not answer."""
    if DEFAULT_QUEUE not in transaction.state.queues:
        transaction.put_queue(UNBOUNDED_DEFAULT_QUEUE)
    existing = transaction.state.nodes.values()
    if nodes is None and find_nodes is not None and not (existing and are_virtual(existing)):
        found = find_nodes()
        nodes = None if existing and are_virtual(found) else found  # a real machine may have changed
    if nodes is not None:
        _replace_nodes(transaction, nodes)


def _replace_nodes(transaction: Transaction, nodes: Sequence[Node]) -> None:
    """Pods whose node or devices are gone are evicted, and wait again. A node that was cordoned stays cordoned."""
    state = transaction.state
    for name in sorted(set(state.nodes) - {node.name for node in nodes}):
        transaction.drop_node(name)
        evict_all_pods(transaction, name, f"its node {name} is gone")
    for node in nodes:
        before = state.nodes.get(node.name)
        if before is not None:
            node = replace(node, cordoned=before.cordoned, reason=before.reason, gpus=_keep_unhealthy(before, node))
            if why := overcommit(node, state.ledger.usage_of(node.name)):
                evict_all_pods(transaction, node.name, why)
        if node != before:
            transaction.put_node(node)


def _keep_unhealthy(before: Node, node: Node) -> tuple[Gpu, ...]:
    """A device that was unhealthy before the restart stays unhealthy until its agent reports otherwise."""
    unhealthy = {gpu.id: gpu for gpu in before.gpus if not gpu.healthy}
    return tuple(with_health_of(unhealthy[gpu.id], gpu) if gpu.id in unhealthy else gpu for gpu in node.gpus)


def _first_pod(workload: Workload) -> str:
    return ordered_pods(workload)[0][0]


if TYPE_CHECKING:
    _: type[Cluster] = LocalCluster
