"""The kernel's compute topology: CPUs and GPUs as numbered nodes, and the links between them.

In:    the folder `nodes` of a topology.   Out: nodes with their facts, and what is wrong with each.
Never: drops a node because a part of it cannot be read: it comes back with the reason.
"""

import os
from collections import Counter
from collections.abc import Sequence

import msgspec

from kaiwo.devices.amd.files import numbered, read_properties, text_of

CPU, GPU = "cpu", "gpu"
GPU_SIGNS = ("simd_count", "gfx_target_version", "device_id", "drm_render_minor")
MOST_NODES = 1024
PCIE, XGMI = 2, 11
LINK_KINDS = {1: "hypertransport", PCIE: "pcie", 5: "qpi", 8: "rapidio", 9: "infiniband", XGMI: "xgmi"}
_LOCAL_HEAPS = (1, 2)  # memory on the GPU that the CPU can see, and cannot


class RawLink(msgspec.Struct, gc=False, frozen=True):
    """A link as the kernel numbers it."""

    kind: int
    to: int
    weight: int
    bandwidth_mb_s: int
    is_direct: bool


class KfdNode(msgspec.Struct):
    """One node: its number, its facts, its trouble."""

    number: int
    folder: str
    facts: dict[str, int]
    problems: list[str]
    kind: str = ""
    is_cut: bool = False
    links: list[RawLink] | None = None  # read when somebody asks

    def fact(self, name: str) -> int:
        return self.facts.get(name, 0)

    @property
    def compute_units(self) -> int:
        return self.fact("simd_count") // (self.fact("simd_per_cu") or 4)


def read_nodes(folder: str) -> list[KfdNode]:
    """Every node, in the kernel's order: the one in which ROCr counts."""
    nodes = [_read_node(folder, number) for number in numbered(folder)[:MOST_NODES]]
    _tell_kinds(nodes)
    gpus = [node for node in nodes if node.kind == GPU]
    _compare(gpus, gpus if len(gpus) > 1 else nodes)
    return nodes


def read_links(node: KfdNode) -> list[RawLink]:
    """Direct links first; those over PCIe between GPUs lie in a folder of their own."""
    if node.links is None:
        node.links = []
        for place in ("io_links", "p2p_links"):
            top = os.path.join(node.folder, place)
            for number in numbered(top)[:MOST_NODES]:
                facts = read_properties(f"{top}/{number}/properties").facts
                if "node_to" in facts and "type" in facts:
                    weight, reach = facts.get("weight", 0), facts.get("max_bandwidth", 0)
                    node.links.append(RawLink(facts["type"], facts["node_to"], weight, reach, place == "io_links"))
    return node.links


def memory_mib(node: KfdNode) -> int:
    """The memory banks on the GPU; older kernels say it in one number."""
    top = os.path.join(node.folder, "mem_banks")
    banks = [read_properties(f"{top}/{number}/properties").facts for number in numbered(top)[:64]]
    local = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _LOCAL_HEAPS)
    size = (local or node.fact("local_mem_size")) >> 20
    return size if size < 1 << 26 else 0  # 64 TiB on one GPU is no memory size


def pci_address(node: KfdNode) -> str:
    """With its domain. The lowest three bits are the function, or the number of a partition."""
    if "location_id" not in node.facts or node.kind != GPU:
        return ""
    place, domain = node.fact("location_id"), node.fact("domain")
    if place > 0xFFFF or domain > 0xFFFFFFFF or not (place or domain):
        return ""
    return f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _read_node(top: str, number: int) -> KfdNode:
    folder = f"{top}/{number}"
    read = read_properties(f"{folder}/properties")
    return KfdNode(number, folder, dict(read.facts), list(read.problems), is_cut=read.is_cut)


def _tell_kinds(nodes: Sequence[KfdNode]) -> None:
    for node in nodes:
        if any(node.fact(name) for name in GPU_SIGNS):
            node.kind = GPU
        elif node.fact("cpu_cores_count"):
            node.kind = CPU
    unclear = [node for node in nodes if not node.kind]
    if not unclear:
        return
    # A direct PCIe link of a GPU leads to a CPU.
    gpus = [node for node in nodes if node.kind == GPU]
    hosts = {link.to for node in gpus[:8] for link in read_links(node) if link.kind == PCIE and link.is_direct}
    for node in unclear:
        told = text_of(f"{node.folder}/gpu_id")
        is_cpu = node.number == 0 or node.number in hosts
        if told.isdecimal():
            is_cpu = int(told) == 0
        node.kind = CPU if is_cpu else GPU


def _compare(gpus: Sequence[KfdNode], alike: Sequence[KfdNode]) -> None:
    """A kernel writes the same lines for every node of a kind: one that has fewer was cut off."""
    readable = [node for node in alike if node.facts]
    counts = Counter(name for node in readable for name in node.facts)
    cut = sum(node.is_cut for node in readable)
    for node in gpus:
        others = len(readable) - 1
        if not node.facts or others < 1:
            continue
        missing = [name for name, count in counts.items() if name not in node.facts and count * 2 > others]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            node.problems.append(f"properties lacks {missing[0]}{more}")
        elif node.is_cut and (cut - 1) * 2 < others:
            node.problems.append(f"properties ends in the middle of a line ({list(node.facts)[-1]})")
