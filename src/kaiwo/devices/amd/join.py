"""Which nodes of the topology are parts of one GPU, and how GPUs reach each other.

In:    GPU nodes.   Out: groups of nodes, one for each physical GPU; links between GPUs; the NUMA node beside each.
Never: counts on a full set: of eight partitions seven may be there.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kaiwo.devices.amd.kfd import LINK_KINDS, PCIE, XGMI, KfdNode, pci_address, read_links
from kaiwo.devices.inventory import Link
from kaiwo.devices.models import VIRTUAL_FUNCTIONS

# These instruction sets have partitions: the kernel puts their number where a PCI address has its function.
PARTITIONED_TARGETS = (range(90_400, 100_000), range(120_500, 130_000))
MOST_XCDS = 8
_NEAREST = {XGMI: 0, PCIE: 1}


def group_nodes(nodes: Sequence[KfdNode], functions: Collection[str] = ()) -> list[list[KfdNode]]:
    """Nodes of one physical GPU together, in the kernel's order; `functions` are addresses of GPUs of their own."""
    groups: list[list[KfdNode]] = []
    places: dict[tuple[int, int], list[list[KfdNode]]] = {}
    are_own = have_own_numbers(nodes)
    for node in nodes:
        if not is_partitioned_kind(node) or not pci_address(node) or pci_address(node) in functions:
            groups.append([node])
            continue
        here = places.setdefault((node.fact("domain"), node.fact("location_id") >> 3), [])
        group = next((group for group in here if _belongs(node, group, are_own)), None)
        if group is None:
            group = []
            here.append(group)
            groups.append(group)
        group.append(node)
    return groups


def have_own_numbers(nodes: Sequence[KfdNode]) -> bool:
    """Newer kernels give every partition of a GPU a `unique_id` of its own, where older ones told the chip's.

    A virtual function's host knows of no such numbers: its partitions tell the function's.
    """
    told = [node for node in nodes if node.fact("unique_id") and is_partitioned_kind(node)]
    counts = Counter(node.fact("unique_id") for node in told)
    return all(count == 1 for count in counts.values()) and not any(map(is_virtual, told))


def is_virtual(node: KfdNode) -> bool:
    return node.fact("device_id") in VIRTUAL_FUNCTIONS


def is_partitioned_kind(node: KfdNode) -> bool:
    return any(node.fact("gfx_target_version") in targets for targets in PARTITIONED_TARGETS)


def indices_of(group: Sequence[KfdNode]) -> list[int]:
    """The partitions' numbers; the first kernels with partitions gave all of them one address."""
    told = [_index(node) for node in group]
    return told if len(set(told)) == len(told) else list(range(len(told)))


def links_of(group: Sequence[KfdNode], ids: Mapping[int, str]) -> tuple[Link, ...]:
    """To every other GPU, the nearest way. The partitions of a GPU all say the same: the first that speaks is heard.

    Reading them all would be 4,000 files on a node of 64 partitions, and take longer than everything else together.
    """
    found: dict[str, tuple[int, int, int, str]] = {}
    mine = ids[group[0].number]
    for link in next((links for node in group if (links := read_links(node))), []):
        to = ids.get(link.to, mine)
        if to == mine:
            continue
        rank = _NEAREST.get(link.kind, 2)
        kind = LINK_KINDS.get(link.kind, f"type-{link.kind}")
        found[to] = min(found.get(to, (9, 0, 0, "")), (rank, link.weight, -link.bandwidth_mb_s, kind))
    return tuple(
        Link(to, kind, weight or None, bandwidth_mb_s=-bandwidth or None)
        for to, (_, weight, bandwidth, kind) in sorted(found.items())
    )


def numa_of(group: Sequence[KfdNode], cpus: Sequence[int]) -> int | None:
    """The nearest CPU node; the kernel numbers them as it does NUMA nodes."""
    near = [(link.weight, link.to) for node in group[:1] for link in read_links(node) if link.to in cpus]
    return cpus.index(min(near)[1]) if near else None


def _belongs(node: KfdNode, group: Sequence[KfdNode], are_own: bool) -> bool:
    """The chip's own number decides; where it cannot be read, or is a partition's, a free place does."""
    mine = 0 if are_own else node.fact("unique_id")
    theirs = {other.fact("unique_id") for other in group} - {0}
    if node.fact("num_xcc") + sum(other.fact("num_xcc") for other in group) > MOST_XCDS:
        return False
    return mine in theirs if mine and theirs else _index(node) not in map(_index, group)


def _index(node: KfdNode) -> int:
    return node.fact("location_id") & 7
