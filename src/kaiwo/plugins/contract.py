"""The plugin contract. Arrays in, arrays out: called for all nodes once per shape, then for nodes that changed.

A plugin is any object with a `name`, a `version` and at least one of the methods below; it may implement several.
`view` includes this cycle's placements. It and all arrays are read-only: copy what you want to change. For what
follows from a view alone, `view.once(function)` calls the function once a cycle.
A plugin is pure: no clock, no I/O, no randomness, no state.
"""

from typing import Protocol, runtime_checkable

import msgspec

from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.view import View

TOP_SCORE = 1000
TOP_WEIGHT = 100_000  # so that all scores together stay far below the penalty for displacing others


@runtime_checkable
class Plugin(Protocol):
    name: str
    version: str


@runtime_checkable
class Filter(Plugin, Protocol):
    """Excludes nodes. Capacity itself is not a plugin: a filter can only exclude more.

    A static one with `depends_on` (names of the request's fields) answers once for all requests equal in them.
    """

    reason: Reason
    is_static: bool  # depends on the nodes' definitions only, not on what is free

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """One boolean per node: whether the pod may be placed there."""


@runtime_checkable
class Score(Plugin, Protocol):
    """Prefers nodes. One with `applies(want) -> bool` is called for those requests only.

    One with `is_silent(view, want) -> bool` is not called where that is true: all its scores would be 0. It is asked
    once in a cycle for each request; a confined plugin's is not asked, and the plans are equal.
    """

    weight: int

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        """One integer per node, 0..1000; higher is better."""


@runtime_checkable
class GpuScore(Plugin, Protocol):
    """Prefers devices of a node; the allocation strategy orders those with equal scores.

    One with `gpu_applies(view, want) -> bool` is called where that is true only.
    """

    weight: int

    def gpu_score(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        """One integer per eligible device, 0..1000; higher is better."""


@runtime_checkable
class QueueOrder(Plugin, Protocol):
    """Orders sibling queues, at each level of the tree from the roots down.

    One with `queue_order_of(view, queue, next_need, next_since_s)` gives the same answer for one queue, in plain
    numbers: it is called after every turn, where an array of one costs ten times as much.
    """

    def queue_order(self, view: View, queues: Rows, next_need: IntArray, next_since_s: IntArray) -> IntArray:
        """One integer or one row of integers per queue, the lowest first. The first plugin counts most.

        `next_need` is what the next workload of each queue needs to start (milli-GPU, milli-CPU, MiB), and
        `next_since_s` when it was submitted.
        """


@runtime_checkable
class WorkloadOrder(Plugin, Protocol):
    """Orders the workloads of a queue. Called once, when the workload arrives or changes."""

    def workload_order(self, workload: Workload, policy: Policy) -> tuple[int, ...]:
        """The lowest first; equal keys are ordered by name."""


@runtime_checkable
class Allocation(Plugin, Protocol):
    """Chooses the devices of a node for a pod. One is active, by name: `Policy.gpu_strategy`.

    One with `fills = True` stays on the device it chose while equal pods fit there, and is called once for all of them.
    """

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        """One integer per eligible device, the lowest first; equal ones are ordered by position."""


class VictimTable(msgspec.Struct, frozen=True):
    """Running work that may be stopped for other work, one entry per unit of pods that stop together."""

    workloads: tuple[str, ...]  # `namespace/name`; the units of an elastic workload have the same name
    queues: tuple[str, ...]
    priority: IntArray
    gpu_milli: IntArray
    since_s: IntArray  # when the workload began to run
    ends_s: IntArray  # when it is expected to end; 0: unknown
    lost_gpu_s: IntArray  # GPU-seconds of work that stopping it would lose
    is_surplus: BoolArray  # the rest of the workload would run on

    def __len__(self) -> int:
        return len(self.workloads)


@runtime_checkable
class VictimFilter(Plugin, Protocol):
    """Protects running work from reclaim, preemption and consolidation. Called once a cycle, when room must be made.

    It can only protect more: work that is not preemptible or that a disruption budget protects is never among them.
    """

    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        """One boolean per unit: whether it may be stopped."""


class DomainTable(msgspec.Struct, frozen=True):
    """The domains of one level of a network for one workload, one entry each."""

    workload: str  # `namespace/name`
    queue: str
    topology: str  # empty: the level is a node label
    level: str
    names: tuple[str, ...]
    nodes: IntArray  # how many
    gpu_milli: IntArray  # of all working GPUs
    gpu_used_milli: IntArray

    def __len__(self) -> int:
        return len(self.names)


@runtime_checkable
class DomainRule(Plugin, Protocol):
    """Keeps work that asks for levels of the network out of domains. It can only exclude more."""

    def domain_rule(self, view: View, domains: DomainTable, policy: Policy) -> BoolArray:
        """One boolean per domain: whether pods of the workload may run there."""


@runtime_checkable
class PlacementStrategy(Plugin, Protocol):
    """Chooses among the domains that have room. Workloads and the policy name it; one is active for a workload."""

    divides_like: str  # consolidated | distributed | balanced | stated: how pods are divided inside the domain

    def placement_strategy(self, view: View, domains: DomainTable, terms: IntArray, weights: IntArray) -> IntArray:
        """One integer per domain, 0..1000; higher is better.

        `terms` has a row for each domain: availability, alignment, utilisation and performance, each 0..1000;
        `weights` are those of the policy.
        """


class ReplicaNeed(msgspec.Struct, frozen=True):
    """GPUs that a service or a job asks for in total, to be divided over pods."""

    gpus: int
    largest: int  # the most GPUs that one pod may have
    priority: int = 0
    queue: str = ""
    models: tuple[str, ...] = ()  # any of these; empty: any model
    cpu_milli: int = 0  # that go with each GPU
    memory_mib: int = 0


@runtime_checkable
class ReplicaStrategy(Plugin, Protocol):
    """Divides the GPUs of a workload over pods. One is active, by name: `Policy.replica_strategy`."""

    def replica_strategy(self, view: View, need: ReplicaNeed) -> IntArray:
        """The GPUs of each pod, each at least 1; together exactly `need.gpus`."""
