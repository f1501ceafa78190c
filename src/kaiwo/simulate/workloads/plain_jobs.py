"""Read a workload in Kaiwo's plain shape: one job a line, of which only three columns are needed.

    submitted_s,runs_s,gpus,name,queue
    0,3600,8,train,research
    60,600,0.5,notebook,research

A column that is not known ends the reading with a sentence: a misspelt one would silently change the run.
"""

from collections.abc import Iterator
from pathlib import Path

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.simulate.engine.job import GPUS_PER_POD, SimulatedJob, split_gpus
from kaiwo.simulate.trace_files import Row, read_rows
from kaiwo.simulate.workloads.published_jobs import MOST_GPUS, MOST_S, number

PLAIN_COLUMNS = ("submitted_s", "runs_s", "gpus")
OPTIONAL_COLUMNS = (
    "name", "pods", "cpu_milli", "memory_mib", "gpu_models", "queue", "user", "group", "priority",
)  # fmt: skip
LEAST_PRIORITY, MOST_PRIORITY = -1_000_000, 1_000_000


def plain_jobs(path: Path) -> Iterator[SimulatedJob]:
    names: set[str] = set()
    for row in read_rows(path, PLAIN_COLUMNS):
        if not names:
            check_columns(row)
        job = _job(row)
        if job.name in names:
            raise row.wrong(
                f"there is a job named {job.name!r} already; give each its own name, or leave the column out"
            )
        names.add(job.name)
        yield job


def check_columns(row: Row) -> None:
    known = (*PLAIN_COLUMNS, *OPTIONAL_COLUMNS)
    unknown = [name for name in row.values if name not in known]
    if unknown:
        raise ConfigError(
            f"{row.path}, line 1: the column {unknown[0]!r} is not known; known columns are {', '.join(known)}"
        )


def _job(row: Row) -> SimulatedJob:
    submitted_s, runs_s = round(number(row, "submitted_s", 0, MOST_S)), round(number(row, "runs_s", 1, MOST_S))
    gpus = number(row, "gpus", 0, MOST_GPUS)
    pods = row.whole_number("pods", 1, MOST_GPUS) if row.text("pods") else 0
    whole, part = int(gpus), round(gpus % 1 * WHOLE_MILLI)
    if part and (whole or pods > 1):
        raise row.wrong(f"gpus is {row.text('gpus')}; write whole GPUs, or one fraction below 1 such as 0.5")
    if pods and whole % pods:
        raise row.wrong(f"gpus is {whole}, which {pods} pods cannot share equally; gpus counts those of all pods")
    count, each = (pods, whole // pods) if pods else split_gpus(whole, GPUS_PER_POD)
    request = Request(
        cpu_milli=_amount(row, "cpu_milli"),
        memory_mib=_amount(row, "memory_mib"),
        gpus=1 if part else each,
        gpu_milli=part or WHOLE_MILLI,
        gpu_models=tuple(name for name in row.text("gpu_models").split("|") if name),
    )
    return SimulatedJob(
        name=row.text("name") or f"job-{row.line:06d}",
        submitted_s=submitted_s,
        runs_s=runs_s,
        request=request,
        pods=count,
        queue=row.text("queue") or "default",
        group=row.text("group") or row.text("queue"),
        user=row.text("user"),
        priority=row.whole_number("priority", LEAST_PRIORITY, MOST_PRIORITY) if row.text("priority") else 0,
        line=row.line,
    )


def _amount(row: Row, column: str) -> int:
    return row.whole_number(column) if row.text(column) else 0
