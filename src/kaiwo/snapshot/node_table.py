"""The nodes as arrays: what is free on each, and on each of its devices.

In:    nodes, and what is held on them.   Out: one row per node, sorted by name, so that ties are broken by name.
Invariant: free = capacity - held.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from kaiwo.model.gpus.gpu import (
    ANY_MIB,
    DEMANDS_LIMITS,
    SMALL_MILLI,
    TAKES_TURNS,
    WHOLE_MILLI,
    GpuTenant,
    ShareRule,
    most_share_mib,
    rule_of_node,
    vendor_of,
)
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.workload import Pod
from kaiwo.snapshot.array_types import BoolArray, IntArray, ReadOnly, Rows, read_only
from kaiwo.snapshot.network.topology_tables import TopologyTables
from kaiwo.snapshot.shared_devices import SharedDevices

Allocation = Pod | Nomination
TenantOf = Callable[[Allocation], GpuTenant | None]
CPU, MEMORY, PODS, FREE_GPU, EXTENDED = 0, 1, 2, 3, 4  # columns of `free`; extended resources from EXTENDED on
MILLI, MIB, SIZE, USABLE = 0, 1, 2, 3  # columns of `gpus`, each as wide as the largest node has devices
DeviceCell: TypeAlias = tuple[int, int]  # row of the node, column of the device
MAX_DERIVED = 4096  # beyond it, what follows from the nodes is computed again
_Key = TypeVar("_Key", bound=Hashable)
T = TypeVar("T")


class DeviceTenants:
    """Tenants by device, as far as isolation depends on them, or rules about who shares with whom."""

    __slots__ = ("demanding", "shared", "small")

    def __init__(self) -> None:
        self.demanding: dict[DeviceCell, int] = {}
        self.small: dict[tuple[int, int, int], int] = {}  # row, column and milli; 0: takes turns, whatever its size
        self.shared: SharedDevices | None = None  # None: no rule about sharing is in use

    def change(self, row: int, column: int, beside: str, milli: int, sign: int) -> None:
        if beside == DEMANDS_LIMITS:
            _count(self.demanding, (row, column), sign)
        elif beside == TAKES_TURNS or milli < SMALL_MILLI:
            _count(self.small, (row, column, 0 if beside == TAKES_TURNS else milli), sign)

    def clear_node(self, row: int) -> None:
        if self.demanding or self.small:
            self.demanding = {place: count for place, count in self.demanding.items() if place[0] != row}
            self.small = {place: count for place, count in self.small.items() if place[0] != row}
        if self.shared is not None:
            self.shared.clear_node(row)

    def copy(self) -> "DeviceTenants":
        other = DeviceTenants()
        other.demanding, other.small = self.demanding.copy(), self.small.copy()
        other.shared = self.shared.copy() if self.shared is not None else None
        return other


def _count(counts: dict[_Key, int], key: _Key, sign: int) -> None:
    left = counts[key] = counts.get(key, 0) + sign
    if not left:
        del counts[key]


class NodeTable(ReadOnly):
    """One row per node, one column per device; a missing device is an unusable column of size 0."""

    names: Sequence[str]
    all_rows: Rows  # every node, always as the same array
    nodes: Sequence[Node]
    row: Mapping[str, int]
    models: Sequence[str]
    profiles: Sequence[str]  # of partitions; the first: whole GPUs
    extended_names: Sequence[str]
    column: Sequence[Mapping[str, int]]  # device id -> column
    vendors: Mapping[str, str]  # by model
    mixed_vendor_nodes: Set[str]  # nodes with devices of more than one vendor
    cpu_size: IntArray
    memory_size: IntArray
    gpu_total: IntArray  # milli of all working devices
    free: IntArray
    gpus: IntArray
    gpu_model: IntArray
    gpu_profile: IntArray
    device_milli: IntArray  # of the physical GPU, when nothing is held
    schedulable: BoolArray
    share_rule: IntArray  # by node: the number of its rule in `share_rules`
    share_rules: Sequence[ShareRule]  # of nodes about who shares a GPU; the first: none
    max_share_mib: IntArray  # by node: the most memory of one share
    bounds_shares: bool  # some node does
    changed: IntArray  # the version at which free amounts last changed
    node_changed: IntArray  # the version at which the node itself last changed
    topologies: TopologyTables  # the domains of every node
    _derived: dict[object, Any]

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.__dict__["all_rows"] = read_only(np.arange(len(self.names)))

    @property
    def width(self) -> int:
        return int(self.gpus.shape[2])

    def totals(self) -> IntArray:
        """Milli-GPU, milli-CPU and MiB of the whole cluster, without unhealthy devices."""
        return np.array([int(self.gpu_total.sum()), int(self.cpu_size.sum()), int(self.memory_size.sum())], np.int64)

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """What follows from the nodes' definitions alone, computed once until one of them changes."""
        found: T | None = self._derived.get(key)
        if found is None:
            if len(self._derived) >= MAX_DERIVED:
                self._derived.clear()
            found = self._derived[key] = compute()
        return found


