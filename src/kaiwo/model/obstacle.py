"""Why a workload waits: codes, numbers, and the facts behind them. The codes are API: never renamed, never reused.

Each code has one sentence in `explain`. Facts hold what it needs besides the numbers, so that no code parses text.
"""

import enum

import msgspec

from kaiwo.model.reservation import ReservationOwner


class Reason(enum.StrEnum):
    """One kind of obstacle."""

    HELD = "held"
    DEPENDENCY = "waits-for-workload"
    DEPENDENCY_FAILED = "dependency-failed"
    NOT_BEFORE = "not-before"
    ARRAY_SLOTS = "array-slots-in-use"  # its array runs at most so many tasks at once
    NO_QUEUE = "no-such-queue"
    QUEUE_NOT_LEAF = "queue-has-children"
    QUEUE_ACCESS = "queue-not-for-it"  # its queue lists namespaces or users, and it is of none of them
    QUEUE_LIMIT = "queue-limit"
    QUEUE_QUOTA = "queue-quota"
    NO_NODES = "no-nodes"
    NODE_NOT_READY = "node-not-ready"
    NODE_CORDONED = "node-cordoned"
    NODE_RULES = "node-rules"
    NODE_TAINTED = "node-tainted"
    NODE_AVOIDED = "node-avoided"
    BANDWIDTH = "not-enough-bandwidth"  # of the links between its pods
    DOMAIN_CLOSED = "domain-closed"  # by the access rules of a topology
    PODS_NOT_NEAR = "no-required-pods-near"
    PODS_TOO_NEAR = "other-pods-too-near"
    PODS_UNEVEN = "pods-spread-unevenly"
    PORT_TAKEN = "host-port-taken"
    GPU_MODEL = "no-such-gpu-model"
    GPU_UNHEALTHY = "gpu-unhealthy"
    GPU_ISOLATION = "gpu-isolation-too-weak"
    MAY_NOT_SHARE = "may-not-share-gpu"  # enough is free on GPUs whose tenants it may not share with
    SHARE_TOO_LARGE = "gpu-share-too-large"  # its queue or every node allows less memory for one share
    PARTITION_MODE = "needs-another-partition-mode"
    NOT_ENOUGH_GPUS = "not-enough-gpus"  # no node has that many, even when empty
    NOT_ENOUGH_GPU_MEMORY = "not-enough-gpu-memory"  # no device is that large
    NOT_ENOUGH_FREE_GPUS = "not-enough-free-gpus"
    NOT_ENOUGH_FREE_GPU_SHARE = "not-enough-free-gpu-share"
    NOT_ENOUGH_FREE_GPU_MEMORY = "not-enough-free-gpu-memory"
    NOT_ENOUGH_CPU = "not-enough-cpu"
    NOT_ENOUGH_MEMORY = "not-enough-memory"
    NOT_ENOUGH_PODS = "not-enough-pod-slots"
    NOT_ENOUGH_EXTENDED = "not-enough-extended-resource"
    GANG = "gang-does-not-fit"
    LEVEL = "no-domain-with-room"  # no domain of a required level has room for all of its pods
    OVER_FAIR_SHARE = "queue-at-fair-share"  # so it may not reclaim from other queues
    NOT_ENOUGH_RECLAIMABLE = "not-enough-reclaimable"  # proved: evicting all that may be evicted is not enough
    NO_WAY_TO_RECLAIM = "no-way-to-reclaim"  # undecided: enough may be reclaimed, but the search found no victims
    PATIENT = "waits-out-its-delay"  # it asked to wait for a while before others are preempted for it
    HELD_OFF = "waits-out-hold-off"  # it was preempted recently and may not preempt others yet
    NO_WAY_TO_PREEMPT = "no-way-to-preempt"  # work of lower priority runs in its queue, but is protected
    RESERVED = "reserved-for-others"
    RESERVATION = "reservation-not-usable"  # the one it names does not exist, is not active, or has another owner
    EXPIRED = "allocation-expired"
    NOMINATED = "space-kept-for-others"
    PROMISED = "planned-start-of-others"  # it would fit, but would not end in time
    RELEASING = "waits-for-release"
    PLUGIN = "refused-by-plugin"
    NOT_PERMITTED = "start-not-permitted"  # it had a place, and a plugin did not let it start there yet
    NOT_TRIED = "not-tried-yet"  # the cycle's step budget ran out first


class LargerNodes(enum.StrEnum):
    """What there is beyond the nodes that a pod may use, when none of those is large enough."""

    NONE = "none"
    LARGE_ENOUGH = "large-enough"  # excluded by a filter or a reservation
    ALSO_TOO_SMALL = "also-too-small"  # larger, excluded, and still not large enough


class GangLimit(enum.StrEnum):
    """What is too small for a gang even if nothing ran."""

    CLUSTER = "cluster"  # all GPUs of the cluster
    ALLOWED_NODES = "allowed-nodes"  # the nodes that it may use
    UNRESERVED = "unreserved"  # what reservations leave to it


