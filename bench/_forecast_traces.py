"""Read the traces behind the benchmark of forecasts, and generate the one that has users, names and images."""

import csv
import gzip
import random
from datetime import UTC, datetime
from pathlib import Path

from bench._queue_simulation import Job
from kaiwo.forecast.run_time_forecast import RunKey

MAX_GPUS = 64  # larger jobs, 3 of 82,247, do not fit the smallest pool
DAY_S = 86_400


def philly_jobs(traces: Path) -> list[Job]:
    """All jobs by submission. The trace has neither users nor names nor images."""
    jobs = []
    with gzip.open(traces / "philly" / "philly_jobs.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            submitted_s, gpus = _timestamp_s(row["timestamp"]), int(row["num_gpus"])
            key = RunKey("", "", row["cluster"], "", gpus * 1000)
            jobs.append(Job(submitted_s, max(1, int(float(row["duration"]))), gpus, key))
    return sorted(job for job in jobs if job.gpus <= MAX_GPUS)


def openb_pods(traces: Path) -> list[Job]:
    """The pods that have an end, by creation; their class of service is their queue."""
    jobs = []
    with gzip.open(traces / "openb" / "openb_pod_list_default.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if not row["deletion_time"]:
                continue
            created_s, deleted_s = int(float(row["creation_time"])), int(float(row["deletion_time"]))
            gpus = int(row["num_gpu"])
            key = RunKey("", "", row["qos"], "", gpus * 1000 if gpus > 1 else int(row["gpu_milli"]))
            if deleted_s > created_s:
                jobs.append(Job(created_s, deleted_s - created_s, gpus, key))
    return sorted(jobs)


def muri_jobs(traces: Path, name: str) -> list[Job]:
    """The jobs of one of Muri's traces, whose times are milliseconds; all are of one queue."""
    jobs = []
    with gzip.open(traces / "muri" / f"{name}.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            submitted_s, run_s = (int(float(row[field]) / 1000) for field in ("submit_time", "duration"))
            gpus = int(row["num_gpu"])
            jobs.append(Job(submitted_s, max(1, run_s), gpus, RunKey("", "", "muri", "", gpus * 1000)))
    return sorted(jobs)


def demand_series(traces: Path) -> dict[str, list[tuple[int, int]]]:
    """By name: a sample a minute of the active nodes on Philly, and of the running GPUs of each virtual cluster."""
    series = {"philly": _samples(traces / "helios" / "philly_node_sequence.csv.gz", "active")}
    for path in sorted((traces / "helios").glob("Earth_vc*.csv.gz")):
        series[path.name.split(".")[0]] = _samples(path, "running_gpu_num")
    return series


def generated_jobs(seed: int, days: int = 20) -> list[Job]:
    """Jobs whose run time depends on who runs which script in which image: 40 users in 4 queues, 3 scripts each.

    A script's median is drawn from 1 minute to 20 hours, a newer image makes it faster, and a run differs from the
    median by a lognormal factor of sigma 0.5. So queue and size alone say little.
    """
    draw = random.Random(seed)
    scripts = []
    for user in range(40):
        for number in range(3):
            median_s = 60 * 1200 ** draw.random()
            gpus = draw.choice((1, 1, 1, 2, 4, 8))
            scripts.append((f"user-{user}", f"script-{user}-{number}", f"team-{user % 4}", median_s, gpus))
    jobs, now_s = [], 0.0
    while now_s < days * DAY_S:
        now_s += draw.expovariate(1 / 60)
        user, name, queue, median_s, gpus = draw.choice(scripts)
        image = draw.choice(("torch:2.4", "torch:2.8"))
        run_s = median_s * draw.lognormvariate(0, 0.5) * (0.5 if image == "torch:2.8" else 1)
        jobs.append(Job(int(now_s), max(1, int(run_s)), gpus, RunKey(user, name, queue, image, gpus * 1000)))
    return jobs


def without(jobs: list[Job], *fields: str) -> list[Job]:
    """The same jobs, of which these fields are unknown."""
    return [job._replace(key=job.key._replace(**dict.fromkeys(fields, ""))) for job in jobs]


def _samples(path: Path, column: str) -> list[tuple[int, int]]:
    with gzip.open(path, "rt") as file:
        return [(_timestamp_s(row["time"]), int(float(row[column]))) for row in csv.DictReader(file)]


def _timestamp_s(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
