"""Samples of a made cluster for the tests of alerts: every measure, healthy, with noise that must not alarm anybody."""

from collections.abc import Mapping

import numpy as np

from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.series_writer import Frame, KindFrame

GPUS = tuple(f"node-{node}/gpu-{gpu}" for node in range(5) for gpu in range(8))
NODES = tuple(f"node-{node}" for node in range(5))
QUEUES = ("lab", "lab-vision", "lab-speech", "ops", "default")
NAMES = {
    SubjectKind.CLUSTER: ("cluster",),
    SubjectKind.NODE: NODES,
    SubjectKind.GPU: GPUS,
    SubjectKind.QUEUE: QUEUES,
    SubjectKind.SCHEDULER: ("scheduler",),
    SubjectKind.PROCESS: ("kaiwo",),
}
Changes = Mapping[tuple[str, str, str], int]  # by kind, measure and subject: the value instead of the healthy one


DAY = 8_640  # samples of ten seconds


class HealthyCluster:
    """Values wander, follow the day, peak for a moment, and are unknown for a moment, as measured ones do."""

    def __init__(self, seed: int = 1) -> None:
        self._draw = np.random.default_rng(seed)
        self._samples = 0

    def sample(self, changes: Changes | None = None) -> Frame:
        draw, gpus = self._draw, len(GPUS)
        self._samples += 1
        day = 0.5 - 0.5 * float(np.cos(2 * np.pi * self._samples / DAY))  # 0 at night, 1 in the afternoon
        heat = draw.integers(40, 60 + round(31 * day), gpus)
        busy = draw.integers(1, 40 + round(61 * day), gpus)
        if draw.random() < 0.2:  # one reading of one sensor is nonsense
            heat[draw.integers(gpus)] = 110
        if draw.random() < 0.2:
            busy[draw.integers(gpus)] = draw.choice([0, MISSING])
        cycles = int(draw.integers(0, 10 + round(40 * day)))
        usual_us = int(np.clip(draw.lognormal(9.4 + 0.5 * day, 0.3), 1, 90_000))
        values = {
            "cluster": {
                "nodes": 5, "nodes_out": 0, "gpu_milli": 40_000, "gpu_used_milli": 30_000, "cpu_milli": 480_000,
                "cpu_used_milli": int(draw.integers(200_000, 300_000 + round(160_000 * day))), "memory_mib": 7_500_000,
                "memory_used_mib": int(draw.integers(2_000_000, 4_000_000 + round(3_000_000 * day))), "running": 30,
                "waiting": 4, "ended": int(draw.poisson(0.1 + day)), "failed": 0,
                "pods_failed": int(draw.random() < 0.02), "nodes_failed": 0, "nodes_slow": 0,
                "ports_down": 0, "agents_lost": 0,
            },
            "scheduler": {
                "cycles": cycles, "cycle_us": usual_us if cycles else MISSING, "cycle_failures": 0,
                "starts": int(draw.poisson(1 + 8 * day)), "evictions": int(draw.poisson(0.1 + 0.8 * day)),
                "idle_gpu_milli": 10_000, "stalled_s": int(draw.integers(0, 20)), "eligible": 0, "promises_kept": 1,
                "promises_broken": 0,
            },
            "process": {
                "cpu_permille": int(draw.integers(50, 200 + round(700 * day))),
                "memory_mib": int(draw.integers(200, 400)), "loop_lag_us": int(draw.integers(500, 400_000)),
            },
        }  # fmt: skip
        values["cluster"]["failed"] = int(draw.binomial(values["cluster"]["ended"], 0.1))
        arrays = {kind: {name: np.array([value]) for name, value in of.items()} for kind, of in values.items()}
        queues = len(QUEUES)
        share = draw.integers(6_000, 9_000, queues)
        arrays["queue"] = {
            "gpu_used_milli": share * draw.integers(60, 101, queues) // 100,
            "gpu_share_milli": share,
            "gpu_quota_milli": np.full(queues, 8_000),
            "running": np.full(queues, 5),
            "waiting": draw.integers(0, 3, queues),
        }
        arrays["gpu"] = {
            "allocated_milli": np.full(gpus, 1_000), "utilisation_percent": busy, "temperature_c": heat,
            "memory_used_mib": draw.integers(1_000, 190_000, gpus), "memory_mib": np.full(gpus, 196_608),
            "power_w": draw.integers(140, 700, gpus),
        }  # fmt: skip
        arrays["node"] = {"cpu_used_milli": draw.integers(0, 96_000, len(NODES)), "cpu_milli": np.full(5, 96_000)}
        for (kind, measure, subject), value in (changes or {}).items():
            arrays[kind][measure][NAMES[SubjectKind(kind)].index(subject)] = value
        return {SubjectKind(kind): KindFrame(NAMES[SubjectKind(kind)], each) for kind, each in arrays.items()}
