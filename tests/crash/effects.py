"""What the jobs themselves wrote, against the books: `check_effects` lists what does not agree."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kaiwo.clusters.embedded.lifecycle import ExitReason, TrackedWorkload
from kaiwo.clusters.embedded.transitions import RUNS_KEPT
from kaiwo.clusters.local.run_folder import RunFolder
from kaiwo.model.workload_record import WorkloadState
from tests.crash.audit import Books
from tests.crash.jobs import DOES_WORK_ONCE, EXPECTED, kind_of
from tests.crash.people import People

# A run that is told to go may just have ended by itself: then its own record says so, and it begins anew all the same.
TOLD_TO_GO = (ExitReason.STOPPED, ExitReason.NEVER_STARTED, ExitReason.EXITED)
BY_SCHEDULER = "stopped by the scheduler ("


class Effects:
    """The lines that the processes left."""

    def __init__(self, path: Path) -> None:
        self.begun: Counter[str] = Counter()  # by run
        self.attempts: Counter[tuple[str, str, str]] = Counter()  # by workload, pod, attempt
        self.ended: Counter[tuple[str, str]] = Counter()  # by workload, pod
        for line in path.read_text().splitlines():
            workload, pod, attempt, run, what = line.split()
            if what == "start":
                self.begun[run] += 1
                self.attempts[workload, pod, attempt] += 1
            else:
                self.ended[workload, pod] += 1


def check_effects(home: Path, people: People, lost: set[str], was_disk_full: bool = False) -> Iterator[str]:
    """Once everything is over. `lost`: the workloads of which a supervisor was killed."""
    cache, effects = Books(home), Effects(people.effects)
    for name in set(people.accepted) - set(cache.workloads):
        yield f"{name} was accepted and is lost"
    for run, times in effects.begun.items():
        if times > 1:
            yield f"run {run} began {times} times"
    for key, times in effects.attempts.items():
        if times > 1:
            yield f"{key} ran {times} times in one attempt"
    evicted = evictions(home, cache) + (broken_off(home, cache) if was_disk_full else Counter())
    for name, life in cache.workloads.items():
        yield from (f"{each}{_ends(home, cache, name)}" for each in _check_end(name, life, people, lost, evicted[name]))
        is_moved = name in people.disturbed or name in lost or evicted[name] > 0
        if life.record.state is WorkloadState.SUCCEEDED and kind_of(name) in DOES_WORK_ONCE:
            counts = {effects.ended[name, f"main-{index}"] for index in range(life.workload.pods)}
            # Work that was stopped may have come as far as its last line before; all other work did it exactly once.
            if counts != {1} and not (is_moved and 0 not in counts):
                yield f"{name} did its work {sorted(counts)} times"


def evictions(home: Path, cache: Books) -> Counter[str]:
    """How often the scheduler told work to go. The default queue and those of the teams are owed nothing, so each may
    reclaim what another has beyond its fair share, and backfilled work goes at its deadline. Of a team's work its
    earlier runs say so themselves; of those so old that their folders are gone nobody can say more than that they were.
    Of all other work the records say so."""
    earlier = [
        run
        for run in cache.runs.values()
        if kind_of(run.workload) == "team"
        and run.workload in cache.workloads
        and run.attempt < cache.workloads[run.workload].record.attempt
    ]
    stopped = {
        (run.workload, run.attempt) for run in earlier if RunFolder(home / "runs" / run.id).end().reason in TOLD_TO_GO
    }
    attempts = {run.workload: cache.workloads[run.workload].record.attempt for run in earlier}
    forgotten = Counter({name: max(0, attempt - RUNS_KEPT) for name, attempt in attempts.items()})
    others = (name for name, each in cache.attempts if kind_of(name) != "team" and BY_SCHEDULER in each.message)
    return Counter(workload for workload, _ in stopped) + forgotten + Counter(others)


def broken_off(home: Path, cache: Books) -> Counter[str]:
    """How often an attempt ended because one of its runs had no room on the disk to begin, and nobody reclaimed it."""
    reclaimed = {(name, each.number) for name, each in cache.attempts if "(reclaim for" in each.message}
    found = {
        (run.workload, run.attempt)
        for run in cache.runs.values()
        if kind_of(run.workload) != "team"
        and RunFolder(home / "runs" / run.id).end().reason is ExitReason.NEVER_STARTED
    }
    return Counter(name for name, _ in found - reclaimed)


def _ends(home: Path, cache: Books, name: str) -> str:
    """How each of its runs that are still known ended, for whoever must find out what went wrong."""
    runs = [run for run in cache.runs.values() if run.workload == name]
    ends = [(run.attempt, run.pod, RunFolder(home / "runs" / run.id).exit_record()) for run in runs]
    return "; its runs: " + ", ".join(f"{attempt}/{pod} {end}" for attempt, pod, end in ends)


def _check_end(name: str, life: TrackedWorkload, people: People, lost: set[str], evicted: int) -> Iterator[str]:
    record, kind = life.record, kind_of(name)
    allowed = {EXPECTED.get(kind, WorkloadState.SUCCEEDED)}
    allowed |= {WorkloadState.CANCELLED} if name in people.cancelled else set()
    allowed |= {WorkloadState.FAILED} if name in lost else set()
    if record.state not in allowed:
        yield f"{name} is {record.state}: {record.message}"
    if name in people.cancelled or name in people.disturbed or name in lost:
        return
    attempts = (2 if kind in ("failing", "flaky") else 1) + evicted
    if record.attempt != attempts:
        yield f"{name} had {record.attempt} attempts, not {attempts}"
    if kind == "limited" and "time limit" not in record.message:
        yield f"{name} ended with: {record.message}"
