"""The cluster on one screen, its cycles and the version."""

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """How much of a total is used."""

    total: int
    used: int


class ClusterView(msgspec.Struct, frozen=True):
    """What kind of cluster this is, and its clock."""

    kind: str
    name: str
    is_virtual: bool  # the nodes are made up
    speed: float
    now_s: int
    memory_promise: str = ""  # why --memory is a promise and not a limit here; empty: it is a limit
    memory_remedy: str = ""  # what makes it a limit


class CycleView(msgspec.Struct, frozen=True):
    """One scheduling cycle, as the journal keeps it."""

    number: int
    at_s: int
    starts: int
    evictions: int
    waits: int
    steps: int
    took_ms: float
    notes: list[str]


class StatusView(msgspec.Struct, frozen=True):
    """The cluster on one screen."""

    cluster: ClusterView
    nodes: Usage  # used: nodes that run something
    nodes_out: int  # not ready, or cordoned
    gpus: Usage  # whole devices; used: devices with at least one tenant
    gpu_milli: Usage
    cpu_milli: Usage
    memory_mib: Usage
    workloads: dict[str, int]  # by state
    queues: int
    last_cycle: CycleView | None
    version: str


class VersionView(msgspec.Struct, frozen=True):
    """The versions of Kaiwo and of its API."""

    version: str
    api: str
