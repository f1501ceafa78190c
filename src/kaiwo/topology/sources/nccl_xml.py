"""Read a topology file of NCCL or RCCL (`NCCL_TOPO_DUMP_FILE`): the links inside a node.

In:    the XML text.   Out: the node's GPUs by PCI address, its network adapters, and DeviceLinks for `Node.wiring`.

Direct links are XGMI between AMD GPUs and NVLink between NVIDIA GPUs. GPUs that reach an NVSwitch have the full rate to
every other GPU on it. GPUs without a direct link have 0 there: they talk over PCIe, which `pcie_mb_s` gives.
"""

import re
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

from kaiwo.model.errors import ConfigError
from kaiwo.model.node import DeviceLinks

MAX_CHARACTERS = 10_000_000
MAX_DEPTH = 64
MAX_DEVICES = 512  # GPUs and network cards of a node; with every pair of GPUs this is 262,144 rates
# MB/s of one link in one direction. XGMI by the compute target: MI50, MI100, MI200 and MI300 series.
XGMI_MB_S = {"906": 24_000, "908": 24_000, "90a": 36_000, "910": 36_000, "940": 48_000, "941": 48_000, "942": 48_000}
DEFAULT_XGMI_MB_S = 48_000
NVLINK_MB_S = {60: 18_000, 70: 20_000, 80: 20_000, 90: 20_600, 100: 40_100}  # by compute capability, times ten
PCIE_LANE_MB_S = {"2.5": 250, "5": 500, "8": 985, "16": 1969, "32": 3938, "64": 7877}  # by GT/s
NVSWITCH_CLASS = "0x068000"
_WAY_OUT = "dump it again with NCCL_TOPO_DUMP_FILE"
_DECLARATION = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)


class NodeNic(NamedTuple):
    name: str
    mb_s: int
    numa: int  # -1: not known
    guid: str


class NodeLinks(NamedTuple):
    """The inside of one node. Positions are those of `gpus`."""

    gpus: tuple[str, ...]  # PCI addresses, in the order of the GPUs' numbers
    nics: tuple[NodeNic, ...]
    links: DeviceLinks
    pcie_mb_s: tuple[int, ...]  # by GPU: the narrowest PCIe link between it and its CPU
    has_switch: bool  # every pair has the full rate, whatever the others do


class _Gpu(NamedTuple):
    bus: str
    number: int
    numa: int
    path: tuple[str, ...]  # PCI switches from the CPU down
    pcie_mb_s: int
    links: tuple[tuple[str, int, bool], ...]  # to which address, MB/s, and whether that is an NVSwitch


class _Nic(NamedTuple):
    nic: NodeNic
    path: tuple[str, ...]


def read_nccl_xml(text: str, where: str = "the topology file") -> NodeLinks:
    root = _parse(text, where)
    gpus: list[_Gpu] = []
    nics: list[_Nic] = []
    for cpu in root.iter("cpu"):
        _walk(cpu, _whole(cpu.get("numaid"), -1), (), 0, gpus, nics, where, 0)
    if not gpus:
        raise ConfigError(f"{where} describes no GPU; {_WAY_OUT}", where)
    for what, count in (("GPUs", len(gpus)), ("network cards", len(nics))):
        if count > MAX_DEVICES:
            raise ConfigError(
                f"{where} describes {count:,} {what} in one node, and the maximum is {MAX_DEVICES}; {_WAY_OUT}", where
            )
    gpus.sort(key=lambda gpu: (gpu.number, gpu.bus))
    at = {gpu.bus: index for index, gpu in enumerate(gpus)}
    if len(at) < len(gpus):
        raise ConfigError(f"{where} describes two GPUs at one PCI address; {_WAY_OUT}", where)
    rates = [[0] * len(gpus) for _ in gpus]
    to_switch = [sum(mb_s for _, mb_s, is_switch in gpu.links if is_switch) for gpu in gpus]
    for index, gpu in enumerate(gpus):
        for target, mb_s, is_switch in gpu.links:
            if not is_switch and target in at and at[target] != index:
                rates[index][at[target]] += mb_s
        for other, reach in enumerate(to_switch):
            if other != index and to_switch[index] and reach:
                rates[index][other] = max(rates[index][other], min(to_switch[index], reach))
    links = DeviceLinks(
        tuple(map(tuple, rates)),
        tuple(gpu.numa for gpu in gpus),
        tuple(_nearest(gpu, nics) for gpu in gpus),
        tuple(each.nic.name for each in nics),
        tuple(to_switch) if any(to_switch) else (),
    )
    return NodeLinks(
        tuple(at), tuple(each.nic for each in nics), links, tuple(gpu.pcie_mb_s for gpu in gpus), all(to_switch)
    )


