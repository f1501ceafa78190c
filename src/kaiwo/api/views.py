"""The JSON that people and programs see: the API's own words, from which the OpenAPI document is made.

The CLI's `-o json` and the page show exactly these. Integers only: milli-GPU, milli-CPU, MiB, seconds.
"""

from typing import Any, Generic, TypeVar

import msgspec

from kaiwo.model.program import State
from kaiwo.model.workload import Phase

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a listing. `next` is the cursor for `after`; empty at the end."""

    items: list[T]
    total: int
    next: str = ""


class Usage(msgspec.Struct, frozen=True):
    """Used of all there is."""

    total: int
    used: int


class ClusterView(msgspec.Struct, frozen=True):
    """What kind of cluster this is, and its clock."""

    kind: str
    name: str
    is_virtual: bool  # the nodes are made up
    speed: float
    now_s: int


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


class TenantView(msgspec.Struct, frozen=True):
    """A pod's share of one device."""

    workload: str
    pod: str
    milli: int
    mib: int
    phase: Phase


class GpuView(msgspec.Struct, frozen=True):
    """One device and who is on it."""

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


class NodeView(msgspec.Struct, frozen=True):
    """One node with its devices."""

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


class AmountView(msgspec.Struct, frozen=True):
    """One resource of a queue. -1: unlimited."""

    quota: int
    limit: int
    weight: int
    used: int
    waiting: int  # asked for by waiting workloads


class QueueView(msgspec.Struct, frozen=True):
    """One queue with its arithmetic. Used and waiting include the queues below it."""

    name: str
    parent: str
    display_name: str
    priority: int
    depth: int
    is_leaf: bool
    gpu_milli: AmountView
    cpu_milli: AmountView
    memory_mib: AmountView
    running: int
    waiting: int


class ObstacleView(msgspec.Struct, frozen=True):
    """One obstacle: the numbers, the sentence, and what would remove it."""

    reason: str
    sentence: str
    remedy: str
    need: int
    have: int
    unit: str
    subject: str


class PodView(msgspec.Struct, frozen=True):
    """One pod and the devices it holds."""

    name: str
    node: str
    phase: Phase
    since_s: int
    devices: list[str]  # "gpu-3", or "gpu-3:500m" for a share


class WorkloadView(msgspec.Struct, frozen=True):
    """One row of the list. `reason`: the first obstacle's sentence while it waits, then what became of it."""

    name: str
    queue: str
    user: str
    kind: str
    state: State
    priority: int
    wants: str  # "8 pods x 4 GPUs", "0.5 GPU", "16000 MiB of a GPU"
    gpu_milli: int  # asked for in all; a memory request counts by what it was given
    pods: Usage  # used: placed
    submitted_s: int
    started_s: int
    ended_s: int
    attempt: int
    reason: str
    nodes: list[str]
    labels: dict[str, str]


class WorkloadDetail(msgspec.Struct, frozen=True):
    """All there is to say of one workload."""

    summary: WorkloadView
    placed: list[PodView]
    obstacles: list[ObstacleView]
    requests: list[str]  # one sentence a role
    command: list[str]
    image: str
    after: list[str]
    time_limit_s: int
    estimate_s: int
    retries: int
    preemptible: bool
    exit_code: int
    message: str


class ChangeView(msgspec.Struct, frozen=True):
    """One change that would start the workload now."""

    kind: str  # smaller-size | other-model | other-queue | looser-level | quota | stop-workload
    by: str  # researcher | admin
    sentence: str
    command: str  # what to type; empty when there is no one command for it


class WhyView(msgspec.Struct, frozen=True):
    """The answer to: why is my work waiting, and what would start it now."""

    workload: str
    state: State
    answer: str  # one sentence, first
    obstacles: list[ObstacleView]
    position: int  # in its queue, from 1; 0 when it does not wait
    ahead: int  # workloads tried before it
    change: ChangeView | None
    no_change: str  # why there is no change to propose, when there is none
    as_of_s: int


class Outcome(msgspec.Struct, frozen=True):
    """What a write did, one line an object: `workload default/train submitted`."""

    done: list[str]
    warnings: list[str] = []
    names: list[str] = []  # of the workloads it made


class Problem(msgspec.Struct, frozen=True):
    """A refusal: what happened, to what, and what to do. `kind`: invalid | refused | not-found | forbidden | broken."""

    kind: str
    message: str
    field: str = ""


class ReasonForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why somebody cordons or drains a node."""

    reason: str = ""


class VersionView(msgspec.Struct, frozen=True):
    """Which Kaiwo this is."""

    version: str
    api: str


class LoginView(msgspec.Struct, frozen=True):
    """An address that logs one browser in once."""

    path: str


class StreamReset(msgspec.Struct, frozen=True):
    """Data of the event `reset`: the whole page. `key`: how items are named, `name`, `node/id` or `cluster`."""

    view: str
    items: list[Any]  # of the view's own type
    total: int
    next: str
    key: str


class StreamDelta(msgspec.Struct, frozen=True):
    """Data of the event `delta`: what is different from the event before. What is unset did not change."""

    set: list[Any]  # items that are new on the page, or changed
    gone: list[str]  # keys that left the page
    total: int
    order: list[str] | msgspec.UnsetType = msgspec.UNSET  # every key of the page, in order
    next: str | msgspec.UnsetType = msgspec.UNSET
