"""Group KFD nodes into physical GPUs, find the PCI address of nodes that lack one, and read links and NUMA nodes.

Never: changes a node whose address is known; lists a GPU twice because one of its files can't be read.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kaiwo.devices.amd.kfd_topology import LINK_KINDS, PCIE, XGMI, KfdNode, pci_address, read_links
from kaiwo.devices.amd.machine_paths import MachinePaths, drm_names
from kaiwo.devices.gpu_names import MODELS_BY_PCI_ID, VIRTUAL_FUNCTIONS
from kaiwo.devices.inventory import Link

# These instruction sets have partitions: the kernel puts their index in the function of the PCI address.
PARTITIONED_TARGETS = (range(90_400, 100_000), range(120_500, 130_000))
MAX_XCDS = 8
_NEAREST = {XGMI: 0, PCIE: 1}


def group_nodes(nodes: Sequence[KfdNode], functions: Collection[str] = ()) -> list[list[KfdNode]]:
    """Group nodes by physical GPU, in the kernel's order; `functions`: addresses of virtual functions."""
    groups: list[list[KfdNode]] = []
    slots: dict[tuple[int, int], list[list[KfdNode]]] = {}
    are_own = have_own_ids(nodes)
    for node in nodes:
        if not can_be_partitioned(node) or not pci_address(node) or pci_address(node) in functions:
            groups.append([node])
            continue
        here = slots.setdefault((node.fact("domain"), node.fact("location_id") >> 3), [])
        group = next((group for group in here if _belongs(node, group, are_own)), None)
        if group is None:
            group = []
            here.append(group)
            groups.append(group)
        group.append(node)
    return groups


def have_own_ids(nodes: Sequence[KfdNode]) -> bool:
    """True if every partition has its own `unique_id`, as on newer kernels; older ones report the chip's.

    Partitions of a virtual function always report the function's.
    """
    reported = [node for node in nodes if node.fact("unique_id") and can_be_partitioned(node)]
    counts = Counter(node.fact("unique_id") for node in reported)
    return all(count == 1 for count in counts.values()) and not any(map(is_virtual, reported))


def is_virtual(node: KfdNode) -> bool:
    return node.fact("device_id") in VIRTUAL_FUNCTIONS


def can_be_partitioned(node: KfdNode) -> bool:
    return any(node.fact("gfx_target_version") in targets for targets in PARTITIONED_TARGETS)


def partition_indices(group: Sequence[KfdNode]) -> list[int]:
    """The indices of the partitions; the first kernels with partitions gave all of them one address."""
    reported = [_index(node) for node in group]
    return reported if len(set(reported)) == len(reported) else list(range(len(reported)))


def gpu_links(group: Sequence[KfdNode], ids: Mapping[int, str]) -> tuple[Link, ...]:
    """The nearest link to every other GPU. All partitions of a GPU have the same links, so one of them is read.

    Reading all would be 4,000 files on a node of 64 partitions, and take longer than everything else together.
    """
    found: dict[str, tuple[int, int, int, int]] = {}
    mine = ids[group[0].number]
    for link in next((links for node in group if (links := read_links(node))), []):
        to = ids.get(link.to, mine)
        if to == mine:
            continue
        key = (_NEAREST.get(link.kind, 2), link.weight, -link.bandwidth_mb_s, link.kind)
        if to not in found or key < found[to]:
            found[to] = key
    return tuple(
        Link(to, LINK_KINDS.get(kind, f"type-{kind}"), weight or None, bandwidth_mb_s=-bandwidth or None)
        for to, (_, weight, bandwidth, kind) in sorted(found.items())
    )


def numa_node(group: Sequence[KfdNode], cpus: Sequence[int]) -> int | None:
    """The nearest CPU node, which has the same number as its NUMA node."""
    near = [(link.weight, link.to) for node in group[:1] for link in read_links(node) if link.to in cpus]
    return cpus.index(min(near)[1]) if near else None


def _belongs(node: KfdNode, group: Sequence[KfdNode], are_own: bool) -> bool:
    """True if the chip's unique_id matches; if it is unknown or a partition's, if the partition index is free."""
    mine = 0 if are_own else node.fact("unique_id")
    theirs = {other.fact("unique_id") for other in group} - {0}
    if node.fact("num_xcc") + sum(other.fact("num_xcc") for other in group) > MAX_XCDS:
        return False
    return mine in theirs if mine and theirs else _index(node) not in map(_index, group)


def _index(node: KfdNode) -> int:
    return node.fact("location_id") & 7


