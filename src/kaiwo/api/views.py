"""The JSON types of the API, from which the OpenAPI document and the page's types are made.

The CLI's `-o json` and the page show exactly these. Integers only: milli-GPU, milli-CPU, MiB, seconds.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kaiwo.model.obstacle import WhyVerdict
from kaiwo.model.priority_cap import DEFAULT_MAX_PRIORITY
from kaiwo.model.queue import ReclaimStrategy, SharePolicy
from kaiwo.model.reservation import AtEnd, ReservationPhase
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import WorkloadState

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a listing. `next` is the cursor for `after`; empty at the end."""

    items: list[T]
    total: int
    next: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What a write did, one line per object: `workload default/train submitted`."""

    done: list[str]
    warnings: list[str] = []
    names: list[str] = []  # workloads that it created, would create or left unchanged


class Problem(msgspec.Struct, frozen=True):
    """A refusal: what happened, to what, and what to do. `kind`: invalid | refused | not-found | forbidden | broken."""

    kind: str
    message: str
    field: str = ""


class LoginView(msgspec.Struct, frozen=True):
    """An address that logs one browser in once."""

    path: str


class SessionForm(msgspec.Struct, frozen=True):
    """The code of a login address."""

    code: str


class SessionView(msgspec.Struct, frozen=True):
    """A token for one browser."""

    token: str
    expires_in_s: int


class IdentityView(msgspec.Struct, frozen=True):
    """Who makes this request, as the server sees it."""

    name: str
    role: str
    queues: list[str]  # into which they may submit, with those below; `*`: all
    rights: list[str]
    credential: str  # the ID of the token, or the name of the login
    expires_in_s: int  # 0: never


class PluginView(msgspec.Struct, frozen=True):
    """A plugin: where it comes from, whether it is confined, what it costs, and when it last failed."""

    name: str
    version: str
    state: str  # active | disabled | set-aside | not-allowed | refused
    kinds: list[str]
    run: str  # built-in | confined | trusted
    source: str
    sha256: str  # of its files
    grade: str  # of its confinement: full, or what the kernel lacks
    detail: str  # why it is not active
    calls: int  # of the worker
    mean_us: int
    longest_us: int
    faults: int
    last_fault: str
    last_fault_s: int  # 0: never
    dependencies: list[str]
    description: str


class TokenView(msgspec.Struct, frozen=True):
    """A person's token. Its secret is shown once, when it is made."""

    id: str
    name: str  # of the person
    role: str
    state: str  # valid | expired | revoked
    queues: list[str]
    created_s: int
    created_by: str
    expires_s: int  # 0: never
    last_used_s: int  # exact to the hour; 0: never
    revoked_s: int  # 0: not
    rotations: int
    former_until_s: int  # until then the secret before the last rotation is good; 0: it is not


class NewTokenView(msgspec.Struct, frozen=True):
    """A token with its new secret, which is not stored and cannot be shown again."""

    token: TokenView
    secret: str


MAX_NAME = 63  # characters of a person's name
MAX_TOKEN_QUEUES = 100
MAX_TOKEN_S = 10 * 366 * 86_400
MAX_GRACE_S = 30 * 86_400
Lifetime = Annotated[int, Meta(ge=0, le=MAX_TOKEN_S)]


class TokenForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new token for a person."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+:-]*$", max_length=MAX_NAME)]
    role: Literal["viewer", "user", "operator", "admin", "scraper"]
    queues: Annotated[list[str], Meta(max_length=MAX_TOKEN_QUEUES)] = []  # for the role user; ["*"]: all
    expires_in_s: Lifetime = 90 * 86_400  # 0: never


class RotateForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the present secret stays good, and when the token ends (unset: as before)."""

    grace_s: Annotated[int, Meta(ge=0, le=MAX_GRACE_S)] = 86_400
    expires_in_s: Lifetime | UnsetType = UNSET


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
    order: list[str] | UnsetType = UNSET  # every key of the page, in order
    next: str | UnsetType = UNSET


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


class ReasonForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a node is cordoned or drained."""

    reason: str = ""


