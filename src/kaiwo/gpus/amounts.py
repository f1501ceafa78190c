"""What pods take of a node beside its GPUs, as the partition planner counts it.

In:    requests, nodes, what is held there.   Out: milli-CPU, MiB, pods, then the extended resources by name.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import add, sub

from kaiwo.gpus.fleet import Amounts, PodSize, Tenant
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.snapshot.nodes import Held


def extended_names(nodes: Iterable[Node]) -> list[str]:
    """The extended resources that any node has: the order in which all amounts tell them."""
    return sorted({name for node in nodes for name in node.extended})


def size_of_pods(want: Request, count: int, names: Sequence[str]) -> PodSize:
    """`count`: as the need counts them, which is GPUs where several pods share one."""
    sharers = WHOLE_MILLI // want.gpu_milli if want.is_fraction else 1
    return PodSize(_amounts(want, names), count, sharers)


def joined_sizes(sizes: Iterable[PodSize]) -> tuple[PodSize, ...]:
    """Those that ask for the same together."""
    counts: dict[tuple[Amounts, int], int] = {}
    for size in sizes:
        key = (size.amounts, size.sharers)
        counts[key] = counts.get(key, 0) + size.count
    return tuple(PodSize(amounts, count, sharers) for (amounts, sharers), count in counts.items())


def free_beside(node: Node, held: Iterable[Held], names: Sequence[str]) -> Amounts:
    """What nobody holds of a node."""
    free: Amounts = (node.cpu_milli, node.memory_mib, node.pods, *(node.extended.get(name, 0) for name in names))
    for each in held:
        free = tuple(map(sub, free, _amounts(each, names)))
    return free


def tenants_of(node: Node, held: Iterable[Held], names: Sequence[str]) -> tuple[Tenant, ...]:
    """The work on the GPUs of a node, with what it holds beside them."""
    physical = {gpu.id: gpu.parent or gpu.id for gpu in node.gpus}
    found: dict[tuple[str, ...], Amounts] = {}
    for each in held:
        gpus = tuple(sorted({physical[share.gpu] for share in each.devices if share.gpu in physical}))
        if gpus:
            amounts = _amounts(each, names)
            found[gpus] = tuple(map(add, found[gpus], amounts)) if gpus in found else amounts
    return tuple(Tenant(gpus, amounts) for gpus, amounts in found.items())


def _amounts(of: Request | Held, names: Sequence[str]) -> Amounts:
    if not names:
        return (of.cpu_milli, of.memory_mib, 1)
    extended: Mapping[str, int] = dict(of.extended)
    return (of.cpu_milli, of.memory_mib, 1, *(extended.get(name, 0) for name in names))
