"""Operations that watch a cluster, for the table in `operations`: samples, sums, analytics, alerts, discovery.

Each function makes its input ready and yields, round by round, what is to be timed.
"""

import asyncio
import contextlib
import io
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from bench._agent_streams import inventory
from bench._operations_decide import WAITING, waiting_everywhere
from bench.alerts import MadeSamples, rules_of_all_kinds
from bench.decide import cluster, take
from bench.series import Measurements, virtual_table
from kaiwo.clusters.protocol import DeviceControl
from kaiwo.devices.agent_messages import GpuSample, Hello, LineReader, Sample, encode_line
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Telemetry
from kaiwo.history.past.consumption import ConsumptionQuery, Grouping
from kaiwo.history.past.past_file import FILE as PAST_FILE
from kaiwo.history.past.past_reader import PastReader
from kaiwo.history.past.past_writer import GpuHolder, PastBatch, PastWriter
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.series_file import FILE
from kaiwo.history.series.series_writer import Frame, KindFrame, SeriesWriter
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.workload import Phase, Pod
from kaiwo.model.workload_record import WorkloadRecord
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.overview.workload_table import HOLDS, WAITS
from kaiwo.runtime.recording.cluster_samples import sample_nodes, sample_users
from kaiwo.runtime.recording.gpu_use_meter import GpuUseMeter
from kaiwo.telemetry.alerts.evaluate import AlertMemory, evaluate
from kaiwo.telemetry.alerts.rule_set import RuleSet
from tests.devices.amd_trees import Box, write_box

NODES, GPUS, ROUNDS = 1_250, 8, 30
MINUTE_S, BEGIN_S = 60, 1_800_000_000
QUEUES, USERS, DAYS, DAY_S = 200, 10, 31, 86_400
Rounds = Iterator[Callable[[], object]]


def metric_sample() -> Rounds:
    """What a server does with one line, after the connection took its bytes."""
    loop = asyncio.new_event_loop()
    registry = AgentRegistry(cast(DeviceControl, _Devices()))
    with contextlib.redirect_stderr(io.StringIO()):  # the log names each agent
        for at in range(NODES):
            hello = Hello(node := f"node-{at:04d}", "1", "boot", inventory(node))
            loop.run_until_complete(registry.receive(hello, registry.open_stream(node)))
    draw = random.Random(3)
    for number in range(200):
        node = f"node-{number * 6:04d}"
        gpus = tuple(
            GpuSample(
                f"gpu-{at}", Telemetry(draw.randrange(101), 120_000 + draw.randrange(9_000), 44, 63, 55, 712, 750)
            )
            for at in range(GPUS)
        )
        data = encode_line(Sample(node, number, 1.0, gpus))

        def receive(data: bytes = data, stream: int = number * 6 + 1) -> None:
            for line in LineReader().feed(data):
                loop.run_until_complete(registry.receive(line, stream))

        yield receive
    assert sum(agent.sample is not None for agent in registry) == 200
    loop.close()


def efficiency() -> Rounds:
    names = tuple(f"node-{node:04}/gpu-{gpu}" for node in range(NODES) for gpu in range(GPUS))
    pods = {
        f"default/work-{at}": {"main-0": _running(f"default/work-{at}", *name.split("/"))}
        for at, name in enumerate(names)
    }
    numbers = dict.fromkeys(pods, 1)
    meter, draw = GpuUseMeter(), np.random.default_rng(4)
    held = np.full(len(names), 1_000)
    for at in range(ROUNDS):
        busy = np.where(draw.random(len(names)) < 0.2, 0, draw.integers(10, 101, len(names)))
        frame: Frame = {SubjectKind.GPU: KindFrame(names, {"utilisation_percent": busy, "allocated_milli": held})}

        def add(frame: Frame = frame, at: int = at) -> None:
            meter.add(frame, pods, numbers, BEGIN_S + 10 * at)
            assert len(meter.take()) == (len(names) if at else 0)

        yield add
    assert meter.idle, "a fifth of the GPUs do nothing"


