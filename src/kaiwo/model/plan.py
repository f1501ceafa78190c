"""A plan: what one cycle decided, as values. Equal plans encode to equal bytes."""

import enum

import msgspec

from kaiwo.model.affinity import PodAffinity
from kaiwo.model.defragmentation import StepProgress
from kaiwo.model.gpus.gpu import Share, ShareRule
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.recovery import BadNode, Recovery
from kaiwo.model.reservation import PickedDevices
from kaiwo.model.workload import NO_RANK


class Start(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Run this pod on this node with exactly these devices."""

    workload: str
    pod: str
    node: str
    devices: tuple[Share, ...] = ()
    until_s: int = 0  # backfilled work is evicted from then on if a planned start needs the place; 0: not backfilled
    annotations: tuple[tuple[str, str], ...] = ()  # what `bind` plugins give it; `decide` gives none
    rank: int = NO_RANK  # among the pods of its workload, near ones next to each other: see `topology.rank_order`


class EvictionCause(enum.StrEnum):
    RECLAIM = "reclaim"
    CONSOLIDATE = "consolidate"
    STALE_GANG = "stale-gang"
    PREEMPT = "preempt"
    DRAIN = "drain"
    DEADLINE = "deadline"
    RECOVERY = "recovery"
    DEFRAGMENT = "defragment"  # it moves, as a person asked for it
    RESERVATION = "reservation"  # the GPUs are reserved for others now, or its owner's reservation ended
    EXPIRED = "expired"  # its allocation expired
    FOREIGN_BINDING = "bound-by-others"  # somebody else than the scheduler chose its GPUs


# What an eviction budget counts.
DISPLACING_CAUSES = (
    EvictionCause.RECLAIM, EvictionCause.PREEMPT, EvictionCause.CONSOLIDATE, EvictionCause.DEFRAGMENT,
)  # fmt: skip


class Eviction(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Stop this pod. Reclaim and preemption always name the beneficiary that the same plan places."""

    workload: str
    pod: str
    cause: EvictionCause
    beneficiary: str = ""
    lost_gpu_s: int = 0
    # Where the decision saw the pod. The loop fills it in: a cluster may give the name to another pod meanwhile.
    node: str = ""
    devices: tuple[Share, ...] = ()


class Nomination(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Space kept for a waiting pod, keyed by its name in its workload: a replacement pod has a new identity."""

    workload: str
    pod: str
    node: str
    devices: tuple[Share, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    neighbours: PodAffinity | None = None  # as made by `affinity_of_nomination`
    beside: str = ""  # what the pod will mean to other tenants: see `Request.beside`
    lost_s: int = 0  # since when it is kept for the replacement of a lost gang member; 0: for a pod that waits
    due_s: int = 0  # the replacement does not come before then; 0: it may come at any moment
    share_with: ShareRule = ()  # with whom the pod will share a GPU, by its own rule: see `Request`
    is_awaited: bool = False  # with `lost_s`: no pod was lost, this one is made once its leader runs


class DomainChoice(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The domain of the network that was chosen for a workload or a part of it, and what spoke for it."""

    workload: str
    part: str = ""  # a sub-group, a role, or a segment of a role; empty: the whole workload
    topology: str = ""  # empty: the level is a node label
    level: str = ""  # empty: no single domain had room, so its pods are in as few as possible
    domain: str = ""
    strategy: str = ""
    score: int = 0  # the weighted terms, from 0 to 1000
    availability: int = 0
    alignment: int = 0
    utilisation: int = 0
    performance: int = 0
    candidates: int = 0  # domains of this level that had room


class Wait(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A class of equal waiting workloads of one queue, and everything that keeps them waiting."""

    queue: str
    shape: str  # the class's key: a digest of what its workloads ask for
    obstacles: tuple[Obstacle, ...]


class Note(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    code: str  # plugin-set-aside | plugin-misbehaved | budget-spent
    subject: str = ""
    detail: str = ""


class Plan(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    starts: tuple[Start, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    waits: tuple[Wait, ...] = ()  # only what changed since the last plan
    unfinished: tuple[tuple[str, str], ...] = ()  # classes (queue, shape) the budget did not reach
    first: tuple[tuple[str, str], ...] = ()  # of these, the ones to try first next time; empty: all of them
    unclaimed: tuple[tuple[str, str, str], ...] = ()  # (action, queue, shape): that action has not tried yet
    look_again_s: int = 0  # when time alone may change an answer; 0: never
    given_up: tuple[tuple[str, str], ...] = ()  # nominations (workload, pod) that are withdrawn
    reserved: tuple[PickedDevices, ...] = ()  # devices picked for reservations of a number of GPUs
    promises: tuple[PlannedStart, ...] = ()  # planned starts that are new or changed since the last plan
    unpromised: tuple[str, ...] = ()  # workloads that lost their planned start: they start now, or cannot
    overdue: tuple[str, ...] = ()  # workloads that start where a place was kept for them because they waited too long
    expired: tuple[str, ...] = ()  # workloads whose allocation has expired: they end
    notes: tuple[Note, ...] = ()
    steps: int = 0
    rules: str = ""  # a digest of the policy and the plugins: when it changes, every class is tried again
    domains: tuple[DomainChoice, ...] = ()  # for work with levels that starts or is nominated
    recoveries: tuple[Recovery, ...] = ()  # work that lost pods to failures: what is new or changed since the last plan
    recovered: tuple[str, ...] = ()  # workloads that have all their pods again
    bad_nodes: tuple[BadNode, ...] = ()  # nodes to remember, on which a workload lost pods

    move_steps: tuple[StepProgress, ...] = ()  # of the defragmentation run: what is new or changed
    moves_over: str = ""  # the run that is over with this plan

    @property
    def is_empty(self) -> bool:
        decided = self.starts or self.evictions or self.nominations or self.given_up
        is_remembered = self.recoveries or self.recovered or self.bad_nodes or self.move_steps or self.moves_over
        return not (decided or self.reserved or self.expired or self.promises or self.unpromised or is_remembered)


def encode_plan(plan: Plan) -> bytes:
    return msgspec.msgpack.encode(plan, order="deterministic")
