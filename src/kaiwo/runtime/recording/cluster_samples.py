"""One sample of the cluster: nodes, devices, queues, users and totals, as arrays.

In:    the overview and the agents' last reports.   Out: the values of all subjects of each kind.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.devices.agent_messages import GpuSample
from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.series_writer import KindFrame, Vector
from kaiwo.model.gpus.gpu import without_uuid
from kaiwo.model.queue import UNLIMITED
from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.edge_points.ended_work import EndedWork
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import KnownAgent
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.overview.workload_table import GPU, HOLDS, USER, WAITS, WorkloadRows
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU, MEMORY, MILLI, NodeTable
from kaiwo.telemetry.exporters.gpu_readings import GpuReading

CLUSTER = ("cluster",)
NO_EXPORTERS: Mapping[str, Sequence[GpuReading]] = {}
MEASURED = ("utilisation_percent", "memory_used_mib", "memory_mib", "power_w", "temperature_c")


class DeviceList(NamedTuple):
    """All devices of the cluster, in the order of nodes and columns."""

    names: tuple[str, ...]  # `NODE/DEVICE`
    rows: IntArray
    columns: IntArray
    of_node: dict[str, list["Device"]]


class Device(NamedTuple):
    place: int  # in the list
    id: str
    physical: str  # the id of its GPU
    is_first: bool  # of the partitions of its GPU
    memory_mib: int


class WorkOutcomes:
    """What ended and failed since the sample before."""

    def __init__(self, live: LiveLoop) -> None:
        self._live, self._ended = live, EndedWork(live.cluster)
        self._pods = 0  # that failed, as of the last sample
        self.totals = Counter({"succeeded": 0, "failed": 0, "failed-pod": 0})  # since the start

    def sample(self) -> dict[str, int]:
        ended = [record for record in self._ended.news() if record.state is not WorkloadState.CANCELLED]
        before = self._pods
        self._pods = self._ended.failed_attempts + self._live.cluster.failed_pods + self._live.recoveries.lost
        failed, pods = sum(record.state is WorkloadState.FAILED for record in ended), self._pods - before
        self.totals.update({"succeeded": len(ended) - failed, "failed": failed, "failed-pod": pods})
        return {"ended": len(ended), "failed": failed, "pods_failed": pods}


def sample_health(state: ClusterState, agents: Iterable[KnownAgent]) -> dict[str, int]:
    return {
        "nodes_failed": len(state.failures.nodes),
        "nodes_slow": len(state.speeds.out),
        "ports_down": sum(port.was_up and not port.is_up for ports in list(state.ports.values()) for port in ports),
        "agents_lost": sum(agent.is_lost for agent in agents),
    }


def sample_cluster(overview: ClusterOverview, also: Mapping[str, int]) -> KindFrame:
    """`also`: the measures that others count."""
    sums, states = overview.sum_nodes(), overview.rows.counts
    return KindFrame(
        CLUSTER,
        {
            "nodes": _one(sums.nodes),
            "nodes_out": _one(sums.nodes_out),
            "gpu_milli": _one(sums.gpu_milli),
            "gpu_used_milli": _one(sums.gpu_used_milli),
            "cpu_milli": _one(sums.cpu_milli),
            "cpu_used_milli": _one(sums.cpu_used_milli),
            "memory_mib": _one(sums.memory_mib),
            "memory_used_mib": _one(sums.memory_used_mib),
            "running": _one(sum(map(states.in_state, HOLDS))),
            "waiting": _one(sum(map(states.in_state, WAITS))),
            **{name: _one(value) for name, value in also.items()},
        },
    )


def sample_nodes(table: NodeTable) -> KindFrame:
    held = np.where(table.gpu_model >= 0, table.device_milli - table.gpus[:, MILLI], 0)
    return KindFrame(
        table.names,
        {
            "gpu_used_milli": held.sum(axis=1),
            "cpu_milli": table.cpu_size,
            "memory_mib": table.memory_size,
            "cpu_used_milli": np.maximum(0, table.cpu_size - table.free[:, CPU]),
            "memory_used_mib": np.maximum(0, table.memory_size - table.free[:, MEMORY]),
        },
    )


def sample_devices(
    table: NodeTable, agents: Iterable[KnownAgent], exporters: Mapping[str, Sequence[GpuReading]] = NO_EXPORTERS
) -> KindFrame:
    """Allocation is known of all; use, memory, power and temperature where an agent reports them, or else an exporter
    of the node."""
    devices: DeviceList = table.once("devices of the time series", lambda: _list_devices(table))
    held = (table.device_milli - table.gpus[:, MILLI])[devices.rows, devices.columns]
    measured = {name: [MISSING] * len(devices.names) for name in MEASURED}
    for agent in agents:
        if agent.is_lost or agent.sample is None or agent.node not in devices.of_node:
            continue
        samples = {sample.id: sample for sample in agent.sample.gpus}
        for device in devices.of_node[agent.node]:
            sample = samples.get(device.physical)
            if sample is not None:
                _fill(measured, device, sample)
    for node, readings in exporters.items():
        _fill_from_exporter(measured, devices.of_node.get(node, ()), readings)
    arrays = {name: np.array(values, np.int64) for name, values in measured.items()}
    return KindFrame(devices.names, {"allocated_milli": held, **arrays})


def sample_queues(overview: ClusterOverview) -> KindFrame:
    """Read after `fresh_queues`."""
    totals = overview.sum_queues()
    gpus = [each.shares.terms[0] for each in totals]
    quotas = [MISSING if term.quota is None or term.quota == UNLIMITED else term.quota for term in gpus]
    return KindFrame(
        tuple(each.shares.queue.name for each in totals),
        {
            "gpu_used_milli": _array([each.shares.used[0] for each in totals]),
            "gpu_share_milli": _array([term.share for term in gpus]),
            "gpu_quota_milli": _array(quotas),
            "running": _array([each.running for each in totals]),
            "waiting": _array([each.waiting for each in totals]),
        },
    )


def sample_users(rows: WorkloadRows) -> KindFrame:
    users = rows.users.names
    holds, waits = rows.in_states(HOLDS), rows.in_states(WAITS)
    of_user, gpus = rows.table[USER], np.where(holds, rows.table[GPU], 0)
    used = np.bincount(of_user, weights=gpus, minlength=len(users))
    values = {
        "gpu_used_milli": used.astype(np.int64),
        "running": np.bincount(of_user[holds], minlength=len(users)),
        "waiting": np.bincount(of_user[waits], minlength=len(users)),
    }
    named = np.array([bool(name) for name in users], np.bool_)  # work without a user belongs to nobody
    return KindFrame(tuple(name for name in users if name), {name: each[named] for name, each in values.items()})


def _list_devices(table: NodeTable) -> DeviceList:
    names: list[str] = []
    rows: list[int] = []
    columns: list[int] = []
    of_node: dict[str, list[Device]] = {}
    for row, node in enumerate(table.nodes):
        gpus = {gpu.id: gpu for gpu in node.gpus}
        seen: set[str] = set()
        for device, column in sorted(table.column[row].items(), key=lambda each: each[1]):
            physical = (gpus[device].parent if device in gpus else "") or without_uuid(device)
            of_node.setdefault(node.name, []).append(
                Device(
                    len(names), device, physical, physical not in seen, gpus[device].memory_mib if device in gpus else 0
                )
            )
            seen.add(physical)
            names.append(f"{node.name}/{device}")
            rows.append(row)
            columns.append(column)
    return DeviceList(tuple(names), np.array(rows, np.intp), np.array(columns, np.intp), of_node)


def _fill(measured: dict[str, list[int]], device: Device, sample: GpuSample) -> None:
    """Written out, and not as a loop over names: it runs for 10,000 devices every ten seconds."""
    whole, at = sample.telemetry, device.place
    utilisation, memory = whole.utilisation_percent, whole.memory_used_mib
    for part in sample.partitions:
        if part.id == device.id:
            utilisation, memory = part.busy_percent, part.memory_used_mib
    if utilisation is not None:
        measured["utilisation_percent"][at] = utilisation
    if memory is not None:
        measured["memory_used_mib"][at] = memory
        measured["memory_mib"][at] = device.memory_mib
    if device.is_first:
        if whole.power_w is not None:
            measured["power_w"][at] = whole.power_w
        if whole.temperature_c is not None:
            measured["temperature_c"][at] = whole.temperature_c


def _fill_from_exporter(
    measured: dict[str, list[int]], devices: Sequence[Device], readings: Sequence[GpuReading]
) -> None:
    """By the PCI address where both know it, else by the number of the GPU and of its partition on the node."""
    parts: dict[str, list[Device]] = {}
    for device in devices:
        parts.setdefault(device.physical, []).append(device)
    by_number = list(parts.values())
    for reading in readings:
        mine = parts.get(reading.pci) or (by_number[reading.index] if reading.index < len(by_number) else [])
        if reading.partition >= len(mine):
            continue
        device = mine[reading.partition]
        if any(measured[name][device.place] != MISSING for name in MEASURED):
            continue  # its agent knows better
        for name in MEASURED:
            value = getattr(reading, name)
            if value is not None:
                measured[name][device.place] = value


def _one(value: int) -> Vector:
    return np.array([value], np.int64)


def _array(values: Sequence[int]) -> Vector:
    return np.array(values, np.int64)
