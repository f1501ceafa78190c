"""The figures of one simulated run: completion times, waits by size, use, fragmentation, fairness and evictions."""

import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.simulate.engine.job import SimulatedJob
from kaiwo.simulate.engine.run_record import RunRecord

HOUR_S = 3600
SIZES = ((1, "up to 1"), (4, "2 to 4"), (8, "5 to 8"), (1 << 30, "above 8"))  # GPUs
SHORT_S = 600  # a shorter job counts as this long in its slowdown, or a wait of seconds would look terrible


class SizeFigures(msgspec.Struct, frozen=True):
    gpus: str
    jobs: int
    mean_wait_s: float
    p90_wait_s: float


class SeriesPoint(msgspec.Struct, frozen=True):
    at_s: int
    used_pct: float
    fragmented_pct: float
    waiting: int


class RunFigures(msgspec.Struct, frozen=True):
    """Waits are all the time in which a job did not run, also after a preemption."""

    jobs: int
    ended: int
    average_jct_s: float  # from submission to end
    median_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    p99_wait_s: float
    makespan_s: int
    utilisation_pct: float  # allocated GPU time over what there was, from the first submission to the last end
    busy_utilisation_pct: float  # the same until the last submission
    fragmentation_pct: float  # of free GPU amounts that typical jobs cannot use, mean of the samples
    fairness: float  # Jain's index of the mean slowdowns of the groups: 1 is even
    worst_group: str
    evictions: dict[str, int]  # jobs, by cause
    restarts: int
    failures: int
    lost_gpu_h: float
    cycles: int
    waits_by_size: tuple[SizeFigures, ...]
    groups: dict[str, float]  # by group: mean slowdown
    series: tuple[SeriesPoint, ...]
    evictions_at_s: tuple[int, ...] = ()


def run_figures(record: RunRecord) -> RunFigures:
    ended = [(job, at_s) for job, at_s in record.ended.values()]
    jct = [at_s - job.submitted_s for job, at_s in ended]
    waits = [at_s - job.submitted_s - job.runs_s for job, at_s in ended]
    slowdowns = group_slowdowns(ended)
    return RunFigures(
        jobs=record.submitted,
        ended=len(ended),
        average_jct_s=_mean(jct),
        median_jct_s=quantile(jct, 50),
        p99_jct_s=quantile(jct, 99),
        mean_wait_s=_mean(waits),
        p99_wait_s=quantile(waits, 99),
        makespan_s=record.finished_s - record.begun_s,
        utilisation_pct=_percent(record.busy_milli_s, record.capacity_milli_s),
        busy_utilisation_pct=_percent(record.busy_while_arriving_milli_s, record.capacity_while_arriving_milli_s),
        fragmentation_pct=round(100 * statistics.fmean([each.fragmented for each in record.samples] or [0.0]), 2),
        fairness=jain_index(list(slowdowns.values())),
        worst_group=max(slowdowns, key=lambda name: (slowdowns[name], name), default=""),
        evictions=dict(sorted(Counter(str(cause) for _, cause in record.evictions).items())),
        restarts=record.restarts,
        failures=record.failures,
        lost_gpu_h=round(record.lost_gpu_milli_s / WHOLE_MILLI / HOUR_S, 2),
        cycles=record.cycles,
        waits_by_size=_by_size(ended, waits),
        groups=slowdowns,
        series=tuple(
            SeriesPoint(
                each.at_s, _percent(each.used_milli, each.capacity_milli), round(100 * each.fragmented, 2), each.waiting
            )
            for each in record.samples
        ),
        evictions_at_s=tuple(at_s for at_s, _ in record.evictions),
    )


def group_slowdowns(ended: Sequence[tuple[SimulatedJob, int]]) -> dict[str, float]:
    """By group: the mean of the time from submission to end, over the time that the job ran."""
    by_group: dict[str, list[float]] = {}
    for job, at_s in ended:
        slowdown = max(1.0, (at_s - job.submitted_s) / max(SHORT_S, job.runs_s))
        by_group.setdefault(job.group or job.queue, []).append(slowdown)
    return {group: round(statistics.fmean(values), 3) for group, values in sorted(by_group.items())}


def jain_index(values: Sequence[float]) -> float:
    squares = sum(value * value for value in values)
    return round(sum(values) ** 2 / (len(values) * squares), 4) if squares else 1.0


def quantile(values: Sequence[float], percent: int) -> float:
    """The nearest rank."""
    ranked = sorted(values)
    return float(ranked[max(0, -(-percent * len(ranked) // 100) - 1)]) if ranked else 0.0


def _by_size(ended: Sequence[tuple[SimulatedJob, int]], waits: Sequence[int]) -> tuple[SizeFigures, ...]:
    found: dict[str, list[int]] = {}
    for (job, _), wait_s in zip(ended, waits, strict=True):
        title = next(title for most, title in SIZES if job.gpus <= most)
        found.setdefault(title, []).append(wait_s)
    return tuple(
        SizeFigures(title, len(found[title]), _mean(found[title]), quantile(found[title], 90))
        for _, title in SIZES
        if title in found
    )


def _mean(values: Sequence[float]) -> float:
    return round(statistics.fmean(values), 1) if values else 0.0


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0