class EditableNodeTable(NodeTable):
    """The table that events patch. All others get it from `read_only`."""

    __setattr__ = object.__setattr__  # type: ignore[assignment]  # this one can be written

    def __init__(
        self, nodes: Mapping[str, Node] = {}, models: list[str] | None = None, profiles: list[str] | None = None
    ) -> None:
        self.names = tuple(sorted(nodes))
        self.nodes: list[Node] = [nodes[name] for name in self.names]
        self.row = MappingProxyType({name: row for row, name in enumerate(self.names)})
        self.models: list[str] = [] if models is None else models
        self.profiles: list[str] = [""] if profiles is None else profiles
        self.extended_names = tuple(sorted({key for node in self.nodes for key in node.extended}))
        self.column: list[Mapping[str, int]] = [{} for _ in self.nodes]
        rows, width = len(self.names), max((len(node.gpus) for node in self.nodes), default=0)
        self.cpu_size = np.zeros(rows, np.int64)
        self.memory_size = np.zeros(rows, np.int64)
        self.gpu_total = np.zeros(rows, np.int64)
        # Free amounts lie side by side, so that a repair gathers a node's row once (a fifth of the cost of ten arrays).
        self.free = np.zeros((rows, EXTENDED + len(self.extended_names)), np.int64)
        self.gpus = np.zeros((rows, 4, width), np.int64)
        self.gpu_model = np.full((rows, width), -1, np.int64)
        self.gpu_profile = np.full((rows, width), -1, np.int64)
        self.device_milli = np.zeros((rows, width), np.int64)
        self.schedulable = np.zeros(rows, np.bool_)
        self.share_rule = np.zeros(rows, np.int64)
        self.share_rules: list[ShareRule] = [()]
        self.max_share_mib = np.full(rows, ANY_MIB, np.int64)
        self.changed = np.zeros(rows, np.int64)
        self.node_changed = np.zeros(rows, np.int64)
        self.vendors: dict[str, str] = {}
        self.mixed_vendor_nodes: set[str] = set()
        self.tenants = DeviceTenants()
        self.topologies = TopologyTables()
        self._derived = {}
        self._read_only: NodeTable | None = None  # until a node changes

    def has_room_for(self, node: Node) -> bool:
        """Whether this definition of the node fits; otherwise the table must be rebuilt."""
        fits = len(node.gpus) <= self.width and all(key in self.extended_names for key in node.extended)
        return node.name in self.row and fits

    def write_node(
        self, node: Node, held: Iterable[Allocation], version: int, tenant_of: TenantOf = lambda _: None
    ) -> None:
        row = self.row[node.name]
        before, self.nodes[row] = self.nodes[row], node
        self.topologies = self.topologies.with_node(row, before, self.nodes)
        self._derived.clear()
        self._read_only = None
        self.cpu_size[row], self.memory_size[row] = node.cpu_milli, node.memory_mib
        self.free[row, :EXTENDED] = node.cpu_milli, node.memory_mib, node.pods, 0
        self.free[row, EXTENDED:] = [node.extended.get(name, 0) for name in self.extended_names]
        self.schedulable[row] = node.ready and not node.cordoned and not node.failure.out_until_s
        self.share_rule[row] = _index(self.share_rules, rule_of_node(node.labels))
        self.max_share_mib[row] = most_share_mib(node.labels)
        self.column[row] = MappingProxyType({gpu.id: column for column, gpu in enumerate(node.gpus)})
        count = len(node.gpus)
        self.gpus[row], self.gpu_model[row], self.gpu_profile[row], self.device_milli[row] = 0, -1, -1, 0
        if count:
            sizes = [gpu.memory_mib for gpu in node.gpus]
            usable = [gpu.healthy for gpu in node.gpus]
            parts = [gpu.milli for gpu in node.gpus]
            self.gpus[row, :, :count] = parts, sizes, sizes, usable
            self.device_milli[row, :count] = parts
            self.gpu_model[row, :count] = [_index(self.models, gpu.model) for gpu in node.gpus]
            self.gpu_profile[row, :count] = [_index(self.profiles, gpu.profile) for gpu in node.gpus]
        vendors = {gpu.model: vendor_of(gpu) for gpu in node.gpus}
        self.vendors |= vendors
        is_mixed = len(set(vendors.values()) - {""}) > 1
        (self.mixed_vendor_nodes.add if is_mixed else self.mixed_vendor_nodes.discard)(node.name)
        self.gpu_total[row] = int(self.device_milli[row] @ self.gpus[row, USABLE])
        self.node_changed[row] = version
        self.tenants.clear_node(row)
        self.free[row, FREE_GPU] = self.gpu_total[row]
        self.changed[row] = version
        for each in held:
            self.add(each, -1, version, tenant_of(each))

    def add(self, held: Allocation, sign: int, version: int, tenant: GpuTenant | None = None) -> None:
        """Give back (+1) or take (-1) what a pod or nomination holds on its node."""
        row = self.row.get(held.node)
        if row is None:
            return
        free = self.free[row]
        free[CPU] += sign * held.cpu_milli
        free[MEMORY] += sign * held.memory_mib
        free[PODS] += sign
        for name, amount in held.extended:
            if name in self.extended_names:
                free[EXTENDED + self.extended_names.index(name)] += sign * amount
        columns, gpus = self.column[row], self.gpus[row]
        for share in held.devices:
            column = columns.get(share.gpu)
            if column is not None:  # a device that vanished under its tenant frees nothing
                gpus[MILLI, column] += sign * share.milli
                gpus[MIB, column] += sign * share.mib
                free[FREE_GPU] += sign * share.milli * gpus[USABLE, column]
                if held.beside or share.milli < SMALL_MILLI:
                    self.tenants.change(row, column, held.beside, share.milli, -sign)
        if tenant is not None:
            self._count_tenant(held, tenant, -sign)
        self.changed[row] = version

    def write_topologies(self, changed: Iterable[str], topologies: Mapping[str, Topology]) -> None:
        """Write the domains of these topologies; those that are gone are dropped."""
        for name in changed:
            found = topologies.get(name)
            tables = self.topologies
            self.topologies = tables.with_topology(found, self.nodes) if found else tables.without(name)
        self._derived.clear()
        self._read_only = None

    def replace_tenant(self, held: Allocation, before: GpuTenant, after: GpuTenant, version: int) -> None:
        """Count a pod or nomination as a share of another tenant."""
        if (row := self.row.get(held.node)) is not None:
            self._count_tenant(held, before, -1)
            self._count_tenant(held, after, +1)
            self.changed[row] = version

    def _count_tenant(self, held: Allocation, tenant: GpuTenant, sign: int) -> None:
        row, shared = self.row[held.node], self.tenants.shared
        for share in held.devices if shared is not None else ():
            column = self.column[row].get(share.gpu)
            if shared is not None and column is not None and share.milli < WHOLE_MILLI:
                shared.change(row, column, tenant, sign)

    def copy(self) -> "EditableNodeTable":
        other = object.__new__(EditableNodeTable)
        other.__dict__.update(self.__dict__)
        for name in _ARRAYS:
            setattr(other, name, getattr(self, name).copy())
        other.nodes, other.column, other._derived = list(self.nodes), list(self.column), {}
        other.share_rules = list(self.share_rules)
        other.tenants = self.tenants.copy()
        other.vendors, other.mixed_vendor_nodes = dict(self.vendors), set(self.mixed_vendor_nodes)
        other._read_only = None
        return other

    def read_only(self) -> NodeTable:
        """The same rows, for those who may only read them."""
        if self._read_only is None:
            shown = {name: read_only(getattr(self, name)) for name in _ARRAYS}
            shown |= {
                name: getattr(self, name) for name in ("names", "row", "extended_names", "topologies", "_derived")
            }
            shown |= {
                name: tuple(getattr(self, name)) for name in ("nodes", "column", "models", "profiles", "share_rules")
            }
            shown |= {
                "bounds_shares": bool((self.max_share_mib < ANY_MIB).any()),
                "vendors": MappingProxyType(self.vendors),
                "mixed_vendor_nodes": frozenset(self.mixed_vendor_nodes),
            }
            self._read_only = NodeTable(shown)
        return self._read_only


_ARRAYS = (
    "free", "gpus", "changed", "cpu_size", "memory_size", "gpu_total", "gpu_model", "gpu_profile", "device_milli",
    "schedulable", "node_changed", "share_rule", "max_share_mib",
)  # fmt: skip


def _index(names: list[T], name: T) -> int:
    if name not in names:
        names.append(name)
    return names.index(name)
