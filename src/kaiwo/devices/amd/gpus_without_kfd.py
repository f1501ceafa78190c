"""Find GPUs that the driver has but the KFD topology does not list; ROCm can't use them, so they are degraded."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kaiwo.devices.amd.machine_paths import MachinePaths
from kaiwo.devices.amd.plausible_memory import implausible_text, is_plausible
from kaiwo.devices.amd.sysfs_device import VRAM_TOTAL, SysfsFacts, read_facts, read_telemetry
from kaiwo.devices.gpu_names import VIRTUAL_FUNCTIONS, amd_model
from kaiwo.devices.inventory import Partition, PhysicalGpu, Telemetry, join_reasons
from kaiwo.model.gpu_models import CHIPS, GPU_MODELS
from kaiwo.model.partition_modes import partition_count

NOT_LISTED = "the driver has it, but the compute topology (KFD) does not list it: ROCm can't use it"


def gpus_without_kfd(
    paths: MachinePaths, listed: Sequence[PhysicalGpu], devices: Mapping[int, tuple[str, str]], has_telemetry: bool
) -> list[PhysicalGpu]:
    """The GPUs in sysfs whose PCI address no listed GPU has."""
    known = {gpu.pci for gpu in listed}
    facts = {
        address: (folder, _with_plausible_memory(read_facts(folder)))
        for address in paths.amd_addresses()
        if address not in known and (folder := paths.pci_folder(address))
    }
    renders = sorted(int(sysfs.render[7:]) for _, sysfs in facts.values() if sysfs.render)
    claimed = {int(part.render[7:]) for gpu in listed for part in gpu.partitions if part.render}
    claimed |= {int(gpu.render[7:]) for gpu in listed if gpu.render}
    gpus = []
    for address, (folder, sysfs) in facts.items():
        parts = _partitions(address, sysfs, renders, {n: d for n, d in devices.items() if n not in claimed})
        gpus.append(_gpu(address, sysfs, parts, read_telemetry(folder) if has_telemetry else Telemetry()))
    return gpus


def _with_plausible_memory(sysfs: SysfsFacts) -> SysfsFacts:
    """The facts without a memory size that the model can't have."""
    model = amd_model(sysfs.device_id, sysfs.product, 0, sysfs.memory_mib, 0)
    if not sysfs.memory_mib or is_plausible(sysfs.memory_mib, model, 1, sysfs.device_id in VIRTUAL_FUNCTIONS):
        return sysfs
    return replace(sysfs, memory_mib=0, memory_problem=implausible_text(VRAM_TOTAL, sysfs.memory_mib, model))


def _gpu(address: str, sysfs: SysfsFacts, parts: tuple[Partition, ...], telemetry: Telemetry) -> PhysicalGpu:
    model = amd_model(sysfs.device_id, sysfs.product, 0, sysfs.memory_mib, 0)
    chip = CHIPS.get(model)
    is_virtual = sysfs.device_id in VIRTUAL_FUNCTIONS
    return PhysicalGpu(
        id=address,
        vendor="amd",
        model=model,
        product=sysfs.product,
        pci=address,
        device_id=f"0x{sysfs.device_id:04x}" if sysfs.device_id else "",
        platform="vf" if is_virtual else "apu" if chip and chip.is_apu else "bare-metal" if model in GPU_MODELS else "",
        serial=sysfs.serial,
        numa=sysfs.numa,
        memory_mib=sysfs.memory_mib,
        memory_from="driver" if sysfs.memory_mib else "",
        compute_units=chip.compute_units if chip and not is_virtual else 0,
        xcds=chip.xcds if chip and not is_virtual else 0,
        compute_mode=sysfs.compute_mode,
        memory_mode=sysfs.memory_mode,
        compute_modes=sysfs.compute_modes,
        memory_modes=sysfs.memory_modes,
        hive=sysfs.hive,
        render=sysfs.render,
        card=sysfs.card,
        telemetry=telemetry,
        errors=sysfs.errors,
        health="degraded",
        reason=join_reasons([NOT_LISTED, sysfs.memory_problem]),
        partitions=parts,
    )


def _partitions(
    address: str, sysfs: SysfsFacts, renders: Sequence[int], devices: Mapping[int, tuple[str, str]]
) -> tuple[Partition, ...]:
    """The partition devices of a GPU: their render nodes are between its own and that of the next GPU.

    The driver creates as many as the GPU can ever have; the mode says how many are in use.
    """
    first = int(sysfs.render[7:]) if sysfs.render else 0
    until = next((render for render in renders if render > first), 1 << 30)
    mine = [(render, *device) for render, device in sorted(devices.items()) if first < render < until]
    model = amd_model(sysfs.device_id, sysfs.product, 0, sysfs.memory_mib, 0)
    chip = CHIPS.get(model)
    reported = partition_count(model, sysfs.compute_mode) if chip and sysfs.compute_mode else 0
    mine = mine[: reported - 1] if reported else mine
    if not first or not mine:
        return ()
    count = reported or len(mine) + 1
    units, xcds = (chip.compute_units // count, chip.xcds // count) if chip else (0, 0)
    return tuple(
        Partition(
            id=f"{address}-p{index}",
            index=index,
            memory_mib=sysfs.memory_mib // count,
            compute_units=units,
            xcds=xcds,
            render=f"renderD{render}",
            card=card,
            device=device,
            health="degraded",
            reason=NOT_LISTED,
        )
        for index, (render, device, card) in enumerate([(first, "", sysfs.card), *mine])
    )
