"""What one cycle decided, as values. Encoded, equal plans are equal bytes."""

import enum

import msgspec

from kaiwo.model.affinity import PodAffinity
from kaiwo.model.gpu import Share
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.reservation import PickedDevices


class Start(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Run this pod on this node with exactly these devices."""

    workload: str
    pod: str
    node: str
    devices: tuple[Share, ...] = ()
    until_s: int = 0  # it fills a gap: from then on it goes when a planned start needs the place; 0: it fills none


class EvictionCause(enum.StrEnum):
    """Why a running pod is told to go."""

    RECLAIM = "reclaim"
    CONSOLIDATE = "consolidate"
    STALE_GANG = "stale-gang"
    PREEMPT = "preempt"
    DRAIN = "drain"
    DEADLINE = "deadline"
    RECOVERY = "recovery"
    RESERVATION = "reservation"  # the GPUs are somebody else's from now on, or no longer its owner's
    EXPIRED = "expired"  # its allocation was given until now


DISPLACING_CAUSES = (
    EvictionCause.RECLAIM,
    EvictionCause.PREEMPT,
    EvictionCause.CONSOLIDATE,
)  # what an eviction budget counts


class Eviction(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Stop this pod. Reclaim and preemption always name the beneficiary that the same plan places."""

    workload: str
    pod: str
    cause: EvictionCause
    beneficiary: str = ""
    lost_gpu_s: int = 0


class Nomination(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Space kept for a waiting pod, keyed by its place in its workload: a replacement pod has a new identity."""

    workload: str
    pod: str
    node: str
    devices: tuple[Share, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    neighbours: PodAffinity | None = None  # as `model.neighbours.kept` makes them
    beside: str = ""  # what the pod will be to those with whom it shares devices: see `Request`


class Wait(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A class of equal waiting workloads of one queue, and all that keeps them waiting."""

    queue: str
    shape: str  # the class's key: a digest of what its workloads ask for
    obstacles: tuple[Obstacle, ...]


class Note(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Something the operator should know of this cycle."""

    code: str  # plugin-set-aside | plugin-misbehaved | budget-spent
    subject: str = ""
    detail: str = ""


class Plan(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Everything one cycle decided."""

    starts: tuple[Start, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    waits: tuple[Wait, ...] = ()  # only what changed since the last plan
    unfinished: tuple[tuple[str, str], ...] = ()  # classes (queue, shape) the budget did not reach
    first: tuple[tuple[str, str], ...] = ()  # those of them that go first next time; empty: all of them
    unclaimed: tuple[tuple[str, str, str], ...] = ()  # an action and a class that it has not yet sought room for
    look_again_s: int = 0  # when time alone may change an answer; 0: never
    given_up: tuple[tuple[str, str], ...] = ()  # nominations (workload, pod) whose space is kept no longer
    reserved: tuple[PickedDevices, ...] = ()  # reservations of a number of GPUs for which devices were picked
    promises: tuple[PlannedStart, ...] = ()  # planned starts that are new or different since the last plan
    unpromised: tuple[str, ...] = ()  # workloads that have no planned start any more: they start now, or cannot
    expired: tuple[str, ...] = ()  # workloads whose allocation was given until now: they end
    notes: tuple[Note, ...] = ()
    steps: int = 0
    rules: str = ""  # a digest of the policy and the plugins: under others every class deserves another try

    @property
    def is_empty(self) -> bool:
        """Nothing for the cluster to do."""
        decided = self.starts or self.evictions or self.nominations or self.given_up
        return not (decided or self.reserved or self.expired or self.promises or self.unpromised)


def encode_plan(plan: Plan) -> bytes:
    """The plan's bytes: what determinism is judged by."""
    return msgspec.msgpack.encode(plan, order="deterministic")
