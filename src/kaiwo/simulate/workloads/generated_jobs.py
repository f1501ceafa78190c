"""Generate jobs whose mix follows published statistics: sizes, run times by size, and the hours of the day.

In:    a mix by name, a seed, and how much of the cluster the jobs shall need.   Out: jobs in order of arrival.
The tables are quantiles of the published traces (Philly: 82,247 jobs; openb: 7,064 GPU pods). Run times between two
quantiles are drawn evenly in their logarithm.
"""

import math
import random
from dataclasses import dataclass

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.simulate.engine.job import GPUS_PER_POD, SimulatedJob, split_gpus

DAY_S, HOUR_S = 86_400, 3600
QUANTILES = (0.0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class JobKind:
    weight: int  # how many of all jobs, in ten thousands
    gpus: int
    gpu_milli: int
    run_s: tuple[int, ...]  # at QUANTILES


_ONE_GPU_POD = (4, 67, 184, 655, 2_280, 7_232, 16_067, 135_622, 2_592_000)
MIXES: dict[str, tuple[JobKind, ...]] = {
    "philly": (
        JobKind(9317, 1, 1000, (1, 62, 122, 1_117, 2_716, 8_512, 19_137, 135_399, 2_592_000)),
        JobKind(221, 2, 1000, (2, 11, 16, 21, 76, 72_740, 197_062, 523_316, 2_582_803)),
        JobKind(227, 4, 1000, (3, 137, 772, 17_409, 89_394, 184_435, 273_968, 907_375, 2_592_000)),
        JobKind(201, 8, 1000, (1, 216, 1_876, 23_683, 173_248, 351_981, 525_618, 1_060_498, 2_592_000)),
        JobKind(25, 16, 1000, (2, 54, 383, 52_548, 165_483, 340_974, 506_236, 1_156_736, 1_710_643)),
        JobKind(8, 32, 1000, (2, 816, 1_182, 14_262, 53_209, 61_699, 76_056, 124_130, 128_924)),
        JobKind(1, 64, 1000, (1, 2, 166, 1_862, 3_147, 15_824, 22_149, 27_209, 28_475)),
    ),
    "openb": (
        JobKind(5537, 1, 1000, _ONE_GPU_POD),
        JobKind(1829, 1, 250, _ONE_GPU_POD),
        JobKind(1526, 1, 750, _ONE_GPU_POD),
        JobKind(566, 1, 500, _ONE_GPU_POD),
        JobKind(436, 1, 100, _ONE_GPU_POD),
        JobKind(62, 8, 1000, (58, 137, 245, 539, 11_269, 94_679, 204_752, 1_179_692, 1_332_357)),
        JobKind(23, 2, 1000, (40, 93, 701, 2_267, 8_686, 22_231, 292_956, 788_721, 912_663)),
        JobKind(21, 4, 1000, (22, 27, 36, 542, 3_015, 17_038, 30_025, 41_412, 44_259)),
    ),
}
# Jobs submitted in each hour of the day, in thousandths of the mean (Philly).
BY_HOUR = (
    1274, 985, 1119, 1103, 700, 1153, 1673, 2089, 1109, 1006, 1024, 869,
    749, 705, 638, 649, 882, 668, 801, 728, 1016, 917, 1134, 1010,
)  # fmt: skip
GROUPS = 15  # virtual clusters; the n-th submits in proportion to 1/n


@dataclass(frozen=True, slots=True)
class JobsToGenerate:
    mix: str
    count: int
    days: int
    seed: int
    gpus: int  # of the cluster
    load: float  # the part of it that the jobs need on average


def generated_jobs(order: JobsToGenerate) -> list[SimulatedJob]:
    """Run times are scaled so that all jobs together need the wanted part of the cluster."""
    if order.mix not in MIXES:
        raise ConfigError(f"there is no mix '{order.mix}'; choose one of: {', '.join(MIXES)}")
    draw, kinds = random.Random(order.seed), MIXES[order.mix]
    chosen = draw.choices(kinds, [kind.weight for kind in kinds], k=order.count)
    groups = draw.choices(range(GROUPS), [1 / (at + 1) for at in range(GROUPS)], k=order.count)
    times = sorted(_arrival_s(draw, order.days) for _ in range(order.count))
    run_s = [_run_s(draw, kind.run_s) for kind in chosen]
    need = sum(kind.gpus * kind.gpu_milli * each for kind, each in zip(chosen, run_s, strict=True)) / WHOLE_MILLI
    scale = order.load * order.gpus * order.days * DAY_S / max(1.0, need) if order.load else 1.0
    return [
        _job(number, at_s, max(1, round(each * scale)), kind, group)
        for number, (at_s, each, kind, group) in enumerate(zip(times, run_s, chosen, groups, strict=True))
    ]


def _job(number: int, at_s: int, run_s: int, kind: JobKind, group: int) -> SimulatedJob:
    pods, each = split_gpus(kind.gpus, GPUS_PER_POD)
    request = Request(gpus=each, gpu_milli=kind.gpu_milli)
    return SimulatedJob(f"job-{number:06d}", at_s, run_s, request, pods, group=f"team-{group + 1:02d}")


def _arrival_s(draw: random.Random, days: int) -> int:
    (hour,) = draw.choices(range(24), BY_HOUR)
    return draw.randrange(days) * DAY_S + hour * HOUR_S + draw.randrange(HOUR_S)


def _run_s(draw: random.Random, run_s: tuple[int, ...]) -> int:
    at = draw.random()
    above = next(number for number, quantile in enumerate(QUANTILES) if number and at <= quantile)
    low, high = run_s[above - 1], run_s[above]
    part = (at - QUANTILES[above - 1]) / (QUANTILES[above] - QUANTILES[above - 1])
    return max(1, round(math.exp(math.log(low) + part * (math.log(high) - math.log(low)))))
