"""A machine from a dump that somebody else's tool wrote: NCCL's or RCCL's topology, or `nvidia-smi -q -x`.

In:    XML text.   Out: one Inventory, as if the machine had been asked.
Never: reads more than the text; a dump that is neither is refused with the way to make one.
"""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kaiwo.devices.amd.quantity import mib, whole, word
from kaiwo.devices.inventory import Errors, Inventory, Partition, PhysicalGpu, Telemetry
from kaiwo.devices.models import nvidia_model
from kaiwo.devices.nccl_dump import read_system
from kaiwo.model.errors import ConfigError

HOW = "make one with: NCCL_TOPO_DUMP_FILE=topo.xml (any job), or nvidia-smi -q -x"

POWER = ("power_draw", "instant_power_draw", "average_power_draw")  # newer drivers have the last two


def read_dump(text: str, node: str = "machine") -> Inventory:
    """Both kinds are told apart by their first element."""
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigError(f"the dump is not XML ({error}); {HOW}") from error
    if root.tag == "system":
        return read_system(root, node)
    if root.tag == "nvidia_smi_log":
        return Inventory(node, tuple(_gpu(gpu, order) for order, gpu in enumerate(root.iter("gpu"))))
    raise ConfigError(f"a dump that begins with <{root.tag}> is of no kind we know; {HOW}")


def _gpu(gpu: Element, order: int) -> PhysicalGpu:
    def at(path: str) -> str:
        return word(gpu.findtext(path) or "")

    domain, _, rest = (gpu.get("id") or "").lower().partition(":")
    pci = f"{domain[-4:]}:{rest}" if rest else ""
    is_mig = at("mig_mode/current_mig") == "Enabled"
    name = pci or f"nvidia-{order}"
    memory_mib = mib(at("fb_memory_usage/total")) or 0
    power = {
        child.tag: word(child.text)
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
        reason="; ".join(problems or ([] if memory_mib else ["the size of its memory is not told"])),
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
    told = [count for name, count in counts.items() if name.endswith(ending) and count is not None]
    return sum(told) if told else None