def consumption() -> Rounds:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PAST_FILE
        writer = PastWriter(path)
        owners = [
            GpuHolder(f"queue-{queue:03d}", f"user-{queue}-{user}") for queue in range(QUEUES) for user in range(USERS)
        ]
        for day in range(DAYS):
            held = {owner: 1_000 * (60 + at % 90) for at, owner in enumerate(owners)}
            writer.write(PastBatch(BEGIN_S + day * DAY_S, held=held))
        first = BEGIN_S // DAY_S
        query = ConsumptionQuery((Grouping.QUEUE, Grouping.USER), first, first + DAYS)
        reader = PastReader(path)
        for _ in range(10):
            yield lambda: _expect(len(reader.consumption(query)), len(owners))
        reader.close()
        writer.close()


def alert_evaluation() -> Rounds:
    rules, made, memory = RuleSet(rules_of_all_kinds()), MadeSamples(), AlertMemory()
    for at in range(100):  # they teach what is usual
        memory = evaluate(rules, memory, made.sample(at), BEGIN_S + 10 * at).memory
    for at in range(100, 130):
        sample = made.sample(at)

        def look(sample: Frame = sample, at: int = at) -> None:
            nonlocal memory
            memory = evaluate(rules, memory, sample, BEGIN_S + 10 * at).memory

        yield look
    assert memory.alerts, "there are always twenty faults"


def aggregation() -> Rounds:
    scheduler = CycleRunner(None)
    take(scheduler, cluster(NODES))
    overview = ClusterOverview(cast(Any, SimpleNamespace(state=scheduler.state)))
    scheduler.state.snapshot(0)
    overview.rows.apply(
        WorkloadRecord(event.workload) for event in waiting_everywhere() if isinstance(event, WorkloadChanged)
    )
    counts = overview.rows.counts

    def add_up() -> None:
        _expect(overview.sum_nodes().gpus, NODES * GPUS)
        _expect(int(sample_nodes(scheduler.state.nodes).values["gpu_used_milli"].sum()), 0)
        _expect(int(sample_users(overview.rows).values["waiting"].sum()), WAITING)
        _expect(sum(counts.by_queue(WAITS).values()) + sum(counts.by_queue(HOLDS).values()), WAITING)

    for _ in range(ROUNDS):
        yield add_up


def minutes() -> Rounds:
    """Only the samples that end a minute: they roll up the six before."""
    table, measured = virtual_table(), Measurements()
    with tempfile.TemporaryDirectory() as folder:
        writer = SeriesWriter(Path(folder) / FILE)
        for at in range(20 * 6 + 1):
            time_s, frame = BEGIN_S + 10 * at, measured.frame(table, measured.step())
            if at and time_s % MINUTE_S == 0:
                yield lambda time_s=time_s, frame=frame: writer.record(time_s, frame)  # type: ignore[misc]
            else:
                writer.record(time_s, frame)
        writer.close()


def discovery_whole() -> Rounds:
    return _discovery(Box(gpus=GPUS), 0)


def discovery_partitions() -> Rounds:
    return _discovery(Box(gpus=GPUS, compute="CPX", memory="NPS4"), 64)


def _discovery(box: Box, partitions: int) -> Rounds:
    with tempfile.TemporaryDirectory() as folder:
        root = str(write_box(Path(folder), box))
        discover(root)  # the first reading of files is the disk's

        def read() -> None:
            gpus = discover(root, has_telemetry=False).gpus  # as a node agent calls it: it samples afterwards
            _expect(len(gpus), GPUS)
            _expect(sum(len(gpu.partitions) for gpu in gpus), partitions)

        for _ in range(ROUNDS):
            yield read


class _Devices:
    """A cluster that takes what agents report."""

    lists_devices = False

    async def change_devices(self, node: str, change: object) -> None:
        return


def _running(workload: str, node: str, gpu: str) -> Pod:
    return Pod(workload, "main-0", node, Phase.RUNNING, (Share(gpu, 1_000, 196_608),), since_s=1)


def _expect(found: int, due: int) -> None:
    assert found == due, f"{found} found, {due} due"
