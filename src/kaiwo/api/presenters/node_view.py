"""Views of nodes and GPUs, and pages of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import is_
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from kaiwo.api.http.problems import not_found, quote, similar_name
from kaiwo.api.http.query_params import read_cursor, write_cursor
from kaiwo.api.presenters.recovery_view import resting_reason
from kaiwo.api.views.answers import Page
from kaiwo.api.views.cluster import Usage
from kaiwo.api.views.nodes import GpuView, NodeView, TenantView
from kaiwo.gpus.partitioning.pending_mode_change import pending_change
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node, Taint
from kaiwo.model.workload import Pod
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.snapshot.allocations import pod_name_of
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import Allocation


class NodeQuery(msgspec.Struct, frozen=True):
    text: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    after: str | None = None
    limit: int = 50


class GpuQuery(msgspec.Struct, frozen=True):
    node: str = ""
    model: str = ""
    free: bool | None = None
    after: str | None = None
    limit: int = 50


class ShownNodes:
    """The views of nodes, each made again only when something on its node changed.

    A page of all nodes is followed at four changes a second, and few nodes change in a quarter of one. A view that did
    not change stays the same object, so that the stream sees without a comparison that there is nothing to tell.
    """

    def __init__(self) -> None:
        self._shown: dict[str, tuple[tuple[object, ...], NodeView]] = {}

    def view(self, state: ClusterState, node: Node) -> NodeView:
        if node.name in state.failures.resting:  # its reason has figures that no object here tells of
            return node_view(state, node)
        held = state.allocations_on.get(node.name, {}).values()
        seen = (node, *held, *(state.workloads.get(each.workload) for each in held))
        before = self._shown.get(node.name)
        if before is not None and _is_same(before[0], seen):
            return before[1]
        view = node_view(state, node)
        self._shown[node.name] = (seen, view)
        return view

    def forget(self, state: ClusterState) -> None:
        """Drop nodes that are gone."""
        if len(self._shown) > len(state.node_objects):
            self._shown = {name: each for name, each in self._shown.items() if name in state.node_objects}


_SHOWN: WeakKeyDictionary[ClusterState, ShownNodes] = WeakKeyDictionary()


def node_page(overview: ClusterOverview, query: NodeQuery) -> Page[NodeView]:
    """One page of nodes, ordered by name."""
    state = overview.live.state
    shown_nodes = _SHOWN.setdefault(state, ShownNodes())
    shown_nodes.forget(state)
    names = state.nodes.names
    if query.text or query.labels:
        text = query.text.lower()
        names = [
            node.name
            for node in state.nodes.nodes
            if text in node.name.lower() and all(node.labels.get(key) == value for key, value in query.labels)
        ]
    after = read_cursor(query.after, str)
    begin = 0 if after is None else bisect_right(names, after)
    shown = names[begin : begin + query.limit]
    more = begin + query.limit < len(names)
    items = [shown_nodes.view(state, node) for name in shown if (node := state.node_objects.get(name)) is not None]
    return Page(items, len(names), write_cursor(shown[-1]) if more else "")


def gpu_page(overview: ClusterOverview, query: GpuQuery) -> Page[GpuView]:
    """One page of GPUs, ordered by node name, then by position."""
    state = overview.live.state
    table = state.nodes
    found = overview.find_gpus(query.node, query.model, query.free)
    begin = 0
    after = read_cursor(query.after, tuple[str, int])
    if after is not None:
        row = bisect_left(table.names, after[0])
        is_there = row < len(table.names) and table.names[row] == after[0]
        last = row * table.width + (min(after[1], table.width - 1) if is_there else -1)
        begin = int(np.searchsorted(found, last, side="right"))
    shown = found[begin : begin + query.limit].tolist()
    items, holders, held_row = [], {}, -1
    for flat in shown:
        row, column = divmod(flat, table.width)
        node = table.nodes[row]
        if row != held_row:
            holders, held_row = _by_device(state.allocations_on.get(node.name, {}).values()), row
        items.append(_gpu_view(state, node, column, holders))
    more = begin + query.limit < len(found)
    return Page(items, len(found), write_cursor((items[-1].node, items[-1].index)) if more else "")


def find_node(state: ClusterState, name: str) -> NodeView:
    node = state.node_objects.get(name)
    if node is None:
        raise not_found(f"there is no node {quote(name)}{_similar_name(name, state.node_objects)}")
    return node_view(state, node)


def node_view(state: ClusterState, node: Node) -> NodeView:
    held = state.allocations_on.get(node.name, {}).values()
    holders = _by_device(held)
    gpus = [_gpu_view(state, node, column, holders) for column in range(len(node.gpus))]
    whole_milli = sum(gpu.milli for gpu in node.gpus)
    is_resting = node.name in state.failures.resting
    return NodeView(
        name=node.name,
        state="not-ready" if not node.ready or is_resting else "cordoned" if node.cordoned else "ready",
        reason=node.reason or (resting_reason(state, node.name) if is_resting else ""),
        labels=node.labels,
        taints=[taint_words(taint) for taint in node.taints],
        cpu_milli=Usage(node.cpu_milli, sum(each.cpu_milli for each in held)),
        memory_mib=Usage(node.memory_mib, sum(each.memory_mib for each in held)),
        pods=Usage(node.pods, len(held)),
        gpu_milli=Usage(whole_milli, whole_milli - sum(gpu.free_milli for gpu in gpus)),
        gpus=gpus,
    )


def _is_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """The very same objects: nodes, pods and workloads are replaced when they change, never edited."""
    return len(before) == len(now) and all(map(is_, before, now))


def taint_words(taint: Taint) -> str:
    """A taint as kubectl writes it: `key=value:Effect`."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def unhealthy_devices(state: ClusterState, workload: str) -> str:
    """Which of the GPUs that a workload runs on are unhealthy, as the end of a sentence."""
    parts = []
    for pod in state.pods.get(workload, {}).values():
        node = state.node_objects.get(pod.node)
        held = {share.gpu for share in pod.devices}
        for gpu in node.gpus if node is not None else ():
            if gpu.id in held and not gpu.healthy and pending_change(gpu) is None:
                parts.append(f"; it runs on {gpu.id} of {pod.node}, which is unhealthy: {gpu.reason}")
    return "".join(dict.fromkeys(parts))


