"""Look into a home folder from outside and list everything that must never be: `audit(home)`.

Works on the home of any local Kaiwo that is not running (or was just killed): it reads the store, the runs' folders,
the process table and the journal, and believes none of them alone.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run, TrackedWorkload
from kaiwo.clusters.ledger import NodeUsage, holds, overcommit
from kaiwo.clusters.local.run_folder import RunCondition, RunFolder, RunSpec
from kaiwo.history.journal_reader import JournalReader
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import AttemptRecord, WorkloadState
from kaiwo.runtime.loop.replay import replay

SLACK_S = 0.005  # a run's end is written down a moment after its process ended
CYCLES = 3  # the newest ones are decided again


class Books:
    """The store, read with nothing but SQLite."""

    def __init__(self, home: Path) -> None:
        with contextlib.closing(sqlite3.connect(f"file:{home / 'state.db'}", uri=True)) as db:
            self.integrity = [row[0] for row in db.execute("PRAGMA integrity_check")]
            self.nodes = self._all(db, "SELECT data FROM nodes", Node)
            self.workloads = {
                life.workload.name: life for life in self._all(db, "SELECT data FROM workloads", TrackedWorkload)
            }
            self.placements = self._all(db, "SELECT data FROM pods", PlacedRun)
            self.runs = {run.id: run for run in self._all(db, "SELECT data FROM runs", Run)}
            self.attempts = [
                (workload, msgspec.msgpack.decode(data, type=AttemptRecord))
                for workload, data in db.execute("SELECT workload, data FROM attempts")
            ]
            self.kept = [name for (name,) in db.execute("SELECT workload FROM kept ORDER BY workload")]

    @staticmethod
    def _all(db: sqlite3.Connection, query: str, kind: type) -> list:
        decode = msgspec.msgpack.Decoder(kind).decode
        return [decode(data) for (data,) in db.execute(query)]


def audit(home: Path) -> list[str]:
    """Every broken law, in words. An empty list is what we want."""
    cache = Books(home)
    problems = [f"the store says: {line}" for line in cache.integrity if line != "ok"]
    problems += _capacity(cache)
    problems += _lives(cache)
    problems += _folders(home, cache)
    problems += _device_times(home, cache)
    problems += _strays(home, cache)
    problems += _journal(home)
    return problems


def _capacity(cache: Books) -> Iterator[str]:
    """Nothing is allocated twice."""
    nodes = {node.name: node for node in cache.nodes}
    uses: dict[str, NodeUsage] = {}
    for placement in cache.placements:
        if holds(placement.pod):
            uses.setdefault(placement.pod.node, NodeUsage()).add(placement.pod)
    for name, use in uses.items():
        if name in nodes and (why := overcommit(nodes[name], use)):
            yield why


def _lives(cache: Books) -> Iterator[str]:
    """Pods belong to the living, and what starts or runs has pods."""
    pods: dict[str, list[Phase]] = {}
    for placement in cache.placements:
        pods.setdefault(placement.pod.workload, []).append(placement.pod.phase)
    for name in set(pods) - set(cache.workloads):
        yield f"{name} has pods but does not exist"
    for name, life in cache.workloads.items():
        phases = pods.get(name, [])
        if life.is_over and phases:
            yield f"{name} is over and has pods"
        if life.record.state in (WorkloadState.STARTING, WorkloadState.RUNNING, WorkloadState.STOPPING) and not phases:
            yield f"{name} is {life.record.state} without pods"
        if life.record.state in (WorkloadState.WAITING, WorkloadState.HELD) and any(
            phase is not Phase.DONE for phase in phases
        ):
            yield f"{name} is {life.record.state} with pods"
    for name in cache.kept:
        if name not in cache.workloads or not cache.workloads[name].wants_pods:
            yield f"space is kept for {name}, which wants none"


def _folders(home: Path, cache: Books) -> Iterator[str]:
    """No two runs of one pod overlap, and what goes on has a pod."""
    live = {placement.run.id for placement in cache.placements if placement.pod.phase is not Phase.DONE}
    spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run_id, run in cache.runs.items():
        folder = RunFolder(home / "runs" / run_id)
        if folder.path.exists() and folder.condition() is RunCondition.RUNNING and run_id not in live:
            yield f"run {run_id} of {run.workload} goes on and holds no place"
        if (span := span_of(folder)) is not None:
            spans.setdefault((run.workload, run.pod), []).append(span)
    for (workload, pod), times in spans.items():
        times.sort()
        if any(later[0] + SLACK_S < earlier[1] for earlier, later in pairwise(times)):
            yield f"{workload}/{pod} ran twice at the same time"


def _device_times(home: Path, cache: Books) -> Iterator[str]:
    """What the processes really had, over time: never more than a whole of any device."""
    edges: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for run_id in cache.runs:
        folder = RunFolder(home / "runs" / run_id)
        span = span_of(folder)
        if span is None:
            continue
        env = msgspec.json.decode((folder.path / "run.json").read_bytes(), type=RunSpec).env
        for gpu in filter(None, env["KAIWO_GPUS"].split(",")):
            milli = int(env["KAIWO_GPU_MILLI"])
            edges.setdefault((env["KAIWO_NODE"], gpu), []).extend([(span[0] + SLACK_S, milli), (span[1], -milli)])
    for (node, gpu), changes in edges.items():
        held = 0
        for _, milli in sorted(changes):
            held += milli
            if held > WHOLE_MILLI:
                yield f"{gpu} of {node} was given to processes twice at once"
                break


def _strays(home: Path, cache: Books) -> Iterator[str]:
    """No process of ours without a place."""
    live = {str(home / "runs" / placement.run.id) for placement in cache.placements}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        with contextlib.suppress(OSError):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0"):
                name, _, run_dir = variable.partition("=")
                if name == "KAIWO_RUN_DIR" and Path(run_dir).parent == home / "runs" and run_dir not in live:
                    yield f"process {pid} of {run_dir} holds no place"


def _journal(home: Path) -> Iterator[str]:
    """It opens, and its newest cycles give the same plan again."""
    for head in JournalReader(home / "journal").cycles(CYCLES):
        if not replay(str(home), head.number).is_same:
            yield f"cycle {head.number} gives another plan when it is decided again"


def span_of(folder: RunFolder) -> tuple[float, float] | None:
    """From when to when the run's process was there."""
    start, end = folder.start_record(), folder.exit_record()
    if start is None:
        return None
    return start.started, end.ended if end is not None and end.ended else time.time()
