"""Nodes, their GPUs with what was measured, and node agents."""

import msgspec

from kaiwo.api.views.cluster import Usage
from kaiwo.model.workload import Phase


class MeasuredView(msgspec.Struct, frozen=True):
    """What a device, or a tenant on it, used when its agent last measured it. null: not reported."""

    busy_percent: int | None = None
    memory_mib: int | None = None
    power_w: int | None = None  # of the physical GPU
    temperature_c: int | None = None
    processes: int = 0
    ago_s: int = 0


class TenantView(msgspec.Struct, frozen=True):
    """A pod's share of one device."""

    workload: str
    pod: str
    milli: int
    mib: int
    phase: Phase
    grade: str = ""  # how well it is isolated from its neighbours; see docs/gpu-sharing.md
    measured: MeasuredView | None = None  # null in a stream, and where no agent measures
    queue: str = ""  # of its workload; empty if the pod is not Kaiwo's
    user: str = ""


class GpuView(msgspec.Struct, frozen=True):
    """One GPU and its tenants."""

    node: str
    id: str
    index: int
    model: str
    memory_mib: int
    free_milli: int
    free_mib: int
    healthy: bool
    reason: str
    tenants: list[TenantView]
    profile: str = ""  # of a partition: `CPX+NPS4`
    parent: str = ""  # the physical GPU of which it is a partition
    measured: MeasuredView | None = None  # null in a stream, and where no agent measures
    change: str = ""  # draining | changing, where its partition mode changes; it is not healthy meanwhile


class GpuUseView(msgspec.Struct, frozen=True):
    """How busy the GPUs of each node with an agent are, in percent, in the order of the node's list; null: unknown."""

    nodes: dict[str, list[int | None]]


class NodeView(msgspec.Struct, frozen=True):
    """One node with its GPUs."""

    name: str
    state: str  # ready | cordoned | not-ready
    reason: str
    labels: dict[str, str]
    taints: list[str]
    cpu_milli: Usage
    memory_mib: Usage
    pods: Usage
    gpu_milli: Usage
    gpus: list[GpuView]
    agent: "AgentView | None" = None  # null in a list or a stream, and if no agent has reported


class AgentView(msgspec.Struct, frozen=True):
    """A node's agent."""

    node: str
    state: str  # live | lost: its last report still counts
    version: str  # `this process`: `kaiwo up` itself, without an agent
    heard_ago_s: int
    gpus: int
    notes: list[str]


class TakenView(msgspec.Struct, frozen=True):
    """Number of report lines that were accepted."""

    lines: int
