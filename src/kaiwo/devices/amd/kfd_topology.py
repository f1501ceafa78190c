"""Read the KFD topology: CPUs and GPUs as numbered nodes, and the links between them.

Never: drops a node because a part of it can't be read.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from kaiwo.devices.amd.sysfs_files import (
    numbered_entries,
    parse_properties,
    plausible_bytes,
    read_bytes,
    read_properties,
    read_text,
)

CPU, GPU = "cpu", "gpu"
GPU_PROPERTIES = ("simd_count", "gfx_target_version", "device_id", "drm_render_minor")
MAX_NODES = 1024
MAX_PARTS = 8
MAX_SIMDS = 1 << 14  # 4,096 compute units
PCIE, XGMI = 2, 11
LINK_KINDS = {1: "hypertransport", PCIE: "pcie", 5: "qpi", 8: "rapidio", 9: "infiniband", XGMI: "xgmi"}
# The kernel's error for a GPU that our cgroup may not use; ROCr skips such nodes.
CGROUP_DENIED = f"properties: {os.strerror(errno.EPERM).lower()}"
_LOCAL_HEAPS = (1, 2)  # GPU memory that the CPU can see, and that it can't
# A link as every kernel writes it. A node of 64 partitions has 500 links to read, and this takes a fifth of parsing all
# their lines.
_LINK = re.compile(
    rb"type (\d{1,9})\nversion_major \d{1,9}\nversion_minor \d{1,9}\nnode_from \d{1,9}\nnode_to (\d{1,9})\n"
    rb"weight (\d{1,9})\nmin_latency \d{1,9}\nmax_latency \d{1,9}\nmin_bandwidth \d{1,9}\n"
    rb"max_bandwidth (\d{1,9})\n(?:[a-z_]{1,40} \d{1,20}\n)*"
)


class KfdLink(msgspec.Struct, gc=False, frozen=True):
    kind: int
    to: int
    weight: int
    bandwidth_mb_s: int
    is_direct: bool


class KfdNode(msgspec.Struct):
    number: int
    folder: str
    facts: dict[str, int]
    problems: list[str]
    kind: str = ""
    is_truncated: bool = False
    links: list[KfdLink] | None = None  # read on demand

    def fact(self, name: str) -> int:
        return self.facts.get(name, 0)

    @property
    def compute_units(self) -> int:
        return self.fact("simd_count") // (self.fact("simd_per_cu") or 4)


def read_nodes(folder: str) -> list[KfdNode]:
    """Every node in the kernel's order, in which ROCr numbers GPUs."""
    nodes = [_read_node(folder, number) for number in numbered_entries(folder)[:MAX_NODES]]
    _classify(nodes)
    gpus = [node for node in nodes if node.kind == GPU]
    _find_truncated(gpus, gpus if len(gpus) > 1 else nodes)
    _check_simds(gpus)
    return nodes


def rocr_order(gpus: Sequence[KfdNode]) -> tuple[dict[int, int], str]:
    """ROCr's index of each node, as far as it is certain, and a note on the rest.

    Whether a process sees an unreadable node is unknown, so the nodes after it have no certain index.
    """
    orders: dict[int, int] = {}
    for node in gpus:
        if node.facts:
            orders[node.number] = len(orders)
        elif CGROUP_DENIED not in node.problems:
            is_last = node is gpus[-1]
            note = f"node {node.number} of the topology can't be read: ROCr's indices of the GPUs after it are unknown"
            return orders, "" if is_last else note
    return orders, ""


def read_links(node: KfdNode) -> list[KfdLink]:
    """Direct links first, then those between GPUs over PCIe."""
    if node.links is None:
        node.links = []
        for location in ("io_links", "p2p_links"):
            top = os.path.join(node.folder, location)
            for number in numbered_entries(top)[:MAX_NODES]:
                if link := _read_link(f"{top}/{number}/properties", location == "io_links"):
                    node.links.append(link)
    return node.links


def _read_link(path: str, is_direct: bool) -> KfdLink | None:
    try:
        data = read_bytes(path)
    except OSError:
        return None
    if match := _LINK.fullmatch(data):
        kind, to, weight, reach = match.groups()
        return KfdLink(int(kind), int(to), int(weight), int(reach), is_direct)
    facts = parse_properties(data).facts
    if "node_to" not in facts or "type" not in facts:
        return None
    return KfdLink(facts["type"], facts["node_to"], facts.get("weight", 0), facts.get("max_bandwidth", 0), is_direct)


def memory_mib(node: KfdNode) -> int:
    """The size of the GPU's memory banks; older kernels report one number. An implausible size is a problem."""
    local = sum(_bank_bytes(node, number) for number in numbered_entries(os.path.join(node.folder, "mem_banks"))[:64])
    if not local:
        local, problem = plausible_bytes(node.fact("local_mem_size"), "local_mem_size in properties")
        node.problems += [problem] if problem else []
    return local >> 20