class AuditRecordView(msgspec.Struct, frozen=True):
    """One change: who made it, and how it ended. `old` and `new` are JSON; empty: there was none."""

    n: int
    at: str
    person: str
    role: str
    credential: str
    action: str
    object: str
    old: str
    new: str
    reason: str
    outcome: str  # done | refused | failed | begun: nothing says how it ended
    detail: str


class AuditPageView(msgspec.Struct, frozen=True):
    """Records of the audit, the newest first. `next` is `before` of the next page; 0 at the end."""

    items: list[AuditRecordView]
    next: int
    count: int  # number of the last record of all
    head: str  # its hash


class TakenView(msgspec.Struct, frozen=True):
    """Number of report lines that were accepted."""

    lines: int


class PartitionStepView(msgspec.Struct, frozen=True):
    """One change of a GPU's partition mode: planned, under way or done."""

    node: str
    gpu: str
    before: str  # SPX+NPS1
    after: str
    state: str  # planned | draining | due | changing; of the past: done | refused | busy | rolled-back | stuck
    waits_s: int = 0  # at most, for the work on it to end
    takes_s: int = 0  # for the change itself, after that
    idle_gpu_s: int = 0  # GPU-seconds that stay idle until it is done
    evicted_gpu_s: int = 0  # always 0: a change waits until the work on the GPU has ended
    at_s: int = 0  # when a past change ended
    reason: str = ""


class PlanNodeView(msgspec.Struct, frozen=True):
    """The state of one node under a PartitioningPlan."""

    node: str
    profile: str
    state: str  # done | changing | draining | pending | dry-run | refused
    reason: str


class PlanView(msgspec.Struct, frozen=True):
    """A PartitioningPlan."""

    name: str
    state: str  # on | dry-run | paused | off
    nodes: list[PlanNodeView]


class PartitionsView(msgspec.Struct, frozen=True):
    """The partition modes: what is planned, what is under way, and what was done."""

    policy: str  # off | dry-run | on
    carried_out_by: str
    as_of_s: int
    steps: list[PartitionStepView]  # the first thousand
    total: int
    idle_gpu_s: int  # GPU-seconds that the plan leaves idle
    unserved: list[str]  # waiting work that no allowed change would serve
    plans: list[PlanView]
    conflicts: list[str]
    history: list[PartitionStepView]


class TopologyLevelView(msgspec.Struct, frozen=True):
    """One level of a topology."""

    name: str
    node_label: str  # empty: its domains are written down
    domains: int
    nodes: int  # nodes that are in one of them


class TopologyDomainView(msgspec.Struct, frozen=True):
    """A set of nodes that share a switch, a rack or a block."""

    name: str
    level: str
    parents: list[str]
    nodes: list[str]
    gpu_milli: int
    free_gpu_milli: int
    links: int  # working links up
    dead_links: int
    link_mb_s: int  # what the working links carry together; 0: not known
    port_mb_s: int  # what the ports of its nodes can send; 0: not known
    oversubscription_milli: int  # 1200: its nodes can send 1.2 times what its links carry; 0: not known
    active_nodes: int  # nodes whose workloads also run in other domains of this level
    share_mb_s: int  # what each active node gets of the links; 0: not known
    used_by: list[str]  # these workloads


class TopologyLinkView(msgspec.Struct, frozen=True):
    """Equal parallel links."""

    lower: str
    upper: str
    mb_s: int  # of one link; 0: not known
    count: int
    dead: int
    state: str  # up | degraded | down
    used_mb_s: int  # measured traffic of all of them
    used_by: list[str]  # workloads with pods below it and elsewhere


class TopologyFindingView(msgspec.Struct, frozen=True):
    """One thing about the network that people should know."""

    kind: str
    subject: str
    detail: str


class NetworkTopologyView(msgspec.Struct, frozen=True):
    """One source's picture of the network."""

    name: str
    source: str
    fault: str  # why the current version of its source is not in force; empty: it is
    levels: list[TopologyLevelView]  # the widest first
    domains: list[TopologyDomainView]
    links: list[TopologyLinkView]
    findings: list[TopologyFindingView]


