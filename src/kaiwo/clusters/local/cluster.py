"""The embedded cluster: state in SQLite, jobs as local processes or in simulated time.

In:    a home folder, nodes, a speed.   Out: a `Cluster` and a `Work` that survive `kill -9` at any moment.
Never: tells an event before the change is on disk, or acts on one that is not: stops and starts are kept first, and
       after a crash they are carried out again from what was kept.
"""

import asyncio
import contextlib
import heapq
import logging
import secrets
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.admission import find_life
from kaiwo.clusters.embedded.cluster import ENDED_KEPT, EmbeddedCluster
from kaiwo.clusters.embedded.lifecycle import Exit, Placement, simulated_exit
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.local.clock import Clock, first_time_ms, ticks
from kaiwo.clusters.local.home_folder import Home
from kaiwo.clusters.local.initial_nodes import are_virtual, seed
from kaiwo.clusters.local.process_environment import environment
from kaiwo.clusters.local.processes import Processes, Tell
from kaiwo.clusters.local.run_folder import Condition, RunFolder, RunSpec
from kaiwo.clusters.local.share_provider import Shares
from kaiwo.clusters.local.sqlite_store import Store
from kaiwo.clusters.protocol import LogFile
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.model.node import Node
from kaiwo.model.workload import Phase, Workload

T = TypeVar("T")
GRACE_S = 10.0  # between SIGTERM and SIGKILL
BATCH = 200  # what happened at once, in one change
HEARTBEAT_S = 2.0
TROUBLE_S = 1.0
MOST_SPEED = 100_000

log = logging.getLogger(__name__)
Happening = Callable[[Transaction], None]


