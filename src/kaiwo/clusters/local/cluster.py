"""The local cluster: an embedded cluster with its state in SQLite and its jobs as processes or in simulated time.

It survives `kill -9` at any moment: no event is published, and no run is started or stopped, before its transaction is
on disk. After a crash the stored starts and stops are carried out again.
"""

import asyncio
import contextlib
import heapq
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.admission import find_submission, find_workload
from kaiwo.clusters.embedded.cluster import EmbeddedCluster
from kaiwo.clusters.embedded.ended_work import DEFAULT_RETENTION, Retention
from kaiwo.clusters.embedded.lifecycle import PlacedRun, simulated_exit
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.local.cgroups import NO_CGROUPS, RunCgroups, RunUseMeter
from kaiwo.clusters.local.clock import Clock, SystemTime, ticks
from kaiwo.clusters.local.continue_clock import LONG_AWAY_S, continue_clock, describe_step, follow_clock
from kaiwo.clusters.local.continue_state import are_virtual, continue_state
from kaiwo.clusters.local.disk_space import DEFAULT_DISK_LIMITS, DiskLimits, why_disk_is_low
from kaiwo.clusters.local.group_commit import Committed, GroupCommit
from kaiwo.clusters.local.home_folder import Home
from kaiwo.clusters.local.processes import Processes, RunListener, ShareProvider
from kaiwo.clusters.local.run_folder import RunCondition, RunFolder
from kaiwo.clusters.local.run_sizes import RunSizes
from kaiwo.clusters.local.run_spec import first_pod, make_spec
from kaiwo.clusters.local.sqlite_store import Store
from kaiwo.clusters.local.state_file import back_up_in
from kaiwo.clusters.local.supervisor import boot_id
from kaiwo.clusters.protocol import Abilities, Cluster, LogFile
from kaiwo.clusters.secret_values import SecretValues
from kaiwo.model.errors import ClusterError, ConfigError, NotFoundError
from kaiwo.model.node import Node
from kaiwo.model.workload import Phase, ordered_pods

