"""The topology that NCCL and RCCL see: CPUs, PCIe switches, GPUs, NICs, and the links between GPUs.

In:    the element <system> of a dump.   Out: an Inventory with GPUs and NICs; memory from the data sheet.
"""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kaiwo.devices.amd.quantity import whole
from kaiwo.devices.inventory import Inventory, Link, Nic, PhysicalGpu
from kaiwo.devices.models import VIRTUAL_FUNCTIONS, amd_model, nominal_mib, parse_target, target_name
from kaiwo.model.partitions import CHIPS

LINKS = ("xgmi", "nvlink")
NVIDIA, AMD = "0x10de", "0x1002"
# Before it wrote names, RCCL numbered instruction sets.
_NUMBERED = {"906": 90006, "908": 90008, "910": 90010, "940": 90400, "941": 90401, "942": 90402}


def read_system(system: Element, node: str) -> Inventory:
    """Everything in the order of the ranks."""
    gpus: list[tuple[int, PhysicalGpu]] = []
    nics: list[Nic] = []
    for cpu in system.iter("cpu"):
        numa = whole(cpu.get("numaid"), 0, 4096)
        for chain, leaf in _walk(cpu, ()):
            if leaf.tag == "gpu":
                order = whole(leaf.get("dev"), 0, 4096)
                gpus.append((len(gpus) if order is None else order, _gpu(leaf, chain[-1], numa)))
            elif leaf.tag == "net":
                nics.append(_nic(leaf, chain, numa))
    ordered = [gpu for _, gpu in sorted(gpus, key=lambda pair: pair[0])]
    return Inventory(node, tuple(ordered), nics=tuple(nics))


def _walk(element: Element, chain: tuple[Element, ...]) -> Iterator[tuple[tuple[Element, ...], Element]]:
    """GPUs and NICs, each with the PCI devices above it."""
    for child in element:
        if child.tag == "pci":
            yield from _walk(child, (*chain, child))
        elif child.tag == "nic":
            yield from _walk(child, chain)
        elif child.tag == "net" or (child.tag == "gpu" and chain):
            yield chain, child


def _gpu(gpu: Element, pci: Element, numa: int | None) -> PhysicalGpu:
    is_nvidia = pci.get("vendor") == NVIDIA or gpu.find("nvlink") is not None
    gcn = gpu.get("gcn") or ""
    target = _NUMBERED.get(gcn) or parse_target(gcn)
    device_id = whole(pci.get("device")) or 0
    units = whole(gpu.get("sm")) or 0
    model = "NVIDIA" if is_nvidia else amd_model(device_id, "", target, 0, units)
    memory_mib = 0 if device_id in VIRTUAL_FUNCTIONS else nominal_mib(model)
    return PhysicalGpu(
        id=_address(pci),
        vendor="nvidia" if is_nvidia else "amd",
        model=model,
        order=whole(gpu.get("dev"), 0, 4096),
        pci=_address(pci),
        device_id=f"0x{device_id:04x}" if device_id else "",
        target=f"sm_{units}" if is_nvidia else target_name(target),
        platform="vf" if device_id in VIRTUAL_FUNCTIONS else "apu" if model in CHIPS and CHIPS[model].is_apu else "",
        numa=numa,
        memory_mib=memory_mib,
        memory_from="table" if memory_mib else "",
        compute_units=0 if is_nvidia else units,
        links=tuple(
            Link((link.get("target") or "").lower(), link.tag, count=whole(link.get("count"), 1, 64))
            for link in sorted(gpu, key=lambda link: link.get("target") or "")
            if link.tag in LINKS and re.match(r"0x(03|12)", link.get("tclass") or "")
        ),
    )


def _nic(net: Element, chain: tuple[Element, ...], numa: int | None) -> Nic:
    """Near are the GPUs under the lowest switch that has any."""
    near: list[Element] = []
    for switch in reversed(chain):
        near = [pci for pci in switch.iter("pci") if pci.find("gpu") is not None]
        if near:
            break
    return Nic(
        name=net.get("name") or "",
        pci=_address(chain[-1]) if chain else "",  # a NIC may hang on the CPU itself
        numa=numa,
        speed_mbit_s=whole(net.get("speed"), 1, 10_000_000),
        near=tuple(_address(pci) for pci in near),
    )


def _address(pci: Element) -> str:
    return (pci.get("busid") or "").lower()
