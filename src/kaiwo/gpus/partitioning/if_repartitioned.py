"""How many devices each node would have for a request if its GPUs were partitioned as the request asks."""

from collections.abc import Iterable, Iterator

import msgspec

from kaiwo.gpus.isolation_grades import grade_of, whole_gpus
from kaiwo.gpus.partitioning.demand import demand_of, mode_of
from kaiwo.gpus.partitioning.pending_mode_change import pending_change
from kaiwo.gpus.partitioning.planner_state import suits
from kaiwo.gpus.partitioning.planner_types import ModeDemand
from kaiwo.model.gpus.gpu import Gpu, is_grade_enough, vendor_of
from kaiwo.model.gpus.partition_modes import legal_modes, next_modes, partition_count
from kaiwo.model.node import Node
from kaiwo.model.request import Request


class RepartitionedNode(msgspec.Struct, gc=False, frozen=True):
    node: str
    devices: int = 0  # usable if all its GPUs were in this mode
    now: int = 0  # of these devices, usable now
    others: int = 0  # physical GPUs in another mode
    coming: int = 0  # of these GPUs, already changing


def if_repartitioned(nodes: Iterable[Node], want: Request) -> Iterator[RepartitionedNode]:
    demand = demand_of(want)
    for node in nodes if demand is not None else ():
        found = _node_if_repartitioned(node, want, demand) if demand is not None else None
        if found is not None and found.others:
            yield found


def available_modes(nodes: Iterable[Node], want: Request) -> dict[str, tuple[str, ...]]:
    """The legal compute modes of each model that the request allows."""
    models = {gpu.model for node in nodes for gpu in node.gpus if _is_wanted(gpu, want)}
    return {model: tuple(dict.fromkeys(mode.compute for mode in legal_modes(model))) for model in sorted(models)}


def is_isolation_too_weak(nodes: Iterable[Node], want: Request) -> bool:
    """True if no GPU would isolate a share as the request asks, even if it were not partitioned."""
    wanted = [(node, gpu) for node in nodes for gpu in whole_gpus(node) if _is_wanted(gpu, want)]
    return bool(wanted) and not any(_isolates_enough(node, gpu, want) for node, gpu in wanted)


def _node_if_repartitioned(node: Node, want: Request, demand: ModeDemand) -> RepartitionedNode:
    devices = now = others = coming = 0
    parts: dict[str, list[Gpu]] = {}
    for gpu in node.gpus:
        parts.setdefault(gpu.parent or gpu.id, []).append(gpu)
    for whole in whole_gpus(node):
        mine = parts[whole.id]
        changes = [pending_change(gpu) for gpu in mine if not gpu.healthy]
        if None in changes or not _is_wanted(whole, want) or not _isolates_enough(node, whole, want):
            continue  # unhealthy or unsuitable
        if suits(mode_of(mine[0]), demand) and not changes:
            devices, now = devices + len(mine), now + len(mine)
        elif any(suits(mode, demand) for mode in next_modes(whole.model, mode_of(mine[0]))):
            devices, others = devices + partition_count(whole.model, demand.compute), others + 1
            coming += any(change is not None and suits(change.goal, demand) for change in changes)
    return RepartitionedNode(node.name, devices, now, others, coming)


def _is_wanted(gpu: Gpu, want: Request) -> bool:
    is_model = not want.gpu_models or gpu.model in want.gpu_models
    return is_model and (not want.vendor or vendor_of(gpu) in ("", want.vendor))


def _isolates_enough(node: Node, gpu: Gpu, want: Request) -> bool:
    if want.is_exclusive or not (want.isolation or want.least_grade):
        return True
    grade = grade_of(want, gpu, node.labels)
    return bool(grade) and is_grade_enough(grade, want.least_grade)