def _parse(text: str, where: str) -> ElementTree.Element:
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"{where} has more than {MAX_CHARACTERS:,} characters; {_WAY_OUT}", where)
    if match := _DECLARATION.search(text):  # entities could expand without end; no topology file has any
        line = text[: match.start()].count("\n") + 1
        raise ConfigError(f"{where} line {line} declares a document type; {_WAY_OUT}", where)
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ConfigError(f"{where} line {error.position[0]} is no XML; {_WAY_OUT}", where) from None
    except ValueError:
        raise ConfigError(f"{where} is no XML; {_WAY_OUT}", where) from None
    if root.tag != "system":
        raise ConfigError(f"{where} begins with <{root.tag[:40]}> and not with <system>; {_WAY_OUT}", where)
    return root


def _walk(
    element: ElementTree.Element, numa: int, path: tuple[str, ...], pcie_mb_s: int,
    gpus: list[_Gpu], nics: list[_Nic], where: str, depth: int,
) -> None:  # fmt: skip
    if depth > MAX_DEPTH:
        raise ConfigError(f"{where} is nested more than {MAX_DEPTH} deep; {_WAY_OUT}", where)
    for child in element:
        if child.tag == "pci":
            own = _pcie_rate(child)
            narrowest = min(filter(None, (own, pcie_mb_s)), default=0)
            bus = _bus(child.get("busid", ""))
            for gpu in child.findall("gpu"):
                rank = _whole(gpu.get("dev"), len(gpus))
                gpus.append(_Gpu(bus, rank, numa, (*path, bus), narrowest, tuple(_direct_links(gpu))))
            _walk(child, numa, (*path, bus), narrowest, gpus, nics, where, depth + 1)
        elif child.tag == "nic":
            for net in child.findall("net"):
                speed = _whole(net.get("speed"), 0)
                nic = NodeNic(net.get("name", ""), speed // 8, numa, net.get("guid", ""))
                nics.append(_Nic(nic, path))


def _direct_links(gpu: ElementTree.Element) -> list[tuple[str, int, bool]]:
    target = gpu.get("gcn", "").removeprefix("gfx")
    capability = _whole(gpu.get("sm"), 0)
    found = []
    for link in gpu:
        count = _whole(link.get("count"), 1)
        if link.tag == "xgmi":
            found.append((_bus(link.get("target", "")), count * XGMI_MB_S.get(target, DEFAULT_XGMI_MB_S), False))
        elif link.tag == "nvlink":
            newest = max((each for each in NVLINK_MB_S if each <= max(capability, 60)), default=60)
            is_switch = link.get("tclass", "") == NVSWITCH_CLASS
            found.append((_bus(link.get("target", "")), count * NVLINK_MB_S[newest], is_switch))
    return found


def _nearest(gpu: _Gpu, nics: list[_Nic]) -> int:
    """The adapter behind the same PCI switch as the GPU: the one with the longest common way; -1: only the CPU is."""
    shared = [len(_common(gpu.path, nic.path)) for nic in nics]
    best = max(shared, default=0)
    return shared.index(best) if best else -1


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _pcie_rate(element: ElementTree.Element) -> int:
    speed, width = _NUMBER.match(element.get("link_speed", "")), _whole(element.get("link_width"), 0)
    if speed is None or not 0 < width <= 32:
        return 0
    return PCIE_LANE_MB_S.get(speed[0].rstrip("0").rstrip(".") if "." in speed[0] else speed[0], 0) * width


def _bus(text: str) -> str:
    return text.lower()


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else default
