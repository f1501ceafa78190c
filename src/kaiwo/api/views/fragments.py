"""Free GPU amounts that the mix of requests cannot use, and why."""

import msgspec


class NodeFragmentsView(msgspec.Struct, frozen=True):
    """What is free on one node."""

    node: str
    model: str
    free_gpu_milli: int
    whole_gpus: int  # free ones
    free_cpu_milli: int
    stranded_milli: int  # what no kind of request could use
    reason: str  # no-cpu | too-small | model | node-closed; empty: nothing is stranded
    ratio: float  # the mean part that a request of the mix cannot use


class DomainFragmentsView(msgspec.Struct, frozen=True):
    """What is free in one domain of the network."""

    topology: str
    level: str
    domain: str
    free_gpu_milli: int
    stranded_milli: int
    ratio: float


class KindRoomView(msgspec.Struct, frozen=True):
    """A kind of request that was seen, and how many more pods of it fit."""

    gpus: int
    gpu_milli: int
    cpu_milli: int
    models: list[str]
    part: float  # of all requests with GPUs
    pods: int


class FragmentsView(msgspec.Struct, frozen=True):
    """Fragmentation of the cluster, its domains and its nodes, for the mix of requests that was seen."""

    as_of_s: int
    free_gpu_milli: int
    stranded_milli: int
    ratio: float
    stranded_by: dict[str, int]  # milli, by reason
    nodes: list[NodeFragmentsView]
    domains: list[DomainFragmentsView]
    kinds: list[KindRoomView]