_CHIP_PROPERTIES = ("gfx_target_version", "device_id", "num_xcc")  # the same for all partitions of a GPU


def locate_nodes(paths: MachinePaths, nodes: Sequence[KfdNode]) -> tuple[list[KfdNode], list[str]]:
    """All nodes with their address found if possible, in order; notes on those left out."""
    addresses = [function_address(node) for node in nodes]
    unlocated = [node for node, at in zip(nodes, addresses, strict=True) if not at or not paths.pci_folder(at)]
    if not unlocated:
        return list(nodes), []
    known = paths.amd_addresses()
    unlocated = [node for node in unlocated if not _is_part_of(node, known)]
    numbers = {node.number for node in unlocated}
    placed = [node for node in nodes if node.number not in numbers]
    free = [address for address in known if address not in {function_address(node) for node in placed}]
    notes: list[str] = []
    for node in sorted(unlocated, key=lambda node: not pci_address(node)):  # those without an address last
        address = pci_address(node)
        if address and known and _is_misplaced(node, placed, free):
            reported = node.facts.pop("location_id")
            node.problems.append(f"properties says location_id {reported} ({address}), but no GPU is there")
            address = ""
        if address or _locate(paths, node, placed, free) or not known:
            placed.append(node)
        else:
            why = "; ".join(node.problems)
            notes.append(f"node {node.number} of the topology is ignored, because every GPU has its nodes: {why}")
    return sorted(placed, key=lambda node: node.number), notes


def _is_misplaced(node: KfdNode, placed: Sequence[KfdNode], free: Sequence[str]) -> bool:
    """True if its address must be wrong. A copy may lack PCI devices, so a free GPU must be waiting for it too."""
    mine = node.fact("unique_id")
    return bool(free) or any(
        mine and mine == group[0].fact("unique_id") and _lacks_partition(group) for group in group_nodes(placed)
    )


def _is_part_of(node: KfdNode, known: Sequence[str]) -> bool:
    """True if it is a partition of a known device; the last digit may be a function or a partition."""
    address = pci_address(node)
    return bool(address) and can_be_partitioned(node) and any(one[:-1] == address[:-1] for one in known)


def function_address(node: KfdNode) -> str:
    """The address of the PCI function; on a partition the last digit is its index."""
    address = pci_address(node)
    is_part = can_be_partitioned(node) and not is_virtual(node)
    return f"{address[:-1]}0" if address and is_part else address


def _locate(paths: MachinePaths, node: KfdNode, placed: Sequence[KfdNode], free: list[str]) -> bool:
    """Find its GPU: by render node, next to neighbouring nodes, a GPU without nodes, or one that lacks a partition."""
    render = f"renderD{node.fact('drm_render_minor')}"
    if address := next((one for one in free if drm_names(paths.pci_folder(one))[1] == render), ""):
        free.remove(address)
        _set_address(node, address)
        return True
    short = [group for group in group_nodes(placed) if _lacks_partition(group)]
    beside = [group for group in short if _distance(node, group) == 1]
    if not beside and free:
        _set_address(node, free.pop(0))
    elif beside or short:
        _add_to_group(node, min(beside or short, key=lambda group: _distance(node, group)))
    else:
        return False
    return True


def _lacks_partition(group: Sequence[KfdNode]) -> bool:
    models = MODELS_BY_PCI_ID.get(group[0].fact("device_id"))
    chip, xcds = models[0].chip if models else None, [node.fact("num_xcc") for node in group]
    return chip is not None and min(xcds) > 0 and sum(xcds) + min(xcds) <= chip.xcds


def _distance(node: KfdNode, group: Sequence[KfdNode]) -> int:
    return min(abs(node.number - other.number) for other in group)


def _set_address(node: KfdNode, address: str) -> None:
    domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    node.facts["domain"] = int(domain, 16)
    node.facts["location_id"] = int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)


def _add_to_group(node: KfdNode, group: Sequence[KfdNode]) -> None:
    """Add the node to a GPU; partitions are numbered consecutively, so its number gives the index."""
    near = min(group, key=lambda other: abs(node.number - other.number))
    # Its own unique_id is unknown: the free index among the others assigns it.
    node.facts |= {name: near.fact(name) for name in _CHIP_PROPERTIES} | {"domain": near.fact("domain"), "unique_id": 0}
    taken = [other.fact("location_id") & 7 for other in group]
    index = (near.fact("location_id") & 7) + node.number - near.number
    if index in taken or not 0 <= index < 8:
        index = min(set(range(8)) - set(taken), default=0)
    node.facts["location_id"] = near.fact("location_id") & ~7 | index
