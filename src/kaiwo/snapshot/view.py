"""The read-only view of a cycle: what is free and used, including the cycle's own placements.

Plugins get it, and all code that only reads. Neither its arrays nor its tables nor its attributes can be written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kaiwo.model.events import PastUsageChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI, GpuTenant, Share, ShareRule
from kaiwo.model.network.port import NetworkPort
from kaiwo.model.performance import NodeSpeed
from kaiwo.model.request import Request
from kaiwo.model.request_mix import RequestPrices
from kaiwo.model.workload import ACTIVE_PHASES, RELEASING_PHASES, Workload
from kaiwo.snapshot.array_types import BoolArray, IntArray, ReadOnly, Rows, freeze, read_only
from kaiwo.snapshot.backlog import Demand
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import Allocation, DeviceCell, DeviceTenants, NodeTable
from kaiwo.snapshot.queue_table import RESOURCES, QueueTable
from kaiwo.snapshot.reserved_devices import ReservedDevices
from kaiwo.snapshot.sharing_rules import tenant_of

T = TypeVar("T")
ClosedTo = Callable[[GpuTenant, ShareRule, Rows], BoolArray]
_ON_NODES = (*ACTIVE_PHASES, *RELEASING_PHASES)


class TenantCounts(NamedTuple):
    """Tenants by device, as far as isolation and rules about sharing depend on them: see `DeviceTenants`."""

    demanding: Mapping[DeviceCell, int]
    small: Mapping[tuple[int, int, int], int]
    closed_to: ClosedTo | None = None  # see `SharedDevices`; None: no rule about sharing is in use


class NodeAmounts(NamedTuple):
    """Rows of the arrays of the same names."""

    free: IntArray
    gpus: IntArray


NO_TENANTS = TenantCounts({}, {})


class View(ReadOnly):
    """Free amounts by node and device, and used amounts by queue."""

    now_s: int
    nodes: NodeTable
    queues: QueueTable
    free: IntArray  # by node: columns CPU, MEMORY, PODS, FREE_GPU, then extended ones
    gpus: IntArray  # by node, column (MILLI, MIB, SIZE, USABLE) and device
    changed: IntArray  # by node: the clock of its last change
    clock: int  # increases with every change
    all_used: IntArray  # by queue: GPU, CPU, memory, and bounded GPU models
    all_non_preemptible: IntArray  # the part of it that may not be preempted
    tenants: TenantCounts
    reservations: ReservedDevices | None  # None: nothing is reserved
    queue_demand: Mapping[str, Demand]  # by leaf: what its waiting work requests, and could have
    past_usage: PastUsageChanged | None
    node_failures: Mapping[str, int]  # by node: weights, see snapshot.learned.node_failures
    node_speeds: Mapping[str, NodeSpeed]  # by node of which something was measured: see model.performance
    measured_ports: Mapping[str, tuple[NetworkPort, ...]]  # by node, as agents report them
    gpu_loads: Mapping[str, Mapping[str, int]]  # by node and GPU: see snapshot.learned.gpu_loads
    prices: RequestPrices | None  # what the mix of requests makes of free GPUs; None: unknown
    pools: Mapping[str, int]  # extended resources that are counted over all nodes together
    _state: ClusterState
    _derived: dict[Callable[["View"], Any], Any]  # see `once`
    _own: dict[Callable[[], Any], Any]  # see `own`
    _gathered: tuple[Rows, int, NodeAmounts] | None
    _touched: tuple[int, dict[int, Rows]]  # see `touched_since`
    has_own_amounts = False  # True: `of` gives other amounts than `free` and `gpus`
    is_start = False  # True: it is as of the start of a cycle, and nothing changes it

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.__dict__.update(_own={}, _gathered=None, _touched=(-1, {}))

    def once(self, compute: Callable[["View"], T]) -> T:
        """`compute(self)`, once a cycle. Results are kept by function, so that no plugin overwrites another's."""
        found = self._derived.get(compute)
        if found is None:
            found = self._derived[compute] = compute(self)
        value: T = found
        return value

    def own(self, make: Callable[[], T]) -> T:
        """An object that belongs to this view alone, for a cache that depends on its amounts."""
        found = self._own.get(make)
        if found is None:
            found = self._own[make] = make()
        value: T = found
        return value

    @property
    def queue_used(self) -> IntArray:
        """By queue: GPU, CPU and memory; `all_used` adds bounded GPU models."""
        return self.all_used[:, : len(RESOURCES)]

    @property
    def queue_non_preemptible(self) -> IntArray:
        """The part of it that may not be preempted."""
        return self.all_non_preemptible[:, : len(RESOURCES)]

    @property
    def all_rows(self) -> Rows:
        """Every node, always as the same array: `of` copies nothing for it."""
        return self.nodes.all_rows

    def touched_since(self, version: int) -> Rows:
        """The nodes that changed after a version, as the same array for all who ask: what they gather is shared."""
        clock, known = self._touched
        if clock != self.clock:
            known = {}
            self.__dict__["_touched"] = (self.clock, known)
        rows = known.get(version)
        if rows is None:
            rows = (self.changed > version).nonzero()[0]
            freeze(rows)
            rows = known[version] = self.all_rows if len(rows) == len(self.all_rows) else rows
        return rows

    def at(self, row: int) -> Rows:
        """One node as an array of rows, for which `of` copies nothing."""
        nodes = self.all_rows[row : row + 1]
        if not self.has_own_amounts:
            amounts = NodeAmounts(self.free[row : row + 1], self.gpus[row : row + 1])
            self.__dict__["_gathered"] = (nodes, self.clock, amounts)
        return nodes

    def of(self, nodes: Rows) -> NodeAmounts:
        """`free` and `gpus` of these nodes, gathered once for all callers with the same array."""
        last = self._gathered
        if last is None or last[0] is not nodes or last[1] != self.clock:
            if nodes is self.nodes.all_rows and not self.has_own_amounts:
                return NodeAmounts(self.free, self.gpus)
            amounts = NodeAmounts(self.free[nodes], self.gpus[nodes])
            freeze(amounts.free)
            freeze(amounts.gpus)
            last = self.__dict__["_gathered"] = (nodes, self.clock, amounts)
        return last[2]

    def with_amounts(self, nodes: Rows, free: IntArray, gpus: IntArray, tenants: TenantCounts | None = None) -> "View":
        """A view with these amounts for these nodes; a node may be in several rows."""
        other = View(self.__dict__)
        other.__dict__.update(has_own_amounts=True, is_start=False)
        other.__dict__["_gathered"] = (nodes, self.clock, NodeAmounts(read_only(free), read_only(gpus)))
        if tenants is not None:
            other.__dict__["tenants"] = tenants
        return other

    def with_queues(self, queues: QueueTable) -> "View":
        """A view with other queues, and with the usage in their table."""
        other = View(self.__dict__)
        used, fixed = queues.all_used, queues.all_non_preemptible
        other.__dict__.update(queues=queues, all_used=used, all_non_preemptible=fixed, is_start=False)
        return other

    def milli_by_model(self, node: str, devices: Sequence[Share]) -> tuple[int, ...]:
        """A queue's charge for these devices of a node, by GPU model that some queue bounds; empty: none is bounded."""
        models = self.queues.models
        row = self.nodes.row.get(node) if models else None
        if row is None:
            return ()
        column, known = self.nodes.column[row], self.nodes.models
        found = dict.fromkeys(models, 0)
        for share in devices:
            at = column.get(share.gpu)
            model = known[self.nodes.gpu_model[row, at]] if at is not None else ""
            if model in found:
                found[model] += share.charge_milli
        return tuple(found.values())

    def tenant_of(self, held: Allocation) -> GpuTenant | None:
        """Whose share of a GPU a pod or nomination holds; None if that does not matter: see `sharing_rules`."""
        return tenant_of(self._state, held)

    def queues_on(self, row: int, column: int) -> list[str]:
        """The queues whose work holds shares of a device."""
        node = self.nodes.nodes[row]
        gpu, workloads = node.gpus[column].id, self._state.workloads
        held = self._state.allocations_on.get(node.name, {}).values()
        here = {each.workload for each in held if any(share.gpu == gpu for share in each.devices)}
        return sorted({workloads[name].queue for name in here if name in workloads})

    def gpus_below(self, row: int, queue: str, priority: int) -> int:
        """The whole GPUs of a node that less important work of a queue holds, if that may be stopped."""
        found, workloads = 0, self._state.workloads
        for held in self.held_on(row):
            workload = workloads.get(held.workload)
            if (
                workload is not None
                and workload.queue == queue
                and workload.priority < priority
                and workload.preemptible
            ):
                found += sum(share.milli == WHOLE_MILLI for share in held.devices)
        return found

    def held_on(self, row: int) -> tuple[Allocation, ...]:
        """The pods and nominations on a node, as of the start of the cycle."""
        return tuple(self._state.allocations_on.get(self.nodes.names[row], {}).values())

    def gang_rows(self) -> dict[str, list[int]]:
        """By workload of several pods: the row of each pod that runs or is nominated, as of the start of the cycle."""
        state, row = self._state, self.nodes.row
        found = {
            name: [row[pod.node] for pod in pods.values() if pod.phase in _ON_NODES and pod.node in row]
            for name, pods in state.pods.items()
            if len(pods) > 1 or _has_several_pods(state.workloads.get(name))
        }
        for name, kept in state.nominations.items():
            if _has_several_pods(state.workloads.get(name)):
                found.setdefault(name, []).extend(row[each.node] for each in kept.values() if each.node in row)
        return found

    def bandwidth_of(self, workload: str) -> int:
        """What each of its pods needs to the others, in MB/s; 0: it does not say."""
        found = self._state.workloads.get(workload)
        return found.bandwidth_mb_s if found is not None else 0

    def waiting_requests(self, queue: str) -> Iterator[tuple[Request, int]]:
        """The requests of a queue's waiting work, each with its pods, without work that has nominations."""
        backlog = self._state.backlog
        for found in backlog.by_queue.get(queue, {}).values():
            if found.key not in backlog.impossible and not found.signature.nominated_for:
                for need in found.needs:
                    yield backlog.shapes[need.shape], need.missing * len(found.waiters)

    def oldest_submission_s(self) -> IntArray:
        """By queue, with all below it: when its oldest work was submitted, running or first in its class; else far off.

        Running work counts, too: otherwise an evicted workload would be the oldest to wait, and reclaim its place.
        """
        oldest = np.full(len(self.queues.names), np.iinfo(np.int64).max // 4, np.int64)
        state = self._state
        backlog = state.backlog
        first = [found.waiters.name_at(0) for key, found in backlog.by_key.items() if key not in backlog.impossible]
        for workload in map(state.workloads.get, (*first, *state.pods)):
            row = self.queues.row.get(workload.queue) if workload is not None else None
            if workload is None or row is None:
                continue
            for above in self.queues.path[row]:
                oldest[above] = min(oldest[above], workload.submitted_s)
        return oldest


def _has_several_pods(workload: Workload | None) -> bool:
    return workload is not None and (len(workload.roles) > 1 or workload.roles[0].count > 1)


def once_per_cycle(compute: Callable[[View], T]) -> Callable[[View], T]:
    """A function of the view that is called only once a cycle: see `View.once`."""
    return lambda view: view.once(compute)


def tenant_counts(tenants: DeviceTenants) -> TenantCounts:
    """Live counts that cannot be written."""
    closed_to = tenants.shared.closed_to if tenants.shared is not None else None
    return TenantCounts(MappingProxyType(tenants.demanding), MappingProxyType(tenants.small), closed_to)