class ReclaimScope(enum.StrEnum):
    """The part of the cluster over which the sum was taken that proves that too little can be reclaimed."""

    CLUSTER = "cluster"
    ALLOWED_DEVICES = "allowed-devices"
    ALLOWED_NODES = "allowed-nodes"


class ReservationProblem(enum.StrEnum):
    """Why the reservation that a workload names cannot be used."""

    ABSENT = "absent"  # it is over, or never existed
    EMPTY = "empty"  # it has no GPUs, so work without GPUs has no nodes there
    OTHER_OWNER = "other-owner"
    NOT_STARTED = "not-started"


class RunTimeSource(enum.StrEnum):
    """What the expected run time is based on, where that is not the owner's own estimate."""

    EARLIER_RUNS = "earlier-runs"
    TIME_LIMIT = "time-limit"  # it may not be preempted, so only a time limit counts


# Facts. Their tags and field names are stored in journals: they stay as they are.


class ProtectedByBudget(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="disruption-budget"):
    """GPUs of running work that disruption budgets protect."""

    queue: str
    milli: int
    workloads: tuple[str, ...]  # the first few
    more: int = 0
    why: str = ""  # where that is more than a budget's count


class ProtectedByMinRunTime(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="min-run-time"):
    """GPUs of running work that has not run long enough to be evicted."""

    queue: str
    milli: int
    least_s: int


class EvictionBudgetSpent(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="eviction-budget"):
    """A queue that has lost as many workloads as it may within an hour."""

    queue: str
    per_hour: int


Protection = ProtectedByBudget | ProtectedByMinRunTime | EvictionBudgetSpent


class NodesExcluded(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="nodes-excluded"):
    excluded: int
    total: int


class BandwidthShort(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="bandwidth-short"):
    """What each pod needs, and what the fastest node can send, in MB/s."""

    need_mb_s: int
    port_mb_s: int


class ClosedDomains(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="closed-domains"):
    """Nodes in domains that the workload's queue and namespace may not use."""

    domains: tuple[str, ...]  # the first of them, by name
    more: int  # how many others
    excluded: int
    total: int


class VendorMissing(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="vendor-missing"):
    """No node has a GPU of the vendor that the requested resource names."""

    vendor: str
    nodes: int


class TopologyLabelMissing(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="topology-label-missing"):
    """No node has the label over whose values pods must be spread."""

    label: str


class ClosestNode(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="closest-node"):
    """Each resource is free somewhere, but never all on one node: this node comes closest."""

    node: str


class SizeBound(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="size"):
    """No node that it may use is large enough, even when empty.

    `node`: each resource is enough on some node, but never all on one, and this node comes closest.
    """

    larger: LargerNodes = LargerNodes.NONE
    node: str = ""

    @property
    def is_of_all_nodes(self) -> bool:
        """No other node would do either, and none is excluded."""
        return self.larger is LargerNodes.NONE


class NotOffered(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="not-offered"):
    """No node offers the resource at all."""


class MoreBesideTenants(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="more-beside-tenants"):
    """More is free on devices whose tenants it could not be isolated from."""


class SharedByOthers(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="shared-by-others"):
    """GPUs with enough free are used by work with which it may not share them."""

    queues: tuple[str, ...]  # of that work: the first few
    rule: tuple[str, ...] = ()  # with whom it shares; empty: the others or the node exclude it
    is_own: bool = False  # it asked for that rule itself


class ShareBound(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="share-bound"):
    """Who bounds the memory of one share."""

    queue: str = ""  # empty: the nodes do


class MpsOnAmd(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="mps-on-amd"):
    """It asks for MPS, and all GPUs are AMD's, which have none."""


class ModelsPresent(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="models-present"):
    models: tuple[str, ...]


class ModeMissing(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="mode-missing"):
    """GPUs could change to the mode that it needs."""

    node: str = ""  # the closest one; empty: no GPU of the cluster is in that mode
    changing: int = 0  # GPUs that are changing to it


class ModelModes(msgspec.Struct, gc=False, frozen=True):
    model: str
    modes: tuple[str, ...]


class NoSuchMode(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="no-such-mode"):
    """No GPU model of the cluster supports the mode."""

    supported: tuple[ModelModes, ...]


class GangBound(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="gang-bound"):
    """The gang would not fit even if nothing ran."""

    limit: GangLimit


class LevelShort(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="level-short"):
    """The domain of a required level that comes closest."""

    level: str
    domain: str = ""  # empty: no node is in a domain of this level
    topology: str = ""
    is_home: bool = False  # other pods of it run there, so no other domain counts
    known: tuple[str, ...] = ()  # where the level does not exist: those that do
    is_too_small: bool = False  # no domain of this level has room, even if nothing else ran


