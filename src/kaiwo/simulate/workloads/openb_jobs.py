"""Read the pods of an openb trace with the times that the trace has: created, and deleted again."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.simulate.engine.job import SimulatedJob
from kaiwo.simulate.trace_files import read_rows
from kaiwo.simulate.workloads.published_jobs import MOST_S, number

OPENB_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time",
    "scheduled_time",
)  # fmt: skip
MOST_GPUS = 64


def openb_jobs(path: Path) -> Iterator[SimulatedJob]:
    """A pod runs from when it was scheduled until it was deleted. One that was never scheduled is left out: how long
    it would have run is not known."""
    for row in read_rows(path, OPENB_COLUMNS):
        created_s = row.whole_number("creation_time", 0, MOST_S)
        deleted_s = row.whole_number("deletion_time", 0, MOST_S)
        if not row.text("scheduled_time"):
            continue
        runs_s = deleted_s - round(number(row, "scheduled_time", 0, MOST_S))
        if deleted_s < created_s:
            raise row.wrong(f"deletion_time is {deleted_s}, before creation_time {created_s}")
        gpus = row.whole_number("num_gpu", 0, MOST_GPUS)
        milli = row.whole_number("gpu_milli", 1, WHOLE_MILLI) if gpus == 1 else WHOLE_MILLI
        models = tuple(name for name in row.text("gpu_spec").split("|") if name)
        request = Request(row.whole_number("cpu_milli"), row.whole_number("memory_mib"), gpus, milli, gpu_models=models)
        yield SimulatedJob(row.text("name"), created_s, max(1, runs_s), request, group=row.text("qos"), line=row.line)


def at_load(jobs: Sequence[SimulatedJob], gpus: int, load: float, count: int, seed: int) -> list[SimulatedJob]:
    """As many jobs, drawn from these, that arrive as fast as the cluster would need to be used to this part.

    In the trace itself the pods use a small part of the nodes, so that nothing ever waits. Of run times beyond the 95th
    percentile only that much is kept: a few pods run for months, and alone would decide when all have ended.
    """
    longest_s = sorted(job.runs_s for job in jobs)[len(jobs) * 95 // 100 - 1]
    draw = random.Random(seed)
    drawn = [replace(job, runs_s=min(job.runs_s, longest_s)) for job in draw.choices(jobs, k=count)]
    need = sum(job.gpu_milli * job.runs_s for job in drawn) / WHOLE_MILLI
    span_s = need / (gpus * load)
    times = sorted(int(draw.random() * span_s) for _ in drawn)
    return [
        replace(job, name=f"pod-{at:06d}", submitted_s=time_s)
        for at, (job, time_s) in enumerate(zip(drawn, times, strict=True))
    ]