def _gpu_view(
    state: ClusterState, node: Node, column: int, holders: dict[str, list[tuple[Allocation, int, int]]]
) -> GpuView:
    gpu: Gpu = node.gpus[column]
    change = pending_change(gpu)
    free_milli, free_mib = gpu.milli, gpu.memory_mib
    tenants = []
    for held, milli, mib in holders.get(gpu.id, ()):
        free_milli -= milli
        free_mib -= mib
        if isinstance(held, Pod):  # else space that is reserved: not free, but without a tenant yet
            tenants.append(_tenant_view(state, held, milli, mib))
    return GpuView(
        node.name, gpu.id, column, gpu.model, gpu.memory_mib, free_milli, free_mib, gpu.healthy, gpu.reason, tenants,
        gpu.profile, gpu.parent, change=change.state if change else "",
    )  # fmt: skip


def _tenant_view(state: ClusterState, pod: Pod, milli: int, mib: int) -> TenantView:
    workload = state.workloads.get(pod.workload)
    queue, user = (workload.queue, workload.user) if workload is not None else ("", "")
    return TenantView(pod.workload, pod.name, milli, mib, pod.phase, queue=queue, user=user)


def _by_device(held: Iterable[Allocation]) -> dict[str, list[tuple[Allocation, int, int]]]:
    """The holders of each device, sorted by name, so that equal states give equal views."""
    devices: dict[str, list[tuple[Allocation, int, int]]] = {}
    for each in held:
        for share in each.devices:
            devices.setdefault(share.gpu, []).append((each, share.milli, share.mib))
    for holders in devices.values():
        if len(holders) > 1:
            holders.sort(key=lambda holder: (holder[0].workload, pod_name_of(holder[0])))
    return devices


def _similar_name(name: str, known: Iterable[str]) -> str:
    """A hint with a similar name, if there is one: a list of all nodes would not help."""
    near = similar_name(name, known)
    return f"; did you mean '{near}'?" if near else "; see: kaiwo nodes"