class LocalCluster(EmbeddedCluster):
    """One per home folder and per process. Make it, then `start` or read `events` on the loop where it shall live."""

    kind = "local"

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
        shares: Shares | None = None,
    ) -> None:
        """`nodes`: the cluster has these and no others; None: those it had, or `default_nodes` the first time."""
        if not 0 < speed <= MOST_SPEED:
            raise ConfigError(f"--speed is {speed:g}; it must be above 0 and at most {MOST_SPEED:,}", "--speed")
        super().__init__(EmbeddedState(runs_processes=True, new_run_id=_run_id), ended_kept)
        self.grace_s = grace_s
        self.home = Home(Path(home).resolve())
        try:
            self._store = Store(self.home.state)
            self.world.load(self._store.load())
            kept_ms = self._store.meta("clock_ms")
            with self.world.changing(first_time_ms(kept_ms, False) // 1000) as change:
                seed(change, nodes, default_nodes)
                self._store.save(change)
            is_wall_time = speed == 1.0 and not self.is_virtual
            self.clock = Clock(first_time_ms(kept_ms, is_wall_time), speed, ticks)
            self._keep_time()
        except BaseException:
            self.home.close()
            raise
        real = self._shares = None if self.is_virtual else shares
        tell = Tell(self._run_started, self._run_overdue, self._run_ended, self._run_refused)
        self._processes = Processes(self.home.runs, tell, real)
        self._ends: list[tuple[int, str]] = []  # of simulated runs: when, which
        self._happened: list[Happening] = []
        self._discarded: list[str] = []  # runs whose folders shall go
        self.faults = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._writing = asyncio.Lock()
        self._writer = ThreadPoolExecutor(1, "kaiwo-store")
        self._wake = asyncio.Event()
        self._tidy = asyncio.Event()

    @property
    def is_virtual(self) -> bool:
        """The nodes are made up."""
        return are_virtual(list(self.world.nodes.values()))

    @property
    def speed(self) -> float:
        """Virtual seconds in a real one."""
        return self.clock.speed

    def now_s(self) -> int:
        """The cluster's time."""
        return self.clock.now_s()

    async def start(self) -> None:
        """Go on where the last Kaiwo of this home was stopped: find its processes, finish what it had begun."""
        if self._tasks or self._is_closed:
            return
        self._tasks = [
            asyncio.create_task(self._work_off(), name="kaiwo-cluster"),
            asyncio.create_task(self._beat(), name="kaiwo-heartbeat"),
        ]
        for placement in list(self.world.pods.values()):
            self._take_up(placement)
        self._processes.look_after_shares(is_first=True)

    async def close(self) -> None:
        """Stop watching. Running work goes on; virtual time stands still."""
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
        """What each attempt wrote that is still kept, the first one first."""
        super().logs_of(name, pod)
        runs = list(self.world.runs_of.get(name, {}).values())
        pods = [pod] if pod else [each for each, _ in transitions.ordered_pods(self.world.lives[name].workload)]
        for each in pods:
            if mine := [run for run in runs if run.pod == each]:
                return [LogFile(run.attempt, str(self._folder(run.id).log), self._is_over(run.id)) for run in mine]
        return ()

    def console_of(self, name: str) -> str:
        """The folder with the socket at which its input is taken; empty: there is none now."""
        life = find_life(self.world, name)
        placement = self.world.pods_of.get(name, {}).get(self._first_pod(life.workload))
        if placement is None or not placement.run.is_process or not life.record.program.is_interactive:
            return ""
        return str(self._folder(placement.run.id).path)

    def run_of(self, workload: str, pod: str) -> tuple[str, str]:
        """The run's id, and the grade of what it was given."""
        run_id, _ = super().run_of(workload, pod)
        return run_id, self._shares.grade_of(run_id) if self._shares is not None and run_id else ""

    # Making changes.

    async def _make(self, act: Callable[[Transaction], T]) -> T:
        await self.start()
        # A caller that gives up must not let the next change in while the thread still writes.
        return await asyncio.shield(asyncio.create_task(self._make_on_thread(act)))

    async def _make_on_thread(self, act: Callable[[Transaction], T]) -> T:
        async with self._writing:
            return self._finish(*await self._write(self._change, act))

    async def _write(self, work: Callable[..., T], *arguments: Any) -> T:
        """On a thread of its own. SQLite lets go of the interpreter at every statement; on the event loop each of them
        would wait until the other threads let go of it again, up to 150 ms for one small change."""
        if self._is_closed:
            raise ClusterError("the cluster is closed")
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *arguments)

    def _change(self, act: Callable[[Transaction], T]) -> tuple[Transaction, T]:
        with self.world.changing(self.now_s()) as change:
            result = self._act(act, change)
            self._store.save(change)
        return change, result

    def _finish(self, change: Transaction, result: T) -> T:
        """The change is kept: tell it, and do outside what follows from it."""
        self._tell(change.events)
        for follow in change.afterwards:
            follow()
        for placement in change.begins:
            self._take_up(placement)
        for placement in change.stops:
            self._processes.stop(placement.run.id)
        gone = [run_id for run_id, run in change.rows("runs") if run is None]
        if gone:
            self._discarded += gone
            self._tidy.set()
        return result

    def _audit(self, who: str, verb: str, objects: Sequence[str]) -> None:
        if not objects:
            return
        try:
            self.home.audit(who, verb, objects)
        except OSError as error:  # it is done and kept: a full disk must not make it look refused
            log.error("the audit log cannot be written: %s", error)

    # Running things.

    def _take_up(self, placement: Placement) -> None:
        """Let the run begin, or find it again after a restart."""
        run, pod = placement.run, placement.pod
        if pod.phase is Phase.DONE:
            return
        if not run.is_process:
            heapq.heappush(self._ends, (run.ends_s, run.id))
            self._wake.set()
            return
        self._processes.tend(run.id, self._spec(placement), has_begun=pod.phase is Phase.RUNNING)
        if pod.phase is Phase.RELEASING:
            self._processes.stop(run.id)

    def _spec(self, placement: Placement) -> RunSpec:
        record = self.world.lives[placement.run.workload].record
        want = transitions.request_of(record.workload, placement.run.pod)
        folder, node = self.home.runs / placement.run.id, self.world.nodes.get(placement.pod.node)
        return RunSpec(
            command=record.program.command,
            env=environment(record, placement, node, str(folder), str(self.home.path)),
            workdir=record.program.workdir or str(folder / "work"),
            log=str(folder / "log"),
            time_limit_s=record.workload.time_limit_s / self.speed,  # the supervisor has a real clock
            grace_s=self.grace_s,
            workload=placement.run.workload,
            pod=placement.run.pod,
            devices=placement.pod.devices,
            isolation=want.isolation,
            least_grade=want.least_grade,
            console=record.program.is_interactive and placement.run.pod == self._first_pod(record.workload),
        )

    def _run_started(self, run_id: str) -> None:
        self._happen(lambda change: transitions.run_started(change, run_id))

    def _run_ended(self, run_id: str, end: Exit) -> None:
        self._happen(lambda change: transitions.run_ended(change, run_id, end))

    def _run_refused(self, run_id: str, why: str) -> None:
        self._happen(lambda change: transitions.run_refused(change, run_id, why))

    def _run_overdue(self, run_id: str) -> None:
        self._happen(lambda change: transitions.run_overdue(change, run_id))

    def _happen(self, happening: Happening) -> None:
        self._happened.append(happening)
        self._wake.set()

    async def _work_off(self) -> None:
        """Turn what happened, and what is due by the clock, into changes; sleep until there is more."""
        while True:
            self._wake.clear()
            self._collect_due()
            if self._happened:
                await self._make_happen(self._happened[:BATCH])
                continue
            with contextlib.suppress(TimeoutError):
                due_s = max(self.clock.real_s_until(self._ends[0][0]), 0.001) if self._ends else None
                await asyncio.wait_for(self._wake.wait(), due_s)

    async def _make_happen(self, batch: list[Happening]) -> None:
        def act(change: Transaction) -> None:
            for happening in batch:
                happening(change)

        try:
            await self._make(act)
        except ClusterError as error:
            # The disk is full, say. What happened stays at the head of the list and is tried again.
            log.error("what happened cannot be kept yet: %s", error)
            await asyncio.sleep(TROUBLE_S)
        except Exception:
            # One happening that cannot be told must not stop all others; alone it is dropped, and a restart repairs it.
            self.faults += 1
            log.exception("a happening cannot be told")
            if len(batch) > 1:
                for happening in batch:
                    await self._make_happen([happening])
            else:
                self._happened.remove(batch[0])
        else:
            del self._happened[: len(batch)]

    def _collect_due(self) -> None:
        now_s = self.now_s()
        while self._ends and self._ends[0][0] <= now_s:
            _, run_id = heapq.heappop(self._ends)
            key = self.world.pod_of_run.get(run_id)
            if key is not None:
                self._happened.append(_end_of(run_id, simulated_exit(self.world.pods[key].run)))

    async def _beat(self) -> None:
        """Keep the time, fold the store's log in, remove what is left of forgotten runs."""
        self._discarded += await asyncio.to_thread(self._stray_folders)
        while True:
            with contextlib.suppress(ClusterError):  # a full disk: the clock stands until it can be kept again
                async with self._writing:
                    await self._write(self._keep_time)
                if self._store.wants_checkpoint():
                    await asyncio.to_thread(self._store.checkpoint)
            discarded, self._discarded = self._discarded, []
            if discarded:
                await asyncio.to_thread(self._remove_folders, discarded)
            self._processes.look_after_shares(is_first=False)
            self._tidy.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tidy.wait(), HEARTBEAT_S)

    def _keep_time(self) -> None:
        promise_ms = self.clock.next_promise_ms()
        self._store.set_meta("clock_ms", str(promise_ms))
        self.clock.promise(promise_ms)

    # The home folder.

    @staticmethod
    def _first_pod(workload: Workload) -> str:
        return transitions.ordered_pods(workload)[0][0]

    def _folder(self, run_id: str) -> RunFolder:
        return RunFolder(self.home.runs / run_id)

    def _is_over(self, run_id: str) -> bool:
        key = self.world.pod_of_run.get(run_id)
        return key is None or self.world.pods[key].pod.phase is Phase.DONE

    def _stray_folders(self) -> list[str]:
        """Folders that a crash left between forgetting a run and removing them."""
        found = [path.name for path in self.home.runs.iterdir() if path.name not in self.world.runs]
        return [name for name in found if RunFolder(self.home.runs / name).look() is not Condition.RUNNING]

    def _remove_folders(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            shutil.rmtree(self.home.runs / run_id, ignore_errors=True)


def _run_id() -> str:
    return secrets.token_hex(6)


def _end_of(run_id: str, end: Exit) -> Happening:
    return lambda change: transitions.run_ended(change, run_id, end)