T = TypeVar("T")
GRACE_S = 10.0  # between SIGTERM and SIGKILL
BATCH = 200  # run events in one transaction
HEARTBEAT_S = 2.0
RETRY_S = 1.0
MAX_SPEED = 100_000
FIRST_BACKUP_S, BACKUP_EVERY_S = 60.0, 600.0

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
        retention: Retention = DEFAULT_RETENTION,
        ticks: Callable[[], float] = ticks,
        wall: Callable[[], float] = time.time,
        default_nodes: Callable[[], Sequence[Node]] | None = None,
        shares: ShareProvider | None = None,
        disk: DiskLimits = DEFAULT_DISK_LIMITS,
        cgroups: RunCgroups = NO_CGROUPS,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`nodes`: exactly these; None: those that the cluster had before, or `default_nodes` the first time.

        `report`: called with a line about once a second while a large state file is checked.
        """
        if not 0 < speed <= MAX_SPEED:
            raise ConfigError(f"--speed is {speed:g}; it must be above 0 and at most {MAX_SPEED:,}", "--speed")
        super().__init__(EmbeddedState(runs_processes=True, new_run_id=partial(secrets.token_hex, 6)), retention)
        self._is_virtual: tuple[int, bool] | None = None  # found at this version of the nodes
        self.grace_s = grace_s
        self.disk = disk
        self.home = Home(Path(home).resolve())
        try:
            self._store = Store(self.home.state, report)
            self.state.load(self._store.load())
            self._system_time = lambda: SystemTime(int(wall() * 1000), boot_id(), ticks())
            now = self._system_time()
            continued = continue_state(self._store, self.state, self.home, nodes, default_nodes, now)
            self._is_wall_time = speed == 1.0 and not self.is_virtual
            start, notices = continue_clock(self._store, self.state, continued.clock_ms, self._is_wall_time, now)
            self.notices = [*continued.notices, *notices]
            self.clock = Clock(start.ms, speed, ticks)
            if start.away_s >= LONG_AWAY_S:
                self._next_forget_s = self.clock.now_s() + LONG_AWAY_S
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
        self.cgroups = cgroups
        self._secrets = SecretValues(self.home.path)
        self._processes = Processes(self.home.runs, self._listener, shares, cgroups, self._secrets.unseal)
        self._uses = RunUseMeter(
            lambda run_id: RunFolder(self.home.runs / run_id).cgroup(),
            lambda: [placed for pods in self.state.pods_of.values() for placed in pods.values()],
        )
        self._ends: list[tuple[int, str]] = []  # of simulated runs: when, which
        self._run_events: list[RunEvent] = []
        self._discarded: list[str] = []  # runs whose folders must be removed
        self._sizes = RunSizes(self.home.runs, self.state.runs)
        self.faults = 0
        self._next_backup = time.monotonic() + FIRST_BACKUP_S
        self._backed_up_version = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._commits = GroupCommit(self._commit, self._store.sync, self._publish, self._carry_out)
        self._wake = asyncio.Event()
        self._has_discarded = asyncio.Event()

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            self.work,
            self.nodes,
            self.devices,
            logs=self,
            console=self,
            virtual_time=self.clock,
            past=self,
            moves=self.moves,
            uses=self._uses,
            sizing=self.state,
            confinement=self.cgroups,
            secrets=self._secrets,
            wall_clock=self if self._is_wall_time else None,
        )

    @property
    def is_virtual(self) -> bool:
        version = self.state.nodes_version
        if self._is_virtual is None or self._is_virtual[0] != version:  # every status asks for it
            self._is_virtual = (version, are_virtual(list(self.state.nodes.values())))
        return self._is_virtual[1]

    def now_s(self) -> int:
        return self.clock.now_s()

    async def follow_system_clock(self) -> int:
        now = self._system_time()
        step_s = self.clock.step_s(now.wall_ms)
        if not step_s:
            return 0

        def store() -> Transaction:
            return follow_clock(self._store, self.state, self.clock, step_s, now)

        def move(transaction: Transaction) -> None:
            """At once, so that no simulated run ends early or late. Real ones count their own seconds."""
            self.clock.move(step_s)
            self._ends = [(at_s + step_s, run_id) for at_s, run_id in self._ends]
            self._next_forget_s += step_s
            self._publish(transaction)

        await self._commits.write(store, move)
        self._wake.set()
        log.warning("%s", describe_step(step_s))
        return step_s

    async def start(self) -> None:
        """Continue where the last Kaiwo in this home folder stopped: find its processes, and finish what it began."""
        if self._tasks or self._is_closed:
            return
        self._tasks = [
            asyncio.create_task(self._process_run_events(), name="kaiwo-cluster"),
            asyncio.create_task(self._heartbeat(), name="kaiwo-heartbeat"),
        ]
        self.state.why_no_runs = why_disk_is_low(self.home.path, self.disk)
        for placement in list(self.state.pods.values()):
            self._run(placement)
        self._processes.remove_forgotten_cgroups()
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
        await self._commits.close()
        with contextlib.suppress(ClusterError):
            self._store.set_meta("clock_ms", str(self.clock.now_ms()))
        self._store.close()
        self.home.close()

    def logs_of(self, name: str, pod: str = "", submission: int = 0) -> Sequence[LogFile]:
        """The logs of a pod (default: the first that has one), the first attempt first."""
        record = find_submission(self.state, name, submission).record
        names = [each for each, _ in ordered_pods(record.workload)]
        if pod and pod not in names:
            raise NotFoundError(f"workload {name} has no pod {pod}; it has {', '.join(names[:5])}")
        runs = list(self.state.runs_of.get((name, record.submission), {}).values())
        for each in [pod] if pod else names:
            if mine := [run for run in runs if run.pod == each]:
                return [LogFile(run.attempt, str(self._folder(run.id).log), self._is_over(run.id)) for run in mine]
        return ()

    def console_of(self, name: str) -> str:
        """The folder with the socket that takes its input; empty: there is none now."""
        tracked = find_workload(self.state, name)
        placement = self.state.pods_of.get(name, {}).get(first_pod(tracked.workload))
        if placement is None or not placement.run.is_process or not tracked.record.program.is_interactive:
            return ""
        return str(self._folder(placement.run.id).path)

    async def transact(self, act: Callable[[Transaction], T], is_acknowledged: bool = True) -> T:
        await self.start()
        return await self._commits.run(act, is_acknowledged)

    def _commit(self, act: Callable[[Transaction], Any]) -> Committed:
        with self.state.transaction(self.now_s()) as transaction:
            result = self._act(act, transaction)
            self._store.save(transaction)
        return Committed(transaction, result)

    def _carry_out(self, transaction: Transaction) -> None:
        for placement in transaction.runs_to_start:
            if placement.run.is_process:
                self._sizes.add(placement.run.id)
            self._run(placement)
        for placement in transaction.runs_to_stop:
            self._processes.stop(placement.run.id)
        for placement in transaction.runs_to_limit:
            self._limit(placement)
        discarded = [run_id for run_id, run in transaction.changed_rows("runs") if run is None]
        if discarded:
            self._sizes.drop(discarded)
            self._discarded += discarded
            self._has_discarded.set()

    def _run(self, placement: PlacedRun) -> None:
        run, pod = placement.run, placement.pod
        if pod.phase is Phase.DONE:
            return
        if not run.is_process:
            # Its times may have moved since the start was stored.
            key = self.state.pod_of_run.get(run.id)
            heapq.heappush(self._ends, (self.state.pods[key].run.ends_s if key else run.ends_s, run.id))
            self._wake.set()
            return
        spec = make_spec(
            self.state,
            placement,
            self.home.path,
            grace_s=self.grace_s,
            log_bytes=self.disk.log_bytes,
            speed=self.clock.speed,
        )
        self._processes.run(run.id, spec, has_begun=pod.phase is Phase.RUNNING)
        if pod.phase is Phase.RELEASING:
            self._processes.stop(run.id)

    def _limit(self, placement: PlacedRun) -> None:
        """Its workload's time limit has changed."""
        if not placement.run.is_process:
            heapq.heappush(self._ends, (placement.run.ends_s, placement.run.id))
            self._wake.set()
        elif (tracked := self.state.workloads.get(placement.run.workload)) is not None:
            limit_s = tracked.workload.time_limit_s / self.clock.speed  # the supervisor has a real clock
            self._processes.set_time_limit(placement.run.id, limit_s)

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
            await self.transact(act, is_acknowledged=False)
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
            if key is not None and self.state.pods[key].run.ends_s <= now_s:  # or its time limit was raised
                self._listener.ended(run_id, simulated_exit(self.state.pods[key].run))

    async def _heartbeat(self) -> None:
        self._discarded += await asyncio.to_thread(self._stray_folders)
        while True:
            self.state.why_no_runs = why_disk_is_low(self.home.path, self.disk)
            with contextlib.suppress(ClusterError):  # the disk is full: the clock stops until it can be stored
                await self._commits.write(self._store_time)
                if self._store.wants_checkpoint():
                    await asyncio.to_thread(self._store.checkpoint)
                await self._back_up_when_due()
            if ended := self._sizes.waiting(self._is_over):
                self._sizes.keep(await asyncio.to_thread(self._sizes.measure, ended))
            if self.now_s() >= self._next_forget_s:
                with contextlib.suppress(ClusterError):
                    await self.transact(lambda transaction: None)
            discarded, self._discarded = self._discarded, []
            if discarded:
                await asyncio.to_thread(self._remove_folders, discarded)
            self._processes.check_shares(is_first=False)
            self._has_discarded.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._has_discarded.wait()

    def ended_bytes(self) -> int:
        return self._sizes.total

    def run_bytes(self, run_id: str) -> int:
        return self._sizes.of(run_id)

    async def _back_up_when_due(self) -> None:
        """Every ten minutes, if anything has changed; a large file less often, so that it costs little."""
        if time.monotonic() < self._next_backup or self.state.version == self._backed_up_version:
            return
        began, version = time.monotonic(), self.state.version
        try:
            await asyncio.to_thread(back_up_in, self.home.path)
            self._backed_up_version = version
        except ClusterError as error:
            log.error("the automatic backup failed: %s", error)
        now = time.monotonic()
        self._next_backup = now + max(BACKUP_EVERY_S, 20 * (now - began))

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
            self._folder(run_id).remove()


if TYPE_CHECKING:
    _: type[Cluster] = LocalCluster