class TopologyView(msgspec.Struct, frozen=True):
    """The network: domains, links, who uses them, and where its sources disagree."""

    as_of_s: int
    topologies: list[NetworkTopologyView]
    contradictions: list[TopologyFindingView]
    faults: list[str]  # of sources that could never be read


class PolicyForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether partition modes change for waiting work."""

    policy: Literal["off", "dry-run", "on"]


class AmountView(msgspec.Struct, frozen=True):
    """One resource of a queue. -1: unlimited."""

    quota: int
    limit: int
    weight: int
    used: int
    waiting: int  # requested by waiting work
    fixed: int  # the part of `used` that may not be preempted
    share: int  # the fair share as of now; `/shares` has its arithmetic


class ModelAmountView(msgspec.Struct, frozen=True):
    """What a queue may have of one GPU model and has, in milli-GPU. -1: unlimited."""

    quota: int
    limit: int
    used: int
    fixed: int  # the part of it that may not be preempted
    share: int


class QueueView(msgspec.Struct, frozen=True):
    """One queue with its numbers. Used and waiting include the queues below it."""

    name: str
    parent: str
    display_name: str
    priority: int
    depth: int
    is_leaf: bool
    gpu_milli: AmountView
    cpu_milli: AmountView
    memory_mib: AmountView
    gpu_models: dict[str, ModelAmountView]
    running: int
    waiting: int
    policy: SharePolicy  # how its child queues divide; its own or inherited
    reclaim_strategy: ReclaimStrategy  # how much capacity it may reclaim
    min_runtime_s: int  # its work runs at least this long before another queue may evict it
    namespaces: list[str]  # namespaces that may submit to it; empty: all
    users: list[str]
    created_s: int
    max_priority: int = DEFAULT_MAX_PRIORITY  # of its work; its own or inherited
    share_with: list[str] = []  # who may share a GPU with its work, by its own rule; empty: anyone
    max_threads: int = 0  # percent of the multiprocessors for one share, by its own bound; 0: it has none
    default_threads: int = 0  # percent of the multiprocessors of a share that asks for none; 0: as its share
    max_share_mib: int = 0  # memory of one share on one device, by its own bound; 0: it has none


class TermsView(msgspec.Struct, frozen=True):
    """Every term of one resource's share: share = deserved + part + remainder. -1: unlimited."""

    resource: str  # gpu | cpu | memory, in milli-GPU, milli-CPU and MiB
    total: int  # what the queue and its siblings divide
    used: int
    fixed: int
    waiting: int
    wants: int  # used and waiting together
    quota: int
    limit: int
    deserved: int  # the least of quota, wants and limit
    offered: int  # the amount divided by weight, after all got what they deserve
    weight: int
    weights: int  # the sum over all that still wanted more; 0: nothing was divided by weight
    part: int  # offered * weight / weights, rounded down; or all that it wants
    remainder: int  # its part of what rounding left over
    share: int
    arithmetic: list[str]  # the same as sentences


class TurnView(msgspec.Struct, frozen=True):
    """A queue's turn among the siblings with waiting work. Its keys count in this order."""

    place: int  # 1: it is next
    of: int
    workload: str  # the workload of the queue that is tried first
    policy_key: int  # what the policy compares first: the priority or the submission time; else 0
    is_over_share: bool
    is_over_quota: bool  # with that workload
    priority: int
    has_no_share: bool  # it has no share of a resource that the workload would use
    dominant_with_it_ppm: int  # its dominant share with that workload
    dominant_ppm: int  # its dominant share now
    gpu_milli: int  # what the workload needs
    age: int  # 0: the oldest queue


class WaitingWorkloadView(msgspec.Struct, frozen=True):
    """One of the first workloads of a queue; the smallest keys come first."""

    workload: str
    priority: int
    submitted_s: int
    keys: list[list[int]]  # one row for each order plugin


