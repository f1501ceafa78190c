"""Read an inventory from the XML dump of another tool: a topology of NCCL or RCCL, or `nvidia-smi -q -x`."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kaiwo.devices.amd.smi_tools import mib, text_value, whole
from kaiwo.devices.gpu_names import VIRTUAL_FUNCTIONS, amd_model, nominal_mib, nvidia_model, parse_target, target_name
from kaiwo.devices.inventory import NO_MEMORY, Errors, Inventory, Link, Nic, Partition, PhysicalGpu, Telemetry
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import CHIPS

LINKS = ("xgmi", "nvlink")
NVIDIA = "0x10de"
# Older versions of RCCL write numbers instead of names.
_NUMBERED = {"906": 90006, "908": 90008, "910": 90010, "940": 90400, "941": 90401, "942": 90402}


def read_nccl_topology(system: Element, node: str) -> Inventory:
    gpus: list[tuple[int, PhysicalGpu]] = []
    nics: list[Nic] = []
    for cpu in system.iter("cpu"):
        numa = whole(cpu.get("numaid"), 0, 4096)
        for chain, leaf in _walk(cpu, ()):
            if leaf.tag == "gpu":
                order = whole(leaf.get("dev"), 0, 4096)
                gpus.append((len(gpus) if order is None else order, _nccl_gpu(leaf, chain[-1], numa)))
            elif leaf.tag == "net":
                nics.append(_nic(leaf, chain, numa))
    ordered = [gpu for _, gpu in sorted(gpus, key=lambda pair: pair[0])]
    return Inventory(node, tuple(ordered), nics=tuple(nics))


def _walk(element: Element, chain: tuple[Element, ...]) -> Iterator[tuple[tuple[Element, ...], Element]]:
    for child in element:
        if child.tag == "pci":
            yield from _walk(child, (*chain, child))
        elif child.tag == "nic":
            yield from _walk(child, chain)
        elif child.tag == "net" or (child.tag == "gpu" and chain):
            yield chain, child


def _nccl_gpu(gpu: Element, pci: Element, numa: int | None) -> PhysicalGpu:
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
    """A NIC; near are the GPUs under the lowest PCIe switch above it that has GPUs."""
    near: list[Element] = []
    for switch in reversed(chain):
        near = [pci for pci in switch.iter("pci") if pci.find("gpu") is not None]
        if near:
            break
    return Nic(
        name=net.get("name") or "",
        pci=_address(chain[-1]) if chain else "",  # a NIC may be attached to the CPU itself
        numa=numa,
        speed_mbit_s=whole(net.get("speed"), 1, 10_000_000),
        near=tuple(_address(pci) for pci in near),
    )


def _address(pci: Element) -> str:
    return (pci.get("busid") or "").lower()


HOW_TO_DUMP = "create one with NCCL_TOPO_DUMP_FILE=topo.xml (any job), or with nvidia-smi -q -x"

POWER = ("power_draw", "instant_power_draw", "average_power_draw")  # the last two are of newer drivers


def read_dump(text: str, node: str = "machine") -> Inventory:
    """Read a dump; the root element tells its format."""
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigError(f"the dump is not XML ({error}); {HOW_TO_DUMP}") from error
    if root.tag == "system":
        return read_nccl_topology(root, node)
    if root.tag == "nvidia_smi_log":
        return Inventory(node, tuple(_nvidia_smi_gpu(gpu, order) for order, gpu in enumerate(root.iter("gpu"))))
    raise ConfigError(f"unknown dump format <{root.tag}>; {HOW_TO_DUMP}")


def _nvidia_smi_gpu(gpu: Element, order: int) -> PhysicalGpu:
    def at(path: str) -> str:
        return text_value(gpu.findtext(path) or "")

    domain, _, rest = (gpu.get("id") or "").lower().partition(":")
    pci = f"{domain[-4:]}:{rest}" if rest else ""
    is_mig = at("mig_mode/current_mig") == "Enabled"
    name = pci or f"nvidia-{order}"
    memory_mib = mib(at("fb_memory_usage/total")) or 0
    power = {
        child.tag: text_value(child.text)
        for child in (*gpu.findall("power_readings/*"), *gpu.findall("gpu_power_readings/*"))
    }
    watt = next((power[name] for name in POWER if power.get(name)), "")
    limit = power.get("current_power_limit") or power.get("power_limit")
    counts = {child.tag: whole(child.text) for child in gpu.findall("ecc_errors/volatile/*")}
    uncorrected = _sum(counts, "uncorrectable")
    problems = [f"the hardware counted {uncorrected} uncorrectable errors"] if uncorrected else []
    return PhysicalGpu(
        id=name,
        vendor="nvidia",
        model=nvidia_model(at("product_name")),
        product=at("product_name"),
        order=None if is_mig else order,
        pci=pci,
        device_id=f"0x{at('pci/pci_device_id')[:4].lower()}" if at("pci/pci_device_id") else "",
        serial=at("uuid"),
        memory_mib=memory_mib,
        memory_from="driver" if memory_mib else "",
        compute_mode="MIG" if is_mig else "",
        compute_modes=("MIG",) if at("mig_mode/current_mig") else (),
        telemetry=Telemetry(
            utilisation_percent=whole(at("utilization/gpu_util"), 0, 100),
            memory_used_mib=mib(at("fb_memory_usage/used")),
            memory_busy_percent=whole(at("utilization/memory_util"), 0, 100),
            temperature_c=whole(at("temperature/gpu_temp"), 1, 200),
            memory_temperature_c=whole(at("temperature/memory_temp"), 1, 200),
            power_w=whole(watt, 0, 20_000),
            power_limit_w=whole(limit, 1, 20_000),
        ),
        errors=Errors(_sum(counts, "_correctable"), uncorrected),
        health="degraded" if problems or not memory_mib else "healthy",
        reason="; ".join(problems or ([] if memory_mib else [NO_MEMORY])),
        partitions=tuple(_mig(part, name) for part in gpu.findall("mig_devices/mig_device")) if is_mig else (),
    )


def _mig(part: Element, name: str) -> Partition:
    index = whole(part.findtext("index")) or 0
    return Partition(
        id=f"{name}-p{index}",
        index=index,
        memory_mib=mib(part.findtext("fb_memory_usage/total")) or 0,
        compute_units=whole(part.findtext("device_attributes/shared/multiprocessor_count")) or 0,
    )


def _sum(counts: dict[str, int | None], ending: str) -> int | None:
    reported = [count for name, count in counts.items() if name.endswith(ending) and count is not None]
    return sum(reported) if reported else None
