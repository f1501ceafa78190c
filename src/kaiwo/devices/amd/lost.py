"""Nodes of the topology that do not say where they are, joined to the GPU whose part they must be.

In:    GPU nodes and the PCI devices of the machine.   Out: the same nodes, the lost ones with a place if there is one.
Never: touches a node whose place is known; lets one GPU be listed twice because one of its files cannot be read.
"""

from collections.abc import Sequence

from kaiwo.devices.amd.join import group_nodes, is_partitioned_kind
from kaiwo.devices.amd.kfd import KfdNode, pci_address
from kaiwo.devices.amd.layout import Layout, drm_names
from kaiwo.devices.models import AMD_DEVICES, VIRTUAL_FUNCTIONS
from kaiwo.model.partitions import CHIPS

_OF_THE_CHIP = ("gfx_target_version", "device_id", "num_xcc")  # the same for all parts of one GPU


def place_lost(layout: Layout, nodes: Sequence[KfdNode]) -> tuple[list[KfdNode], list[str]]:
    """All nodes that are a GPU or a part of one, in order; notes on those that can be none."""
    homeless = [node for node in nodes if not _home(layout, node)]
    if not homeless:
        return list(nodes), []
    known = layout.amd_addresses()
    homeless = [node for node in homeless if not _is_part_of(node, known)]
    numbers = {node.number for node in homeless}
    placed = [node for node in nodes if node.number not in numbers]
    free = [address for address in known if address not in {_address(node) for node in placed}]
    notes: list[str] = []
    for node in sorted(homeless, key=lambda node: not pci_address(node)):  # those without a place beside the others
        said = pci_address(node)
        if said and known and _is_misplaced(node, placed, free):
            told = node.facts.pop("location_id")
            node.problems.append(f"properties says location_id {told} ({said}), and no GPU is there")
            said = ""
        if said or _place(layout, node, placed, free) or not known:
            placed.append(node)
        else:
            why = "; ".join(node.problems)
            notes.append(f"node {node.number} of the topology is left out, as every GPU has its nodes: {why}")
    return sorted(placed, key=lambda node: node.number), notes


def _is_misplaced(node: KfdNode, placed: Sequence[KfdNode], free: Sequence[str]) -> bool:
    """A copy may hold some PCI devices only: that nothing is at its address is no proof without a place that waits."""
    mine = node.fact("unique_id")
    return bool(free) or any(
        mine and mine == group[0].fact("unique_id") and _lacks_a_part(group) for group in group_nodes(placed)
    )


def _home(layout: Layout, node: KfdNode) -> str:
    address = _address(node)
    return layout.pci_folder(address) if address else ""


def _is_part_of(node: KfdNode, known: Sequence[str]) -> bool:
    """Of a virtual function the last digit is its own or its partition's: the device decides."""
    address = pci_address(node)
    return bool(address) and is_partitioned_kind(node) and any(one[:-1] == address[:-1] for one in known)


def _address(node: KfdNode) -> str:
    """Of the PCI function; a partition's number stands where a function has its own."""
    address = pci_address(node)
    is_part = is_partitioned_kind(node) and node.fact("device_id") not in VIRTUAL_FUNCTIONS
    return f"{address[:-1]}0" if address and is_part else address


def _place(layout: Layout, node: KfdNode, placed: Sequence[KfdNode], free: list[str]) -> bool:
    """By its render node; beside its neighbours; on a GPU that no other node names; with any GPU that lacks a part."""
    if address := _by_render(layout, node, free):
        free.remove(address)
        _settle(node, address)
        return True
    short = [group for group in group_nodes(placed) if _lacks_a_part(group)]
    beside = [group for group in short if _distance(node, group) == 1]
    if not beside and free:
        _settle(node, free.pop(0))
    elif beside or short:
        _join(node, min(beside or short, key=lambda group: _distance(node, group)))
    else:
        return False
    return True


def _by_render(layout: Layout, node: KfdNode, free: Sequence[str]) -> str:
    render = f"renderD{node.fact('drm_render_minor')}"
    return next((address for address in free if drm_names(layout.pci_folder(address))[1] == render), "")


def _lacks_a_part(group: Sequence[KfdNode]) -> bool:
    chip = CHIPS.get(AMD_DEVICES.get(group[0].fact("device_id"), ""))
    each = min(node.fact("num_xcc") for node in group)
    return bool(chip and each) and sum(node.fact("num_xcc") for node in group) + each <= (chip.xcds if chip else 0)


def _distance(node: KfdNode, group: Sequence[KfdNode]) -> int:
    return min(abs(node.number - other.number) for other in group)


def _settle(node: KfdNode, address: str) -> None:
    domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    node.facts["domain"] = int(domain, 16)
    node.facts["location_id"] = int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)


def _join(node: KfdNode, group: Sequence[KfdNode]) -> None:
    """The kernel numbers the parts of a GPU one after another: the number tells which one it is."""
    near = min(group, key=lambda other: abs(node.number - other.number))
    # A number of its own is not known: its free place among the others says whose part it is.
    node.facts |= {name: near.fact(name) for name in _OF_THE_CHIP} | {"domain": near.fact("domain"), "unique_id": 0}
    taken = [other.fact("location_id") & 7 for other in group]
    index = (near.fact("location_id") & 7) + node.number - near.number
    if index in taken or not 0 <= index < 8:
        index = min(set(range(8)) - set(taken), default=0)
    node.facts["location_id"] = near.fact("location_id") & ~7 | index