class ShareView(msgspec.Struct, frozen=True):
    """The fair share of one queue, every term of every number."""

    queue: str
    parent: str
    depth: int
    policy: SharePolicy  # by which it and its siblings divide
    reclaim: str  # how much it may reclaim, in one sentence
    resources: list[TermsView]
    turn: TurnView | None  # None: nothing waits in it
    orders: list[str]  # the order plugins that sort its work
    line: list[WaitingWorkloadView]  # the first few


class DeviceView(msgspec.Struct, frozen=True):
    """One physical GPU."""

    node: str
    gpu: str


class ReservationView(msgspec.Struct, frozen=True):
    """GPUs that are reserved for an owner from a start to an end."""

    name: str
    phase: ReservationPhase
    owner_kind: str  # queue | user | workload | pool
    owner: str  # empty for a pool
    gpus: int  # physical GPUs that it has, or will have
    missing: int  # requested GPUs that do not exist or were not found yet
    gpu_milli: int  # all of it
    used_milli: int  # held by work that may use it
    start_s: int  # 0: since it was made
    end_s: int  # 0: never
    at_end: AtEnd
    created_s: int
    is_exact: bool  # nodes or devices were named; else the scheduler picked them
    gpu_models: list[str]
    node_selector: dict[str, str]
    nodes: list[str]  # reserved whole
    devices: list[DeviceView]
    others: list[str]  # workloads of others that still run on its GPUs
    message: str


class OwnerForm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The owner of a reservation: exactly one of these."""

    queue: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    workload: str | UnsetType = UNSET


class ReservationForm(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The form that creates a reservation. `manifests.kinds.reservation` reads it; this describes it."""

    name: str
    gpus: Annotated[int, Meta(ge=1, description="Number of GPUs, which the scheduler picks.")] | UnsetType = UNSET
    gpu_models: list[str] | UnsetType = UNSET
    node_selector: dict[str, str] | UnsetType = UNSET
    nodes: Annotated[list[str], Meta(description="These nodes with all their GPUs.")] | UnsetType = UNSET
    devices: Annotated[list[DeviceView], Meta(description="Exactly these GPUs.")] | UnsetType = UNSET
    owner: (
        Annotated[OwnerForm, Meta(description="Owner (default: none, a pool for all work that names it).")] | UnsetType
    ) = UNSET
    start: Annotated[str, Meta(description='"2026-01-31T18:00:00Z", or "2h" from now')] | UnsetType = UNSET
    end: Annotated[str, Meta(description='"2026-02-01T06:00:00Z", or "8h" after the start')] | UnsetType = UNSET
    at_end: Literal["keep", "evict"] | UnsetType = UNSET


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
    """One row of the list. `reason`: the first obstacle's sentence while it waits, later how it ended."""

    name: str
    queue: str
    user: str
    kind: str
    state: WorkloadState
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
    planned_s: int = 0  # its planned start, while it waits; 0: it has none


class PastAttemptView(msgspec.Struct, frozen=True):
    """One attempt of a workload: where it ran, and how it ended."""

    attempt: int  # the first is 1
    started_s: int
    ended_s: int  # 0: it still runs
    exit_code: int
    message: str  # why it ended, or who stopped it
    nodes: list[str]
    devices: list[str]  # node/device; a share as node/device:500m
    peak_mib: int = 0  # the most memory that one of its pods used; 0: not known


class DomainChoiceView(msgspec.Struct, frozen=True):
    """The domain of the network that was chosen for a workload or a part of it, and what spoke for it."""

    part: str  # a sub-group, a role, or a segment of a role; empty: the whole workload
    topology: str
    level: str  # empty: no single domain had room
    domain: str
    strategy: str
    score: int  # the weighted terms; each is from 0 to 1000
    availability: int
    alignment: int
    utilisation: int
    performance: int
    sentence: str