class QueueTakes(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="queue-takes"):
    """Whose work the queue takes, and whose it is."""

    field: str  # namespaces | users
    listed: tuple[str, ...]  # the first few
    more: int = 0
    whose: str = ""  # its namespace or its user; empty: its user is unknown


class QueueBound(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="queue-bound"):
    """The limit or quota itself, of which `have` is what is left."""

    bound: int
    model: str = ""  # of one GPU model


class NeverReclaims(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="never-reclaims"):
    """The queue's reclaimStrategy is none."""


class OverQuota(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="over-quota"):
    """The queue may reclaim up to its quota, not up to its fair share."""


class QueueAmount(msgspec.Struct, gc=False, frozen=True):
    queue: str
    amount: int


class ReclaimBound(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="reclaim-bound"):
    """The sum that proves that too little can be reclaimed."""

    free: int
    moved: int = 0  # the most that moving work brings
    queues: tuple[QueueAmount, ...] = ()  # the first few
    scope: ReclaimScope = ReclaimScope.CLUSTER
    models: tuple[str, ...] = ()  # of these GPU models only
    resource: str = ""  # an extended resource
    protections: tuple[Protection, ...] = ()


class NodeBound(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="node-bound"):
    """No node would have enough, even if everything were evicted that may be."""

    short_of: Reason | None = None  # None: there is room for too few pods
    resource: str = ""  # an extended resource
    protections: tuple[Protection, ...] = ()
    level: str = ""  # no domain of this level would have room for all pods
    domain: str = ""  # the one that comes closest


class SearchGaveUp(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="search-gave-up"):
    """Undecided: enough could be reclaimed, but the search found no set of victims."""

    tried: int  # victim units that were tried; 0: none runs where it would help
    protections: tuple[Protection, ...] = ()


class WorkProtected(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="work-protected"):
    protections: tuple[Protection, ...]


class WaitsUntil(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="waits-until"):
    """When it may preempt others."""

    at_s: int


class RetryReason(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="retry-reason"):
    """Why it is tried again only later, in the cluster's words."""

    why: str


class FloatingPool(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="floating-pool"):
    """A resource that is counted over all nodes together."""

    total: int


class RunTime(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="run-time"):
    source: RunTimeSource


class ReservedBy(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="reserved-by"):
    """The owner and the times of the reservation that is in the way."""

    owner: ReservationOwner
    start_s: int = 0  # 0: it has started
    end_s: int = 0  # 0: it has no end
    free: int = 0  # reserved devices that it could use and that are free
    overruns: bool = False  # it may not be preempted, and would still run when the reservation starts
    is_endless: bool = False  # the same, since it has no time limit
    mode: str = ""  # a partition mode, in which the reserved GPUs are not


class ReservationUnusable(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="reservation-unusable"):
    """Why it cannot use the reservation that it names."""

    problem: ReservationProblem
    owner: ReservationOwner = ReservationOwner()
    start_s: int = 0
    end_s: int = 0


Facts = (
    NodesExcluded | VendorMissing | TopologyLabelMissing | ClosestNode | SizeBound | NotOffered | MoreBesideTenants
    | MpsOnAmd | ModelsPresent | ModeMissing | NoSuchMode | GangBound | QueueBound | NeverReclaims | OverQuota
    | ReclaimBound | NodeBound | SearchGaveUp | WorkProtected | WaitsUntil | RetryReason | RunTime | ReservedBy
    | ReservationUnusable | QueueTakes | SharedByOthers | ShareBound | LevelShort | ClosedDomains
    | BandwidthShort | FloatingPool
)  # fmt: skip


ObstacleNumbers = tuple[Reason, int, int]


class Obstacle(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One thing that keeps a workload waiting, in numbers; `explain` makes the sentence and the remedy."""

    reason: Reason
    need: int = 0
    have: int = 0
    unit: str = ""  # milli-gpu | gpus | devices | mib | milli-cpu | pods | nodes | s
    subject: str = ""  # the queue, role, node, workload or resource it is about
    facts: Facts | None = None
    detail: str = ""  # only in journals of 0.1.0, which had a sentence here instead of facts

    @property
    def numbers(self) -> ObstacleNumbers:
        """What is the same in every version."""
        return (self.reason, self.need, self.have)


class WhyVerdict(enum.StrEnum):
    """What `kaiwo why` found."""

    NOT_WAITING = "not-waiting"
    NOT_TRIED_YET = "not-tried-yet"  # the next cycle tries it
    BLOCKED = "blocked"  # it is held, depends on other work, or may not start yet
    RUNNING = "running"  # with fewer pods than it asked for
    CHANGE_FOUND = "change-found"  # one change starts it now
    CHANGE_EVICTS = "change-evicts"  # one change lets other work be evicted for it
    UNDECIDED = "undecided"  # nothing was found, and not everything was tried
    NOTHING_HELPS = "nothing-helps"  # everything was tried
