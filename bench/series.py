"""What time series of 10,000 GPUs cost: time to record a sample, disk after a week of minutes, time of a query.

In:    1,250 virtual nodes with 8 GPUs, and agents' reports whose numbers wander as measured ones do.
Out:   processor time of the thread that records, bytes of the file, milliseconds of queries on the filled file.
The last two hours are recorded every ten seconds, as `kaiwo up` does; the days before once a minute, to save time: a
minute costs as many bytes either way.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kaiwo.clusters.local.cluster_file import virtual_nodes
from kaiwo.devices.agent_messages import GpuSample, Sample
from kaiwo.devices.inventory import Inventory, Telemetry
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.resolutions import DAY_S
from kaiwo.history.series.series_file import FILE
from kaiwo.history.series.series_reader import SeriesQuery, SeriesReader
from kaiwo.history.series.series_writer import Frame, SeriesWriter
from kaiwo.model.events import NodeChanged
from kaiwo.runtime.nodes.agent_registry import KnownAgent
from kaiwo.runtime.recording.cluster_samples import MEASURED, sample_devices, sample_nodes
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable

NODES, GPUS = 1_250, 8
NOW_S = 1_800_000_000 - 1_800_000_000 % DAY_S
EXACT_S = 2 * 3600
MAX_CORE_PERCENT, MAX_BYTES, MAX_QUERY_MS, MAX_SAMPLE_MS = 2.0, 2e9, 200.0, 50.0
KINDS = (SubjectKind.NODE, SubjectKind.GPU)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--days", type=int, default=7)
    options.add_argument("--json", action="store_true")
    result = measure(options.parse_args().days)
    print(json.dumps(result))
    missed = [
        f"{name} is {result[name]}, at most {most:g} is due"
        for name, most in (
            ("core_percent", MAX_CORE_PERCENT),
            ("month_bytes", MAX_BYTES),
            ("longest_query_ms", MAX_QUERY_MS),
            ("one_value_us", 1000.0),
        )
        if result[name] > most
    ]
    print("\n".join(missed), end="\n" if missed else "", file=sys.stderr)
    return 1 if missed else 0


def measure(days: int) -> dict[str, float]:
    table = virtual_table()
    measured = Measurements()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        writer = SeriesWriter(path)
        for time_s in range(NOW_S - days * DAY_S, NOW_S - EXACT_S, 60):
            writer.record(time_s, measured.frame(table, measured.step()))
        collect_s, record_s, longest_s = [], [], 0.0
        for time_s in range(NOW_S - EXACT_S, NOW_S, 10):
            agents = measured.step()
            began = time.thread_time()
            frame = measured.frame(table, agents)
            collected = time.thread_time()
            writer.record(time_s, frame)
            ended = time.thread_time()
            collect_s.append(collected - began)
            record_s.append(ended - collected)
            longest_s = max(longest_s, ended - collected)
        writer.close()
        minutes, hours = _bytes_by_resolution(path)
        queries = _queries(path, days)
    a_sample_s = sum(collect_s) / len(collect_s) + sum(record_s) / len(record_s)
    return {
        "gpus": NODES * GPUS,
        "days": days,
        "collect_ms": round(1000 * sum(collect_s) / len(collect_s), 2),
        "record_ms": round(1000 * sum(record_s) / len(record_s), 2),
        "longest_record_ms": round(1000 * longest_s, 1),
        "one_value_us": round(1e6 * a_sample_s / (NODES * GPUS * (1 + len(MEASURED))), 3),
        "core_percent": round(100 * a_sample_s / 10, 2),
        "file_bytes": minutes + hours,
        "month_bytes": round(minutes / days * 7 + hours / days * 30),
        "longest_query_ms": max(queries.values()),
        **queries,
    }


class Measurements:
    """Numbers of all GPUs that wander: half of the GPUs are busy, and their memory grows in steps."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(7)
        shape = (NODES, GPUS)
        self._busy = self._draw.random(shape) < 0.5
        self._memory = np.where(self._busy, self._draw.integers(20_000, 190_000, shape), 300)
        self._heat = np.where(self._busy, 70, 40) + self._draw.integers(-5, 6, shape)

    def step(self) -> list[KnownAgent]:
        draw, shape = self._draw, self._busy.shape
        turns = draw.random(shape) < 0.001  # a job begins or ends
        self._busy ^= turns
        self._memory = np.where(turns, np.where(self._busy, draw.integers(20_000, 190_000, shape), 300), self._memory)
        self._heat = np.clip(self._heat + draw.integers(-1, 2, shape), 35, 95)
        busy = np.where(self._busy, np.clip(92 + draw.normal(0, 6, shape), 0, 100), 0).astype(int)
        power = np.where(self._busy, 550 + draw.normal(0, 25, shape), 140 + draw.normal(0, 2, shape)).astype(int)
        rows = zip(busy.tolist(), self._memory.tolist(), power.tolist(), self._heat.tolist(), strict=True)
        return [KnownAgent(f"node-{at:04}", "", Inventory(""), sample=_sample(*row)) for at, row in enumerate(rows, 1)]

    def frame(self, table: NodeTable, agents: list[KnownAgent]) -> Frame:
        return {SubjectKind.NODE: sample_nodes(table), SubjectKind.GPU: sample_devices(table, agents)}


def _sample(busy: list[int], memory: list[int], power: list[int], heat: list[int]) -> Sample:
    gpus = tuple(
        GpuSample(f"gpu-{at}", Telemetry(busy[at], memory[at], power_w=power[at], temperature_c=heat[at]))
        for at in range(GPUS)
    )
    return Sample("", 1, 0, gpus=gpus)


def virtual_table() -> NodeTable:
    state = ClusterState()
    state.patch([NodeChanged(node) for node in virtual_nodes(NODES)])
    state.refresh_tables()
    return state.nodes


def _bytes_by_resolution(path: Path) -> tuple[int, int]:
    import sqlite3

    db = sqlite3.connect(path)
    of_resolution = dict(db.execute("SELECT resolution, sum(length(data)) FROM blocks GROUP BY resolution").fetchall())
    db.close()
    stored = sum(of_resolution.values())
    overhead = os.stat(path).st_size / stored  # pages, keys and frames, shared out by size
    return round(of_resolution.get(1, 0) * overhead), round(of_resolution.get(2, 0) * overhead)


def _queries(path: Path, days: int) -> dict[str, float]:
    """The slowest of some each, in processor time, with a connection of their own as after a start."""
    one, node = ("node-0700/gpu-3",), tuple(f"node-0700/gpu-{at}" for at in range(GPUS))
    many = tuple(f"node-{at:04}/gpu-0" for at in range(1, NODES, NODES // 20))
    spans = {"hour": 3600, "day": DAY_S, "week": days * DAY_S, "month": 30 * DAY_S}
    took: dict[str, float] = {}
    for who, names in (("gpu", one), ("node", node), ("spread", many)):
        for span, length_s in spans.items():
            for measure, points in _questions():
                reader = SeriesReader(path)
                began = time.thread_time()
                reader.read(SeriesQuery(SubjectKind.GPU, measure, names, NOW_S - length_s, NOW_S, points))
                ms = round(1000 * (time.thread_time() - began), 1)
                reader.close()
                took[f"{who}_{span}_ms"] = max(took.get(f"{who}_{span}_ms", 0.0), ms)
    return took


def _questions() -> Iterator[tuple[str, int]]:
    for measure in ("power_w", "memory_used_mib", "allocated_milli"):
        yield measure, 300
        yield measure, 2000


if __name__ == "__main__":
    sys.exit(main())
