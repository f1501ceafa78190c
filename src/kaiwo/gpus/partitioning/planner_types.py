"""The input and output of the partition planner.

The planner keeps no state: `GpuState.goal` and `is_changing` say what earlier plans began.
"""

import msgspec

from kaiwo.model.gpus.partition_modes import Mode, ModeChange, Platform

GpuKey = tuple[str, str]  # node, GPU
NodeResources = tuple[int, ...]  # milli-CPU, MiB, pods, then the extended resources of the cluster, by name
UNKNOWN_S = 24 * 3600  # assumed duration of work without an estimate


class GpuState(msgspec.Struct, gc=False, frozen=True):
    id: str
    mode: Mode
    used: int = 0  # partitions in use; 1 for a whole GPU
    free_in_s: int = 0  # until the last work on it is expected to end
    idle_gpu_s: int = 0  # GPU-seconds that its free partitions would be idle until then
    since_s: int = -UNKNOWN_S  # when it took this mode
    goal: Mode | None = None  # the mode for which it is closed to new work
    is_changing: bool = False  # being changed at this moment

    @property
    def waits_s(self) -> int:
        return self.free_in_s if self.used else 0


class Tenant(msgspec.Struct, gc=False, frozen=True):
    """Workloads on the same GPUs of a node, and their other resources, which are free once one of them has drained."""

    gpus: tuple[str, ...]
    amounts: NodeResources


class NodeState(msgspec.Struct, gc=False, frozen=True):
    """A node whose GPUs have partition modes."""

    name: str
    model: str
    gpus: tuple[GpuState, ...]
    platform: Platform = "bare-metal"
    free: NodeResources | None = None  # None: unlimited
    tenants: tuple[Tenant, ...] = ()


class PodSize(msgspec.Struct, gc=False, frozen=True):
    """Pods of a demand with equal requests besides their devices."""

    amounts: NodeResources
    count: int
    sharers: int = 1  # pods that fit on one device; if more than one, `count` is of devices


class ModeDemand(msgspec.Struct, gc=False, frozen=True):
    """Waiting pods that ask for the same: `count` pods, each with `devices` devices of one node."""

    compute: str  # SPX for whole GPUs
    memory: str = ""  # empty: any
    devices: int = 1
    count: int = 1
    waited_s: int = 0  # the oldest of them
    models: tuple[str, ...] = ()  # any of these; empty: any model
    nodes: frozenset[str] | None = None  # only these; None: any node
    barred: frozenset[GpuKey] = frozenset()  # GPUs that reservations keep for other workloads
    is_share: bool = False  # then `count` is the number of GPUs, and several pods fit on each
    sizes: tuple[PodSize, ...] = ()  # of all `count`; empty: they ask for devices only


class PlannerSettings(msgspec.Struct, gc=False, frozen=True):
    """The cost of changes, and which changes are allowed."""

    compute_s: int = 60  # how long a GPU is idle for a change of its compute mode
    memory_s: int = 600  # how long a drained node is idle for a change of its memory mode
    settle_s: int = 300  # how long a GPU stays in a mode at least
    starve_s: int = 600  # a demand that has waited longer may take GPUs from a mode that others wait for
    may_drain: bool = True  # close GPUs in use to new work, and wait until they are idle
    may_change_memory: bool = True


class ModeChangeStep(msgspec.Struct, gc=False, frozen=True):
    """The change of one GPU: it is closed to new work until it is idle, then changed."""

    node: str
    change: ModeChange
    is_due: bool  # it is idle and can be changed now
    waits_s: int = 0  # until its work has ended; for a memory mode, that of the whole node
    takes_s: int = 0  # the change itself
    idle_gpu_s: int = 0  # GPU-seconds without work until the change is done


class PartitionPlan(msgspec.Struct, gc=False, frozen=True):
    """Every GPU that should change its mode. A GPU that is no longer listed reopens in its current mode."""

    steps: tuple[ModeChangeStep, ...] = ()
    unserved: tuple[ModeDemand, ...] = ()  # demands that no allowed change would serve
