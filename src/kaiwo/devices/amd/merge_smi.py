"""Merge the output of amd-smi or rocm-smi into the GPUs from sysfs: it fills gaps and adds missing GPUs.

Never: replaces a value from sysfs.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kaiwo.devices.amd.current_partitions import mode_problems, most_common
from kaiwo.devices.amd.machine_paths import ADDRESS
from kaiwo.devices.amd.smi_tools import SmiGpu
from kaiwo.devices.gpu_names import (
    AMD_MODEL_NAMES,
    VIRTUAL_FUNCTIONS,
    amd_model,
    implausible_text,
    is_plausible,
    nominal_mib,
    target_name,
)
from kaiwo.devices.inventory import (
    NO_MEMORY,
    NO_UNITS,
    Errors,
    Link,
    Partition,
    PhysicalGpu,
    join_reasons,
    split_reasons,
)
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import legal_modes, partition_count

TOOL = "the tool"


def merge_smi(gpus: Sequence[PhysicalGpu], reported: Sequence[SmiGpu]) -> tuple[list[PhysicalGpu], list[str]]:
    """Every GPU of both sources, matched by PCI address, or by the tool's index if it has none."""
    numbers = _tool_numbers(gpus)
    groups: dict[str, list[SmiGpu]] = {}
    for device in reported:
        groups.setdefault(_pci_slot(device.pci) or numbers.get(device.index) or f"smi-{device.index}", []).append(
            device
        )
    merged: list[PhysicalGpu] = []
    owner: dict[int, str] = {}
    for gpu in gpus:
        devices = groups.pop(_pci_slot(gpu.pci), None) or groups.pop(gpu.id, [])
        merged.append(_fill_gaps(gpu, devices[0]) if devices else gpu)
        owner.update((device.index, gpu.id) for device in devices)
    added = [_gpu_from_tool(devices) for devices in groups.values()]
    for gpu, devices in zip(added, groups.values(), strict=True):
        owner.update((device.index, gpu.id) for device in devices)
    notes = [f"{gpu.id} is listed by the tool but not in sysfs" for gpu in added if gpus]
    return _link(merged + added, reported, owner), notes


def _tool_numbers(gpus: Sequence[PhysicalGpu]) -> dict[int, str]:
    """The tool's index of each device; unlike ROCr it follows the PCI bus."""
    devices = sorted((gpu.pci, part.index, gpu.id) for gpu in gpus for part in gpu.partitions)
    devices += sorted((gpu.pci, 0, gpu.id) for gpu in gpus if not gpu.partitions)
    return {number: _pci_slot(pci) or name for number, (pci, _, name) in enumerate(sorted(devices))}


def _pci_slot(pci: str) -> str:
    """A PCI address without its function, which may be a partition index."""
    if not ADDRESS.fullmatch(pci):
        return ""
    domain, _, rest = pci.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest[:-2]}"


def _fill_gaps(gpu: PhysicalGpu, device: SmiGpu) -> PhysicalGpu:
    product = gpu.product or device.product
    device_id = int(gpu.device_id, 16) if gpu.device_id else device.device_id
    is_virtual, problems = gpu.platform == "vf", []
    memory_mib = gpu.memory_mib
    if gpu.memory_from != "driver" and device.memory_mib and not gpu.partitions:
        if is_plausible(device.memory_mib, gpu.model, 1, is_virtual):
            memory_mib = device.memory_mib
        else:
            problems.append(implausible_text(TOOL, device.memory_mib, gpu.model))
    units = gpu.compute_units or (0 if gpu.partitions else device.compute_units)
    solved = {NO_MEMORY: memory_mib, NO_UNITS: units}
    left = [part for part in split_reasons(gpu.reason) if not solved.get(part)]
    is_failed = gpu.health == "failed" or bool(device.uncorrected)
    if device.uncorrected and gpu.health != "failed":
        left.insert(0, f"the hardware counted {device.uncorrected} uncorrectable errors")
    model = (
        gpu.model if gpu.model in AMD_MODEL_NAMES else amd_model(device_id, product, device.target, memory_mib, units)
    )
    compute_mode, memory_mode = gpu.compute_mode or device.compute_mode, gpu.memory_mode or device.memory_mode
    left += problems + mode_problems(model, compute_mode, memory_mode, is_virtual)
    gaps = {name: value for name, value in device.telemetry.items() if getattr(gpu.telemetry, name) is None}
    return replace(
        gpu,
        product=product,
        model=model,
        device_id=gpu.device_id or _hex(device.device_id),
        target=gpu.target or target_name(device.target),
        serial=gpu.serial or device.serial,
        numa=device.numa if gpu.numa is None else gpu.numa,
        memory_mib=memory_mib,
        memory_from="driver" if memory_mib != gpu.memory_mib else gpu.memory_from,
        compute_units=units,
        compute_mode=compute_mode,
        memory_mode=memory_mode,
        compute_modes=device.compute_modes or gpu.compute_modes,
        memory_modes=device.memory_modes or gpu.memory_modes,
        telemetry=replace(gpu.telemetry, **gaps),
        errors=Errors(
            device.corrected if gpu.errors.corrected is None else gpu.errors.corrected,
            device.uncorrected if gpu.errors.uncorrected is None else gpu.errors.uncorrected,
            gpu.errors.bad_pages,
        ),
        health="failed" if is_failed else "degraded" if left else "healthy",
        reason=join_reasons(left),
    )


