"""Learn run times from history, and add them to workloads without an estimate before their events reach the state.

Workloads are of one kind when they have the same owner, queue, name without its number, and pods: the runs of one
array, one CronJob, one script. The learned time is part of the event, so a journal replays without this history.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.recent_runs import KINDS_KEPT, RUNS_KEPT, RecentRuns, WorkloadKind, name_without_numbers
from kaiwo.forecast.run_time_forecast import RunTimeForecast, SavedForecast
from kaiwo.manifests.values.names import ARRAY_LABEL
from kaiwo.model.digest import digest
from kaiwo.model.events import Event, WorkloadChanged, WorkloadGone
from kaiwo.model.workload import Workload

SAVE_S = 300  # between two times that the forecast is stored: a kill loses what was learned since
UPDATE_S = 60  # between two updates of workloads that have not ended
WORTH_UPDATE = 8  # a change by an eighth


class RunTimes:
    """The learned run times of one cluster. One thread at a time."""

    def __init__(self, store: "RunTimeFile | None" = None) -> None:
        self._store = store
        self.forecast = RunTimeForecast(store.load_forecast() if store is not None else None)
        self.arrivals = RecentArrivals(sys.maxsize)  # from the first events on
        self._saved_s = 0
        self._has_begun = False
        self._runs = RecentRuns()
        self._living: dict[str, Workload] = {}  # those that have not ended, as the scheduler knows them
        self._updated_s: dict[WorkloadKind, int] = {}
        for kind, run_s in self._store.load() if self._store is not None else ():
            self._runs.add(kind, run_s)

    def add_run_times(self, events: Sequence[Event], now_s: int) -> list[Event]:
        """The events with learned run times, then the workloads whose learned run time changed."""
        if not self._has_begun:
            self._has_begun, self.arrivals = True, RecentArrivals(now_s)
        updated: list[Event] = []
        learned: dict[WorkloadKind, None] = {}
        for event in events:
            updated.append(self._with_run_time(event) if isinstance(event, WorkloadChanged) else event)
            if isinstance(event, WorkloadGone):
                workload = self._living.pop(event.name, None)
                if workload is not None and event.run_s:
                    kind = kind_of(workload)
                    if (forgotten := self._runs.add(kind, event.run_s)) is not None:
                        self._updated_s.pop(forgotten, None)
                    if self._store is not None:
                        self._store.add(kind, event.run_s)
                    self.forecast.learn(run_key_of(workload), event.run_s, now_s - event.run_s)
                    learned[kind] = None
        if learned and self._store is not None and now_s - self._saved_s >= SAVE_S:
            self._saved_s = now_s
            self._store.save_forecast(self.forecast.save())
        for kind in learned:
            updated.extend(self._update_living(kind, now_s))
        return updated

    def expected_s(self, workload: Workload) -> int:
        """Nine of ten recent runs of its kind took at most this long; 0: too few are known."""
        if self._runs.is_empty or not self._runs.knows(_owner(workload)):
            return 0
        return self._runs.expected_s(kind_of(workload))

    def save(self) -> None:
        if self._store is not None:
            self._store.save_forecast(self.forecast.save())

    def _with_run_time(self, event: WorkloadChanged) -> Event:
        workload = event.workload
        if workload.name not in self._living and not workload.held:
            self.arrivals.add(workload)
        self._living[workload.name] = workload
        learned_s = 0 if workload.estimate_s else self.expected_s(workload)
        if learned_s == workload.learned_s:
            return event
        self._living[workload.name] = replace(workload, learned_s=learned_s)
        return WorkloadChanged(self._living[workload.name])

    def _update_living(self, kind: WorkloadKind, now_s: int) -> Iterator[Event]:
        learned_s = self._runs.expected_s(kind)
        if not learned_s or now_s - self._updated_s.get(kind, -UPDATE_S) < UPDATE_S:
            return
        self._updated_s[kind] = now_s
        for name, workload in self._living.items():
            is_old = abs(workload.learned_s - learned_s) * WORTH_UPDATE >= max(1, workload.learned_s)
            if is_old and not workload.estimate_s and _owner(workload) == kind.owner and kind_of(workload) == kind:
                self._living[name] = replace(workload, learned_s=learned_s)
                yield WorkloadChanged(self._living[name])


def kind_of(workload: Workload) -> WorkloadKind:
    pods = [(role.name, role.request, role.count, role.needed) for role in workload.roles]
    return WorkloadKind(_owner(workload), digest((workload.kind, pods)))


def _owner(workload: Workload) -> str:
    namespace, _, name = workload.name.rpartition("/")  # simulated jobs have no namespace
    stem = workload.labels.get(ARRAY_LABEL) or name_without_numbers(name)
    return f"{workload.user}|{workload.queue}|{namespace}/{stem}"


FILE = "run-times.jsonl"
FORECAST_FILE = "run-forecast.msgpack"
MAX_LINES = 2 * KINDS_KEPT * RUNS_KEPT  # beyond this the file is rewritten with the newer half

Line = tuple[str, str, int]


class RunTimeFile:
    """Stores runs in the home folder, the oldest first."""

    def __init__(self, home: str) -> None:
        self._path, self._forecast_path = Path(home) / FILE, Path(home) / FORECAST_FILE

    def load(self) -> list[tuple[WorkloadKind, int]]:
        """All stored runs. A torn last line, as after a power cut, is skipped."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return []
        runs: list[tuple[WorkloadKind, int]] = []
        for line in lines[-MAX_LINES:]:
            with contextlib.suppress(msgspec.MsgspecError):
                owner, pods, run_s = msgspec.json.decode(line, type=Line)
                runs.append((WorkloadKind(owner, pods), run_s))
        if len(lines) > MAX_LINES:
            self._rewrite(runs[-MAX_LINES // 2 :])
        return runs

    def add(self, kind: WorkloadKind, run_s: int) -> None:
        """Append a run. If the disk is full, the run is forgotten at the next restart."""
        with contextlib.suppress(OSError):
            self._path.touch(mode=0o600)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode((*kind, run_s)) + b"\n")

    def load_forecast(self) -> SavedForecast | None:
        """None: there is none, or another version wrote it."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.msgpack.decode(self._forecast_path.read_bytes(), type=SavedForecast)
        return None

    def save_forecast(self, saved: SavedForecast) -> None:
        _replace(self._forecast_path, msgspec.msgpack.encode(saved))

    def _rewrite(self, runs: list[tuple[WorkloadKind, int]]) -> None:
        _replace(self._path, b"".join(msgspec.json.encode((*kind, run_s)) + b"\n" for kind, run_s in runs))


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        temporary.touch(mode=0o600)
        temporary.write_bytes(content)
        os.replace(temporary, path)
