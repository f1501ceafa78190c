"""Read the jobs of published traces as they are: Muri, Philly, Shockwave, and the series of Helios.

In:    a CSV file, plain or gzipped.   Out: jobs of one queue, the group of each in `SimulatedJob.group`.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from kaiwo.model.request import Request
from kaiwo.simulate.engine.job import GPUS_PER_POD, SimulatedJob, split_gpus
from kaiwo.simulate.trace_files import Row, read_rows

MURI_COLUMNS = ("job_id", "num_gpu", "submit_time", "duration", "model_name")
PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
SHOCKWAVE_COLUMNS = ("job_type", "num_gpu", "duration_s", "arrival_s")
HELIOS_COLUMNS = ("time", "total_gpu_num", "running_gpu_num_noless_8", "running_gpu_num_less_8")
MOST_GPUS, MOST_S = 4096, 10 * 365 * 86_400
MINUTE_S = 60


def make_job(name: str, submitted_s: int, runs_s: int, gpus: int, group: str, line: int = 0) -> SimulatedJob:
    pods, each = split_gpus(gpus, GPUS_PER_POD)
    return SimulatedJob(name, submitted_s, runs_s, Request(gpus=each), pods, group=group, line=line)


def muri_jobs(path: Path) -> Iterator[SimulatedJob]:
    """Times are in milliseconds; they are rounded up to seconds."""
    for row in read_rows(path, MURI_COLUMNS):
        number = row.whole_number("job_id")
        submitted_s = -(-row.whole_number("submit_time", 0, MOST_S * 1000) // 1000)
        runs_s = -(-row.whole_number("duration", 1, MOST_S * 1000) // 1000)
        gpus = row.whole_number("num_gpu", 1, MOST_GPUS)
        yield make_job(f"job-{number:06d}", submitted_s, runs_s, gpus, row.text("model_name"), row.line)


def philly_jobs(path: Path) -> Iterator[SimulatedJob]:
    """Time begins with the first submission. The group is the virtual cluster."""
    rows = [(_when_s(row), row) for row in read_rows(path, PHILLY_COLUMNS)]
    first_s = min((at_s for at_s, _ in rows), default=0)
    for at_s, row in rows:
        runs_s = max(1, round(number(row, "duration", 0, MOST_S)))
        gpus = row.whole_number("num_gpus", 1, MOST_GPUS)
        yield make_job(f"job-{row.line:06d}", at_s - first_s, runs_s, gpus, row.text("cluster"), row.line)


def shockwave_jobs(path: Path) -> Iterator[SimulatedJob]:
    for row in read_rows(path, SHOCKWAVE_COLUMNS):
        submitted_s, runs_s = round(number(row, "arrival_s", 0, MOST_S)), round(number(row, "duration_s", 1, MOST_S))
        gpus = row.whole_number("num_gpu", 1, MOST_GPUS)
        group = row.text("job_type").partition(" (")[0]
        yield make_job(f"job-{row.line:06d}", submitted_s, runs_s, gpus, group, row.line)


def helios_jobs(path: Path) -> Iterator[SimulatedJob]:
    """Jobs that would give the same series of running GPUs: where it rises one starts, where it falls the oldest end.

    Helios publishes how many GPUs are in use each minute, by small jobs and by jobs of 8 GPUs or more.
    """
    made = 0
    for column, group in (("running_gpu_num_less_8", "small"), ("running_gpu_num_noless_8", "large")):
        running, before, first_s, now_s = deque[tuple[int, int]](), 0, None, 0
        for row in read_rows(path, HELIOS_COLUMNS):
            at_s = _when_s(row, "time")
            first_s = at_s if first_s is None else first_s
            now_s, after = at_s - first_s, row.whole_number(column, 0, MOST_GPUS)
            if after > before:
                running.append((now_s, after - before))
            for begun_s, gpus in _ended(running, before - after):
                made += 1
                yield make_job(f"job-{made:06d}", begun_s, max(MINUTE_S, now_s - begun_s), gpus, group)
            before = after
        for begun_s, gpus in running:
            made += 1
            yield make_job(f"job-{made:06d}", begun_s, max(MINUTE_S, now_s + MINUTE_S - begun_s), gpus, group)


def _ended(running: deque[tuple[int, int]], fewer: int) -> Iterator[tuple[int, int]]:
    while fewer > 0:
        begun_s, gpus = running.popleft()
        if gpus > fewer:  # a part of it runs on
            running.appendleft((begun_s, gpus - fewer))
            gpus = fewer
        fewer -= gpus
        yield begun_s, gpus


def number(row: Row, column: str, least: float, most: float) -> float:
    found = row.text(column)
    try:
        value = float(found)
    except ValueError:
        raise row.wrong(f"{column} is {found[:40]!r}; it must be a number") from None
    if not least <= value <= most:  # also false for nan
        raise row.wrong(f"{column} is {found[:40]}; it must be from {least:,.0f} to {most:,.0f}")
    return value


def _when_s(row: Row, column: str = "timestamp") -> int:
    found = row.text(column)
    try:
        return int(datetime.strptime(found, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise row.wrong(f"{column} is {found[:40]!r}; it must be a time such as 2017-10-09 07:01:55") from None