class WorkloadDetail(msgspec.Struct, frozen=True):
    """All details of one workload."""

    summary: WorkloadView
    placed: list[PodView]
    obstacles: list[ObstacleView]
    requests: list[str]  # one sentence for each role
    command: list[str]
    image: str
    after: list[str]
    time_limit_s: int
    estimate_s: int
    learned_s: int  # how long runs like it took; 0: too few are known
    retries: int
    preemptible: bool
    exit_code: int
    message: str
    reservation: str = ""  # it runs only on the GPUs of this reservation
    expires_s: int = 0  # its allocation is released then; 0: never
    planned: str = ""  # when and where it is planned to start, and why then
    preemption_delay_s: int = 0  # it waits this long before it may preempt others
    checkpoint_s: int = 0  # its last checkpoint; 0: none was reported
    restart_s: int = 0  # how long it takes after a restart to get back to that checkpoint
    submission: int = 1  # how often its name has been submitted, with this one
    submissions: list[int] = []  # the submissions of its name that are kept, the first one first
    attempts: list[PastAttemptView] = []  # the attempts that are kept, the first one first
    incomplete: str = ""  # a gang below its minimum: what runs, and when that is stopped
    kept_places: str = ""  # places that are kept for the replacements of its lost pods
    asked_priority: int | None = None  # where less counts: the priority that it asks for
    capped_priority: str = ""  # why less counts
    topology: str = ""  # whose levels the next fields name; empty: the first that has them
    required_level: str = ""  # all its pods run in one domain of this level
    preferred_level: str = ""  # the same if one has room
    placement_strategy: str = ""  # how its pods are placed on these levels; empty: as the policy says
    segment_size: int = 0  # this many pods share one domain of the segment level; 0: it has no segments
    segment_level: str = ""
    domains: list[DomainChoiceView] = []  # of the network, where its pods were placed
    memory_promise: str = ""  # why its --memory is a promise and not a limit; empty: it is a limit, or not given
    hidden: str = ""  # what is not shown to you, and why; empty: you see everything
    may_change: bool = False  # whoever asks may hold, requeue and cancel it here
    secret_env: list[str] = []  # names of its variables whose values are secret


class ChangeView(msgspec.Struct, frozen=True):
    """One change that would start the workload now."""

    kind: str  # share-with-anyone | smaller-size | other-model | other-queue | looser-level | quota | stop-workload
    by: str  # researcher | admin
    sentence: str
    command: str  # what to type; empty when there is no one command for it


class WhyView(msgspec.Struct, frozen=True):
    """Why a workload waits, and what would start it now."""

    workload: str
    state: WorkloadState
    answer: str  # one sentence, first
    obstacles: list[ObstacleView]
    position: int  # in its queue, from 1; 0 when it does not wait
    ahead: int  # workloads tried before it
    change: ChangeView | None
    no_change: str  # what was found instead, in full sentences, when there is no change to propose
    as_of_s: int
    partitions: str = ""  # what the partition planner does for it, when that matters
    planned: str = ""  # when and where it is planned to start, and why then
    verdict: WhyVerdict | None = None  # what the search for a change found; None: an older server
    searched_all: bool = True  # False: not every possible change was tried
    capped_priority: str = ""  # why less counts than the priority that it asks for


class AttemptView(msgspec.Struct, frozen=True):
    """One start of a pod."""

    attempt: int  # the first is 1
    is_over: bool


class AttemptsView(msgspec.Struct, frozen=True):
    """The attempts whose logs are kept, the first one first, and the workload's state."""

    attempts: list[AttemptView]
    state: WorkloadState


class ConsoleView(msgspec.Struct, frozen=True):
    """Whether it reads from a terminal, and the folder on the server with the socket for that."""

    is_interactive: bool
    folder: str  # empty: not now


MAX_NAMES = 1000  # in one request: they are one change, and others wait for it


class NamesForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The workloads to act on, as `namespace/name`."""

    names: Annotated[list[str], Meta(min_length=1, max_length=MAX_NAMES)]


class ActionResult(msgspec.Struct, frozen=True):
    """The result for one workload: what was done, or why not."""

    name: str
    done: str  # empty: nothing
    problem: Problem | None = None


class BulkOutcome(msgspec.Struct, frozen=True):
    """One result for each name, in their order; a duplicate name has one."""

    results: list[ActionResult]


class CheckpointForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a workload saved its work."""

    at: Annotated[
        str | int, Meta(description='"2026-01-31T18:00:00Z", or whole seconds since 1970; now when left out')
    ] = ""