def drop_implausible_simds(node: KfdNode, usual: int) -> None:
    """Drop a SIMD count that is far from the usual one: a digit may be missing."""
    reported = node.fact("simd_count")
    if reported and usual and not usual <= 2 * reported <= 4 * usual:
        del node.facts["simd_count"]
        node.problems.append(f"properties says simd_count {reported}, where {usual} is usual")


def pci_address(node: KfdNode) -> str:
    """The PCI address with domain. The lowest three bits are the function or the partition index."""
    if "location_id" not in node.facts or node.kind != GPU:
        return ""
    location, domain = node.fact("location_id"), node.fact("domain")
    if location > 0xFFFF or domain > 0xFFFFFFFF or not (location or domain):
        return ""
    return f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _read_node(top: str, number: int) -> KfdNode:
    folder = f"{top}/{number}"
    read = read_properties(f"{folder}/properties")
    facts = dict(read.facts)
    part, location = divmod(facts.get("location_id", 0), 1 << 28)
    # Some drivers report the partition index in the highest four bits instead of the lowest three.
    if 0 < part < MAX_PARTS and location <= 0xFFFF:
        facts["location_id"] = location | part
    return KfdNode(number, folder, facts, list(read.problems), is_truncated=read.is_truncated)


def _bank_bytes(node: KfdNode, number: int) -> int:
    file = f"mem_banks/{number}/properties"
    path = f"{node.folder}/{file}"
    read = read_properties(path)
    if read.problems:
        # Some copies of a tree lack the banks; that is no problem of the device.
        node.problems += [f"mem_banks/{number}/{problem}" for problem in read.problems if os.path.exists(path)]
    elif "heap_type" not in read.facts or "size_in_bytes" not in read.facts:
        node.problems.append(f"{file} lacks size_in_bytes")
    if read.facts.get("heap_type") not in _LOCAL_HEAPS:
        return 0
    size, problem = plausible_bytes(read.facts.get("size_in_bytes", 0), file)
    node.problems += [problem] if problem else []
    return size


def _classify(nodes: Sequence[KfdNode]) -> None:
    for node in nodes:
        if any(node.fact(name) for name in GPU_PROPERTIES):
            node.kind = GPU
        elif node.fact("cpu_cores_count"):
            node.kind = CPU
    unclear = [node for node in nodes if not node.kind]
    if not unclear:
        return
    # A direct PCIe link of a GPU goes to a CPU.
    gpus = [node for node in nodes if node.kind == GPU]
    hosts = {link.to for node in gpus[:8] for link in read_links(node) if link.kind == PCIE and link.is_direct}
    for node in unclear:
        reported = read_text(f"{node.folder}/gpu_id")
        is_cpu = node.number == 0 or node.number in hosts
        if reported.isdecimal():
            is_cpu = int(reported) == 0
        node.kind = CPU if is_cpu else GPU


def _find_truncated(gpus: Sequence[KfdNode], alike: Sequence[KfdNode]) -> None:
    """Find truncated files: a kernel writes the same properties for all nodes of a kind."""
    readable = [node for node in alike if node.facts]
    kinds = Counter(tuple(node.facts) for node in readable)  # nearly all nodes have the same names
    counts: Counter[str] = Counter()
    for names, times in kinds.items():
        counts.update(dict.fromkeys(names, times))
    others = len(readable) - 1
    usual = [name for name, count in counts.items() if count * 2 > others]
    missing_of = {names: [name for name in usual if name not in names] for names in kinds}
    truncated = sum(node.is_truncated for node in readable)
    for node in gpus:
        if not node.facts or others < 1:
            continue
        missing = missing_of[tuple(node.facts)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            node.problems.append(f"properties lacks {missing[0]}{more}")
        elif node.is_truncated and (truncated - 1) * 2 < others:
            node.problems.append(f"properties ends in the middle of a line ({list(node.facts)[-1]})")


def _check_simds(gpus: Sequence[KfdNode]) -> None:
    """Equal devices have equal SIMD counts; of two that differ, the smaller one lost a digit."""
    alike: dict[tuple[int, int], list[KfdNode]] = {}
    for node in gpus:
        if node.fact("simd_count") > MAX_SIMDS:
            del node.facts["simd_count"]
            node.problems.append("properties says an impossible simd_count")
        alike.setdefault((node.fact("device_id"), node.fact("num_xcc")), []).append(node)
    for nodes in alike.values():
        counts = Counter(node.fact("simd_count") for node in nodes if node.fact("simd_count"))
        usual, times = counts.most_common(1)[0] if counts else (0, 0)
        for node in nodes:
            drop_implausible_simds(node, usual if times > 1 else max(counts, default=0))
