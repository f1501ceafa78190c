"""What the partition planner looks at, and what it says: values only.

A GPU's `goal` and `is_changing` are what earlier plans left behind, so the planner itself remembers nothing.
"""

import msgspec

from kaiwo.model.partition_modes import Mode, ModeChange, Platform

GpuKey = tuple[str, str]  # node, GPU
NodeResources = tuple[int, ...]  # milli-CPU, MiB, pods, then the extended resources of the cluster, by name
UNKNOWN_S = 24 * 3600  # how long work is taken to last whose end nobody told


class GpuState(msgspec.Struct, gc=False, frozen=True):
    id: str
    mode: Mode
    used: int = 0  # of its partitions, those that hold work; of a whole GPU 1
    free_in_s: int = 0  # until the last of that work is expected to end
    idle_gpu_s: int = 0  # GPU-seconds that its free partitions would stand idle until then
    lost_gpu_s: int = 0  # GPU-seconds of work that would be lost if it were evicted now
    since_s: int = -UNKNOWN_S  # when it took this mode
    goal: Mode | None = None  # the mode for which it takes no more work
    is_changing: bool = False  # being changed at this moment


class Tenant(msgspec.Struct, gc=False, frozen=True):
    """Work on the same GPUs of a node, and what else it holds there: that is free when one of these has drained."""

    gpus: tuple[str, ...]
    amounts: NodeResources


class NodeState(msgspec.Struct, gc=False, frozen=True):
    """A machine whose GPUs can be cut."""

    name: str
    model: str
    gpus: tuple[GpuState, ...]
    platform: Platform = "bare-metal"
    free: NodeResources | None = None  # None: as much as anybody asks for
    tenants: tuple[Tenant, ...] = ()


class PodSize(msgspec.Struct, gc=False, frozen=True):
    """Pods of a need that ask for the same beside their devices."""

    amounts: NodeResources
    count: int
    sharers: int = 1  # pods that one device has room for; `count` is then of devices


class ModeDemand(msgspec.Struct, gc=False, frozen=True):
    """Waiting pods that ask for the same: `count` pods, each with `devices` devices of one node."""

    compute: str  # SPX for whole GPUs
    memory: str = ""  # empty: any
    devices: int = 1
    count: int = 1
    waited_s: int = 0  # the first of them in line
    models: tuple[str, ...] = ()  # any of these; empty: any model
    nodes: frozenset[str] | None = None  # only these; None: any node
    barred: frozenset[GpuKey] = frozenset()  # GPUs that reservations keep for others
    is_share: bool = False  # `count` is then GPUs, on each of which several find room
    sizes: tuple[PodSize, ...] = ()  # of all `count`; empty: they ask for devices alone


class PlannerSettings(msgspec.Struct, gc=False, frozen=True):
    """What a change costs, and when it is worth it."""

    compute_s: int = 60  # a GPU is idle for so long
    memory_s: int = 600  # a drained node is idle for so long
    settle_s: int = 300  # a GPU stays at least so long in a mode
    starve_s: int = 600  # who waits longer may take from a mode that others wait for too
    may_drain: bool = True  # close GPUs in use to new work; their work goes on to its end
    may_evict: bool = False  # end that work, when it loses less than waiting for it
    may_change_memory: bool = True


class ModeChangeStep(msgspec.Struct, gc=False, frozen=True):
    """A GPU of the plan: closed to new work until it is idle, then changed."""

    node: str
    change: ModeChange
    is_due: bool  # nothing runs there: it can be changed now
    waits_s: int = 0  # for its work, and for that of the whole node when the memory mode changes
    takes_s: int = 0  # after that
    idle_gpu_s: int = 0  # GPU-seconds that serve nobody, until the change is done
    evicts: bool = False
    evicted_gpu_s: int = 0  # work that is lost, when it evicts


class PartitionPlan(msgspec.Struct, gc=False, frozen=True):
    """Every GPU that should be in another mode. One that is not named here any more goes back to work as it is."""

    steps: tuple[ModeChangeStep, ...] = ()
    unserved: tuple[ModeDemand, ...] = ()  # what no change that is allowed now would serve
