"""The input of the partition planner from the cluster state: demands of waiting pods, and the states of nodes."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, sub

import msgspec
from msgspec.structs import replace

from kaiwo.gpus.partitioning.pending_mode_change import pending_change
from kaiwo.gpus.partitioning.planner_types import (
    UNKNOWN_S,
    GpuKey,
    GpuState,
    ModeDemand,
    NodeResources,
    NodeState,
    PodSize,
    Tenant,
)
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Gpu
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import COMPUTE_MODES, WHOLE_MODE, Mode, Platform, partition_count, read_mode
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import ANY_PARTITION, Request
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import Allocation


def extended_names(nodes: Iterable[Node]) -> list[str]:
    """The extended resources of all nodes, in the order of `NodeResources`."""
    return sorted({name for node in nodes for name in node.extended})


def size_of_pods(want: Request, count: int, names: Sequence[str]) -> PodSize:
    """`count`: as in the demand, which counts GPUs if several pods share one."""
    sharers = WHOLE_MILLI // want.gpu_milli if want.is_fraction else 1
    return PodSize(_amounts(want, names), count, sharers)


def joined_sizes(sizes: Iterable[PodSize]) -> tuple[PodSize, ...]:
    counts: Counter[tuple[NodeResources, int]] = Counter()
    for size in sizes:
        counts[size.amounts, size.sharers] += size.count
    return tuple(PodSize(amounts, count, sharers) for (amounts, sharers), count in counts.items())


def free_beside(node: Node, held: Iterable[Allocation], names: Sequence[str]) -> NodeResources:
    free: NodeResources = (node.cpu_milli, node.memory_mib, node.pods, *(node.extended.get(name, 0) for name in names))
    for each in held:
        free = tuple(map(sub, free, _amounts(each, names)))
    return free


def tenants_of(node: Node, held: Iterable[Allocation], names: Sequence[str]) -> tuple[Tenant, ...]:
    physical = {gpu.id: gpu.parent or gpu.id for gpu in node.gpus}
    found: dict[tuple[str, ...], NodeResources] = {}
    for each in held:
        gpus = tuple(sorted({physical[share.gpu] for share in each.devices if share.gpu in physical}))
        if gpus:
            amounts = _amounts(each, names)
            found[gpus] = tuple(map(add, found[gpus], amounts)) if gpus in found else amounts
    return tuple(Tenant(gpus, amounts) for gpus, amounts in found.items())


def _amounts(of: Request | Allocation, names: Sequence[str]) -> NodeResources:
    if not names:
        return (of.cpu_milli, of.memory_mib, 1)
    extended: Mapping[str, int] = dict(of.extended)
    return (of.cpu_milli, of.memory_mib, 1, *(extended.get(name, 0) for name in names))


OpenTo = Callable[[Request, int], frozenset[str] | None]  # nodes that could hold this many such pods; None: all
BarredTo = Callable[[Request], frozenset[GpuKey]]  # the GPUs that reservations keep from a request
MayStart = Callable[[WaitingClass], bool]
WHOLE = Mode(WHOLE_MODE, "NPS1")
# A workload that waits for one of these would not start on other GPUs either.
UNRELATED_REASONS = (
    Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA, Reason.NO_QUEUE, Reason.QUEUE_NOT_LEAF, Reason.GPU_MODEL,
    Reason.RESERVATION,
)  # fmt: skip
WAIT_BUCKET_S = 600  # demands whose waits fall into the same bucket are joined
FINEST_MODE = "CPX"  # every chip with partitions has it


class GpuModeState(msgspec.Struct, gc=False, frozen=True):
    """The mode of a GPU, and the change that earlier plans began."""

    model: str
    mode: Mode  # in which it is, or was before the change began
    since_s: int  # when it took that mode
    goal: Mode | None = None
    is_changing: bool = False  # being changed; a machine may show none of its devices meanwhile


def waiting_demands(
    state: ClusterState,
    now_s: int,
    open_to: OpenTo | None = None,
    may_start: MayStart | None = None,
    barred_to: BarredTo | None = None,
) -> list[ModeDemand]:
    """One demand for each kind of waiting pod that asks for GPUs with partition modes and may start in its queue.

    Workloads that no change of modes would serve are left out. Pods that ask for the same GPUs and have waited about as
    long are one kind, whatever else they ask for: for 500 classes on 10,000 GPUs this takes 0.2 s instead of 10 s.
    """
    found: dict[tuple[ModeDemand, int], list[ModeDemand]] = {}
    names = extended_names(state.node_objects.values())
    for waiting in state.backlog.by_key.values():
        if any(obstacle.reason in UNRELATED_REASONS for obstacle in waiting.obstacles):
            continue
        if may_start and not may_start(waiting):
            continue
        wants = [(state.backlog.shapes[shape], needed) for shape, _, needed in waiting.needs if needed]
        places = [open_to(want, needed) if open_to else None for want, needed in wants]
        if frozenset() in places:
            continue
        first = state.workloads[waiting.waiters.name_at(0)]
        waited_s = max(0, now_s - first.submitted_s)
        for (want, needed), nodes in zip(wants, places, strict=True):
            demand = demand_of(want, needed * len(waiting.waiters), waited_s)
            if demand is not None:
                demand = replace(demand, nodes=nodes, barred=barred_to(want) if barred_to else frozenset())
                key = (replace(demand, count=0, waited_s=0), waited_s // WAIT_BUCKET_S)
                sizes = (size_of_pods(want, demand.count, names),)
                found.setdefault(key, []).append(replace(demand, sizes=sizes))
    return [_joined(alike) for alike in found.values()]


def node_states(
    state: ClusterState,
    ongoing: Mapping[tuple[str, str], GpuModeState],
    now_s: int,
    platforms: Mapping[str, Platform] | None = None,
) -> list[NodeState]:
    """Every schedulable node whose GPUs have partition modes. `platforms`: of nodes where it is known."""
    begun: dict[str, dict[str, GpuModeState]] = defaultdict(dict)
    for (name, gpu), change in ongoing.items():
        begun[name][gpu] = change
    nodes, names = [], extended_names(state.node_objects.values())
    for name, node in sorted(state.node_objects.items()):
        # While all its GPUs change, a node may show no devices.
        models = (*(gpu.model for gpu in node.gpus), *(change.model for change in begun[name].values()))
        model = next((model for model in models if model in CHIPS), "")
        if not model or not node.ready or node.cordoned:
            continue
        held = state.allocations_on.get(name, {}).values()
        platform = (platforms or {}).get(name, "bare-metal")
        gpus = tuple(_gpus(state, node, held, begun[name], now_s))
        free, tenants = free_beside(node, held, names), tenants_of(node, held, names)
        nodes.append(NodeState(name, model, gpus, platform, free, tenants))
    return nodes


def _joined(alike: list[ModeDemand]) -> ModeDemand:
    return replace(
        alike[0],
        count=sum(demand.count for demand in alike),
        waited_s=max(demand.waited_s for demand in alike),
        sizes=joined_sizes(size for demand in alike for size in demand.sizes),
    )


def demand_of(want: Request, count: int = 1, waited_s: int = 0) -> ModeDemand | None:
    """The demand of a request for AMD GPUs in a mode; None if it has none."""
    if not want.gpus or not count or want.vendor not in ("", "amd"):
        return None
    if want.is_partition:
        wanted = FINEST_MODE if want.partition == ANY_PARTITION else want.partition
        compute, memory = read_mode(wanted)
        known = compute in COMPUTE_MODES
        return ModeDemand(compute, memory, want.gpus, count, waited_s, want.gpu_models) if known else None
    if want.is_fraction:  # several pods fit on one GPU
        count = -(-count * want.gpu_milli // WHOLE_MILLI)
    elif want.is_memory:
        count = 1  # one GPU; if that is not enough, the rest still waits in the next cycle
    return ModeDemand(WHOLE_MODE, "", want.gpus, count, waited_s, want.gpu_models, is_share=not want.is_whole)


def _gpus(
    state: ClusterState, node: Node, held: Iterable[Allocation], begun: Mapping[str, GpuModeState], now_s: int
) -> Iterable[GpuState]:
    tenants: dict[str, list[int]] = defaultdict(list)  # by device: the time until each of its tenants ends
    for each in held:
        ends_in_s = _ends_in_s(state, each, now_s)
        for share in each.devices:
            tenants[share.gpu].append(ends_in_s)
    parts: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in node.gpus:
        parts[gpu.parent or gpu.id].append(gpu)
    for name in sorted({*parts, *begun}):
        change = begun.get(name)
        if not parts[name] and not (change and change.is_changing):
            continue  # it was removed from the machine
        shown = mode_of(parts[name][0]) if parts[name] else None
        if change is not None and parts[name] and pending_change(parts[name][0]):
            # The cluster state lags behind and still shows it closed; no second GPU must change because of that.
            yield _gpu(name, parts[name], tenants, change)
            continue
        if change is None or (change.goal is None and shown not in (None, change.mode)):  # changed by others
            change = GpuModeState(parts[name][0].model, shown or WHOLE, -UNKNOWN_S)
        is_unhealthy = change.goal is None and not all(part.healthy for part in parts[name])  # closed ones have a goal
        if change.model in CHIPS and not is_unhealthy:
            yield _gpu(name, parts[name], tenants, change)


def _gpu(name: str, parts: list[Gpu], tenants: Mapping[str, list[int]], change: GpuModeState) -> GpuState:
    ends_in_s = [max(tenants[part.id]) for part in parts if part.id in tenants]
    free_in_s, used = max(ends_in_s, default=0), len(ends_in_s)
    count = partition_count(change.model, change.mode.compute)
    idle = sum(free_in_s - each for each in ends_in_s) + (count - used) * free_in_s
    goal, is_changing = change.goal, change.is_changing
    return GpuState(name, change.mode, used, free_in_s, idle // count, change.since_s, goal, is_changing)


def _ends_in_s(state: ClusterState, held: Allocation, now_s: int) -> int:
    """How long it will hold its devices at most."""
    workload = state.workloads.get(held.workload)
    since_s = getattr(held, "since_s", now_s)
    lasts_s = (workload.time_limit_s or workload.estimate_s) if workload is not None else 0
    return max(1, since_s + lasts_s - now_s) if lasts_s else UNKNOWN_S


def mode_of(gpu: Gpu) -> Mode:
    """The mode of a device by its profile; a whole GPU is in SPX."""
    compute, memory = read_mode(gpu.profile)
    return Mode(compute, memory or "NPS1") if compute in COMPUTE_MODES else WHOLE