def _gpu_from_tool(devices: Sequence[SmiGpu]) -> PhysicalGpu:
    """A GPU that only the tool lists; several devices at one address are its partitions."""
    first = devices[0]
    name = f"{_pci_slot(first.pci)}.0" if _pci_slot(first.pci) else f"smi-{first.index}"
    model = amd_model(first.device_id, first.product, first.target, first.memory_mib, first.compute_units)
    is_virtual = first.device_id in VIRTUAL_FUNCTIONS
    chip = CHIPS.get(model)
    is_partitioned = len(devices) > 1
    is_size_plausible = is_plausible(first.memory_mib, model, len(devices), is_virtual)
    count = max(
        len(devices), partition_count(model, first.compute_mode) if is_partitioned and first.compute_mode else 1
    )
    reported_mib = _whole_mib(first.memory_mib, model, count) if is_size_plausible else 0
    memory_mib = reported_mib or (0 if is_virtual else nominal_mib(model))
    problems = [implausible_text(TOOL, first.memory_mib, model)] if first.memory_mib and not is_size_plausible else []
    problems += [] if memory_mib else [NO_MEMORY]
    all_units = chip.compute_units if chip and not is_virtual else 0  # rocm-smi reports none
    parts = _partitions(name, devices, memory_mib // count, all_units // count) if is_partitioned else ()
    gpu = PhysicalGpu(
        id=name,
        vendor="amd",
        model=model,
        product=first.product,
        pci=name if ADDRESS.fullmatch(name) else "",
        device_id=_hex(first.device_id),
        target=target_name(first.target),
        platform="vf" if is_virtual else "apu" if chip and chip.is_apu else "",
        memory_mib=memory_mib,
        memory_from="driver" if reported_mib else "table" if memory_mib else "",
        compute_units=(0 if is_partitioned else first.compute_units) or all_units,
        xcds=chip.xcds if chip and not is_virtual else 0,
        compute_modes=tuple(dict.fromkeys(mode.compute for mode in legal_modes(model))),
        memory_modes=tuple(sorted({mode.memory for mode in legal_modes(model)})),
        reason=join_reasons(problems),
        partitions=parts,
    )
    return _fill_gaps(gpu, first)


def _whole_mib(reported_mib: int, model: str, count: int) -> int:
    """The memory of a GPU; for partitions some versions of the tools report their own, some the whole GPU's."""
    is_part = reported_mib * count * 2 <= nominal_mib(model) * 3  # if the whole is reported, the sum is too large
    return reported_mib * count if is_part else reported_mib


def _partitions(name: str, devices: Sequence[SmiGpu], part_mib: int, part_units: int) -> tuple[Partition, ...]:
    units = most_common([device.compute_units for device in devices]) or part_units
    return tuple(
        Partition(
            id=f"{name}-p{device.partition or index}",
            index=device.partition or index,
            memory_mib=part_mib,
            compute_units=device.compute_units or units,
        )
        for index, device in enumerate(devices)
    )


def _link(gpus: list[PhysicalGpu], reported: Sequence[SmiGpu], owner: Mapping[int, str]) -> list[PhysicalGpu]:
    with_links = {owner.get(device.index, ""): device for device in reversed(reported) if device.links}
    return [
        gpu if gpu.links or gpu.id not in with_links else replace(gpu, links=_links(gpu, with_links[gpu.id], owner))
        for gpu in gpus
    ]


def _links(gpu: PhysicalGpu, device: SmiGpu, owner: Mapping[int, str]) -> tuple[Link, ...]:
    found = {
        owner[other]: Link(owner[other], kind, weight, hops)
        for other, (kind, weight, hops) in sorted(device.links.items(), reverse=True)
        if other in owner and owner[other] != gpu.id
    }
    return tuple(found[to] for to in sorted(found))


def _hex(device_id: int) -> str:
    return f"0x{device_id:04x}" if device_id else ""
