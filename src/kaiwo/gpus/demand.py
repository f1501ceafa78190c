"""What the planner must know, read off the picture: who waits for which cut, and what every GPU is and does.

In:    the live picture, and which changes are under way.   Out: needs and nodes for `plan_partitions`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from kaiwo.gpus.fleet import UNKNOWN_S, GpuNow, Need, NodeNow
from kaiwo.gpus.sites import suits
from kaiwo.model.gpu import WHOLE_MILLI, Gpu
from kaiwo.model.node import Node
from kaiwo.model.partitions import CHIPS, COMPUTE_MODES, WHOLE_MODE, Mode, next_modes, partition_count
from kaiwo.model.request import ANY_PARTITION, Request
from kaiwo.snapshot.nodes import Held
from kaiwo.snapshot.picture import Picture

WHOLE = Mode(WHOLE_MODE, "NPS1")
FINEST_MODE = "CPX"  # every chip that can be cut has it


class Ongoing(msgspec.Struct, gc=False, frozen=True):
    """What earlier plans began with one GPU."""

    model: str
    mode: Mode  # in which it is, or was before the change began
    since_s: int  # when it took that mode
    goal: Mode | None = None
    is_changing: bool = False  # it shows no devices now


def waiting_needs(picture: Picture, now_s: int) -> list[Need]:
    """One need for each kind of waiting pod that asks for GPUs which can be cut."""
    found = []
    for waiting in picture.backlog.by_key.values():
        first = picture.workloads[waiting.line.at(0)[1]]
        waited_s = max(0, now_s - first.submitted_s)
        for shape, _, needed in waiting.needs:
            need = _need(picture.backlog.shapes[shape], needed * len(waiting.line), waited_s)
            if need is not None:
                found.append(need)
    return found


def fleet_of(picture: Picture, ongoing: Mapping[tuple[str, str], Ongoing], now_s: int) -> list[NodeNow]:
    """Every node of GPUs that can be cut and that may take work."""
    begun: dict[str, dict[str, Ongoing]] = defaultdict(dict)
    for (name, gpu), state in ongoing.items():
        begun[name][gpu] = state
    nodes = []
    for name, node in sorted(picture.node_objects.items()):
        # While all its GPUs change, a node shows no devices.
        models = (*(gpu.model for gpu in node.gpus), *(state.model for state in begun[name].values()))
        model = next((model for model in models if model in CHIPS), "")
        if not model or not node.ready or node.cordoned:
            continue
        held = picture.held_on.get(name, {}).values()
        nodes.append(NodeNow(name, model, tuple(_gpus(picture, node, held, begun[name], now_s))))
    return nodes


def could_be_cut(nodes: Iterable[Node], want: Request) -> int:
    """How many physical GPUs that work are cut in another way than the request asks, and could be cut so."""
    need = _need(want, 1, 0)
    if need is None:
        return 0
    found = set()
    for node in nodes:
        for gpu in node.gpus:
            modes = next_modes(gpu.model, _mode(gpu)) if gpu.healthy else ()
            is_wanted = not want.gpu_models or gpu.model in want.gpu_models
            if is_wanted and not suits(_mode(gpu), need) and any(suits(mode, need) for mode in modes):
                found.add((node.name, gpu.parent or gpu.id))
    return len(found)


def _need(want: Request, count: int, waited_s: int) -> Need | None:
    if not want.gpus or not count:
        return None
    if want.is_partition:
        wanted = FINEST_MODE if want.partition == ANY_PARTITION else want.partition
        compute, _, memory = wanted.partition("+")
        known = compute in COMPUTE_MODES
        return Need(compute, memory, want.gpus, count, waited_s, want.gpu_models) if known else None
    if want.is_fraction:  # several find room on one GPU
        count = -(-count * want.gpu_milli // WHOLE_MILLI)
    elif want.is_memory:
        count = 1  # as much of a GPU as the next cycle finds; when that is too little, they still wait
    return Need(WHOLE_MODE, "", want.gpus, count, waited_s, want.gpu_models)


def _gpus(
    picture: Picture, node: Node, held: Iterable[Held], begun: Mapping[str, Ongoing], now_s: int
) -> Iterable[GpuNow]:
    tenants: dict[str, list[tuple[int, int]]] = defaultdict(list)  # by device: until its end, and since its start
    for each in held:
        span = _span(picture, each, now_s)
        for share in each.devices:
            tenants[share.gpu].append(span)
    parts: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in node.gpus:
        parts[gpu.parent or gpu.id].append(gpu)
    for name in sorted({*parts, *begun}):
        state = begun.get(name)
        if state is None:
            state = Ongoing(parts[name][0].model, _mode(parts[name][0]), -UNKNOWN_S)
        if state.model in CHIPS:
            yield _gpu(name, parts[name], tenants, state)


def _gpu(name: str, parts: list[Gpu], tenants: Mapping[str, list[tuple[int, int]]], state: Ongoing) -> GpuNow:
    spans = [tenants[part.id] for part in parts if part.id in tenants]
    free_in_s = max((left for each in spans for left, _ in each), default=0)
    count = partition_count(state.model, state.mode.compute)
    idle = sum(free_in_s - max(left for left, _ in each) for each in spans) + (count - len(spans)) * free_in_s
    lost = sum(max(done for _, done in each) for each in spans)
    return GpuNow(
        name, state.mode, len(spans), free_in_s, idle // count, lost // count, state.since_s, state.goal,
        state.is_changing,
    )  # fmt: skip


def _span(picture: Picture, held: Held, now_s: int) -> tuple[int, int]:
    """How long it will hold its devices at most, and has held them."""
    workload = picture.workloads.get(held.workload)
    since_s = getattr(held, "since_s", now_s)
    lasts_s = (workload.time_limit_s or workload.estimate_s) if workload is not None else 0
    return max(1, since_s + lasts_s - now_s) if lasts_s else UNKNOWN_S, max(0, now_s - since_s)


def _mode(gpu: Gpu) -> Mode:
    compute, _, memory = gpu.profile.partition("+")
    return Mode(compute, memory or "NPS1") if compute in COMPUTE_MODES else WHOLE
