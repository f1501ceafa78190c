"""The table of measures: what is recorded over time, of which kind of subject, and in which unit.

Names are API: a measure is never renamed, and its unit never changes. Values are integers of 0 or more.
"""

from enum import StrEnum
from typing import NamedTuple


class SubjectKind(StrEnum):
    CLUSTER = "cluster"  # one subject: `cluster`
    NODE = "node"
    GPU = "gpu"  # `NODE/DEVICE`; a partition is a device, too
    QUEUE = "queue"
    USER = "user"
    SCHEDULER = "scheduler"  # one subject: `scheduler`
    PROCESS = "process"  # one subject: `kaiwo`


class Measure(NamedTuple):
    kind: SubjectKind
    name: str  # ends in its unit, unless it is a count
    help: str


_C, _N, _G, _Q, _U, _S, _P = SubjectKind
MEASURES = (
    Measure(_C, "nodes", "Nodes."),
    Measure(_C, "nodes_out", "Nodes that take no work."),
    Measure(_C, "gpu_milli", "GPU capacity, in thousandths of a GPU."),
    Measure(_C, "gpu_used_milli", "Allocated part of it."),
    Measure(_C, "cpu_milli", "CPU capacity, in thousandths of a CPU."),
    Measure(_C, "cpu_used_milli", "Allocated part of it."),
    Measure(_C, "memory_mib", "Memory of all nodes."),
    Measure(_C, "memory_used_mib", "Allocated part of it."),
    Measure(_C, "running", "Workloads that hold something."),
    Measure(_C, "waiting", "Workloads that wait or are held."),
    Measure(_C, "ended", "Workloads that succeeded or failed since the sample before."),
    Measure(_C, "failed", "Workloads that failed since the sample before."),
    Measure(_C, "pods_failed", "Attempts that failed, and pods lost to failures, since the sample before."),
    Measure(_C, "nodes_failed", "Nodes that do not work, or of which a GPU does not."),
    Measure(_C, "nodes_slow", "Nodes that are far slower than the others."),
    Measure(_C, "ports_down", "Network ports of nodes that worked and are down."),
    Measure(_C, "agents_lost", "Node agents that no longer report."),
    Measure(_N, "gpu_used_milli", "Allocated part of the node's GPUs."),
    Measure(_N, "cpu_milli", "CPU capacity, in thousandths of a CPU."),
    Measure(_N, "memory_mib", "Memory of the node."),
    Measure(_N, "cpu_used_milli", "Allocated CPUs, in thousandths."),
    Measure(_N, "memory_used_mib", "Allocated memory."),
    Measure(_G, "allocated_milli", "Allocated part of the device, in thousandths."),
    Measure(_G, "utilisation_percent", "How busy the device was, as its driver says."),
    Measure(_G, "memory_used_mib", "Used memory of the device, as its driver says."),
    Measure(_G, "memory_mib", "Memory of the device; unknown where no agent reports its use."),
    Measure(_G, "power_w", "Power of the whole GPU; of a partitioned GPU at its first partition."),
    Measure(_G, "temperature_c", "The hottest sensor of the GPU; of a partitioned GPU at its first partition."),
    Measure(_Q, "gpu_used_milli", "What the queue and those below it use."),
    Measure(_Q, "gpu_share_milli", "Its fair share."),
    Measure(_Q, "gpu_quota_milli", "Its quota; unknown where it is unlimited."),
    Measure(_Q, "running", "Workloads of the queue and those below it that hold something."),
    Measure(_Q, "waiting", "Workloads of the queue and those below it that wait or are held."),
    Measure(_U, "gpu_used_milli", "What workloads of the user hold."),
    Measure(_U, "running", "Workloads of the user that hold something."),
    Measure(_U, "waiting", "Workloads of the user that wait or are held."),
    Measure(_S, "cycles", "Scheduling cycles since the sample before."),
    Measure(_S, "cycle_us", "Mean time of these cycles."),
    Measure(_S, "cycle_failures", "Cycles that failed since the sample before."),
    Measure(_S, "starts", "Pods that were started since the sample before."),
    Measure(_S, "evictions", "Pods that were evicted since the sample before."),
    Measure(_S, "idle_gpu_milli", "GPU capacity that works, is free, and takes work."),
    Measure(_S, "stalled_s", "How long there has been work to look at, and no cycle has ended."),
    Measure(_S, "eligible", "Workloads that nothing keeps from starting, and that still wait after half a minute."),
    Measure(_S, "promises_kept", "Planned starts that were kept since the sample before."),
    Measure(_S, "promises_broken", "Planned starts that became later or were dropped since the sample before."),
    Measure(_P, "cpu_permille", "Processor time of Kaiwo's own process, in thousandths of a core."),
    Measure(_P, "memory_mib", "Memory of Kaiwo's own process."),
    Measure(_P, "loop_lag_us", "Lag of the event loop that 99 of 100 wake-ups did not exceed."),
)


# Those that say what came since the sample before. What came in an hour is their sum.
COUNTS = frozenset((each.kind, each.name) for each in MEASURES if each.help.endswith("since the sample before."))


def measures_of(kind: SubjectKind) -> tuple[Measure, ...]:
    return tuple(each for each in MEASURES if each.kind is kind)
