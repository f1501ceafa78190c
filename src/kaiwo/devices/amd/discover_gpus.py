"""Discover the AMD GPUs of a machine, and their partitions, from the KFD topology and sysfs.

Never: fails because of a file's contents: the device is degraded, with the reason.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.devices.amd.current_partitions import PartitionLayout, find_partition_layout
from kaiwo.devices.amd.group_kfd_nodes import (
    function_address,
    gpu_links,
    group_nodes,
    have_own_ids,
    locate_nodes,
    numa_node,
    partition_indices,
)
from kaiwo.devices.amd.kfd_topology import CPU, GPU, MAX_NODES, KfdNode, memory_mib, read_nodes, rocr_order
from kaiwo.devices.amd.machine_paths import MachinePaths
from kaiwo.devices.amd.sysfs_device import VRAM_TOTAL, SysfsFacts, hexadecimal, read_facts
from kaiwo.devices.amd.sysfs_files import numbered_entries, parse_number, read_bytes
from kaiwo.devices.amd.telemetry import read_telemetry
from kaiwo.devices.gpu_names import (
    APU_TARGETS,
    MODELS_BY_PCI_ID,
    VIRTUAL_FUNCTIONS,
    amd_model,
    implausible_text,
    is_plausible,
    rocr_uuid,
    target_name,
)
from kaiwo.devices.inventory import NO_MEMORY, NO_UNITS, Partition, PhysicalGpu, Telemetry, join_reasons
from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS
from kaiwo.model.gpus.partition_modes import partition_count

AMDGPU_IDS_PATHS = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids", "amdgpu.ids")
MAX_BYTES = 1 << 20
NOT_LISTED = "the driver has it, but the compute topology (KFD) does not list it: ROCm can't use it"


def product_name(root: str, device_id: int, revision: int | None) -> str:
    """The product name in libdrm's list for this revision, or else for another revision of the device."""
    for path in AMDGPU_IDS_PATHS:
        try:
            text = read_bytes(os.path.join(root, path), MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        names: dict[int | None, str] = {}
        for line in text.splitlines():
            parts = [part.strip() for part in line.split(",", 2)]
            if len(parts) == 3 and parts[2] and parse_number(f"0x{parts[0]}") == device_id:
                names.setdefault(parse_number(f"0x{parts[1]}"), parts[2])
        if names:
            return names.get(revision) or next(iter(names.values()))
    return ""


class AmdMachine(msgspec.Struct):
    paths: MachinePaths
    nodes: Sequence[KfdNode]
    cpus: Sequence[int]
    orders: Mapping[int, int]  # node to ROCr's index, where it is certain
    ids: dict[int, str]  # node to its GPU
    devices: Mapping[int, tuple[str, str]]  # render number to the driver's partition device and card
    have_own_ids: bool  # every partition reports its own unique_id, not its chip's
    has_telemetry: bool
    notes: list[str]


def read_gpus(paths: MachinePaths, has_telemetry: bool = True) -> tuple[list[PhysicalGpu], list[str]]:
    """Every AMD GPU, in ROCr's order, and notes."""
    nodes = read_nodes(paths.kfd) if paths.kfd else []
    gpu_nodes = [node for node in nodes if node.kind == GPU]
    orders, order_note = rocr_order(gpu_nodes)
    gpu_nodes, notes = locate_nodes(paths, gpu_nodes)
    notes += [order_note] if order_note else []
    if paths.kfd and len(numbered_entries(paths.kfd)) > MAX_NODES:
        notes.append(f"the topology has more than {MAX_NODES:,} nodes; only the first {MAX_NODES:,} are read")
    machine = AmdMachine(
        paths=paths,
        nodes=nodes,
        cpus=[node.number for node in nodes if node.kind == CPU],
        orders=orders,
        ids={},
        devices=paths.partition_devices(),
        have_own_ids=have_own_ids(gpu_nodes),
        has_telemetry=has_telemetry,
        notes=notes,
    )
    groups = group_nodes(gpu_nodes, _virtual_functions(paths, gpu_nodes))
    for group in groups:
        _assign_id(machine, group)
    gpus = [_make_gpu(machine, group) for group in groups]
    return gpus + gpus_without_kfd(paths, gpus, machine.devices, has_telemetry), machine.notes


def _virtual_functions(paths: MachinePaths, nodes: Sequence[KfdNode]) -> set[str]:
    """Addresses of virtual functions in a common slot; unlike a partition, each is a PCI device."""
    if not any(node.fact("device_id") in VIRTUAL_FUNCTIONS for node in nodes):
        return set()
    addresses = paths.amd_addresses()
    slots = Counter(address[:-1] for address in addresses)
    return {address for address in addresses if slots[address[:-1]] > 1}


def _assign_id(machine: AmdMachine, group: Sequence[KfdNode]) -> None:
    """The id is the PCI address; if two nodes claim the same address, the second adds its node number."""
    first = group[0]
    name = _address(group) or f"kfd-{first.number}"
    if name in machine.ids.values():
        machine.notes.append(f"two GPUs say they are at {name}; the second is called {name}-n{first.number}")
        name = f"{name}-n{first.number}"
    machine.ids.update((node.number, name) for node in group)


def _address(group: Sequence[KfdNode]) -> str:
    address = function_address(group[0])
    return f"{address[:-1]}0" if address and len(group) > 1 else address


def _make_gpu(machine: AmdMachine, group: Sequence[KfdNode]) -> PhysicalGpu:
    first = group[0]
    address = _address(group)
    folder = machine.paths.pci_folder(address, first.fact("drm_render_minor")) if address else ""
    sysfs = read_facts(folder) if folder else SysfsFacts()
    banks = [memory_mib(node) for node in group]
    device_id = next((node.fact("device_id") for node in group if node.fact("device_id")), sysfs.device_id)
    target = max(node.fact("gfx_target_version") for node in group)
    units = sum(node.compute_units for node in group)
    product = sysfs.product
    if not product and device_id and device_id not in MODELS_BY_PCI_ID:
        product = product_name(machine.paths.root, device_id, sysfs.revision)
    model = amd_model(device_id, product, target, sysfs.memory_mib or sum(banks), units)
    is_virtual = device_id in VIRTUAL_FUNCTIONS
    layout = find_partition_layout(model, group, sysfs, banks, is_virtual)
    parts = _make_partitions(machine, group, layout) if layout.is_partitioned else ()
    problems = _problems(group, layout, address, parts)
    failed = bool(sysfs.errors.uncorrected)
    if failed:
        problems.insert(0, f"the hardware counted {sysfs.errors.uncorrected} uncorrectable errors")
    machine.notes.extend(f"{machine.ids[first.number]}: {note}" for note in layout.notes)
    render = first.fact("drm_render_minor")
    return PhysicalGpu(
        id=machine.ids[first.number],
        vendor="amd",
        model=model,
        product=product,
        order=None if parts else machine.orders.get(first.number),
        pci=address,
        device_id=f"0x{device_id:04x}" if device_id else "",
        target=target_name(target),
        platform=_platform(model, target, is_virtual),
        serial=sysfs.serial if parts and machine.have_own_ids else hexadecimal(first.fact("unique_id")) or sysfs.serial,
        numa=sysfs.numa if sysfs.numa is not None else numa_node(group, machine.cpus),
        memory_mib=layout.memory_mib,
        memory_from=layout.memory_from,
        compute_units=layout.compute_units,
        simds=layout.simds,
        xcds=layout.xcds,
        compute_mode=layout.compute_mode,
        memory_mode=sysfs.memory_mode,
        compute_modes=layout.compute_modes,
        memory_modes=layout.memory_modes,
        hive=hexadecimal(first.fact("hive_id")) or sysfs.hive,
        render=f"renderD{render}" if render else sysfs.render,
        card=sysfs.card,
        node=None if parts else first.number,
        links=gpu_links(group, machine.ids),
        telemetry=read_telemetry(folder) if folder and machine.has_telemetry else Telemetry(),
        errors=sysfs.errors,
        health="failed" if failed else "degraded" if problems else "healthy",
        reason=join_reasons(problems),
        partitions=parts,
    )


def _make_partitions(machine: AmdMachine, group: Sequence[KfdNode], layout: PartitionLayout) -> tuple[Partition, ...]:
    name = machine.ids[group[0].number]
    found = []
    for node, index, size in zip(group, partition_indices(group), layout.sizes_mib, strict=True):
        render = node.fact("drm_render_minor")
        device, card = machine.devices.get(render, ("", ""))
        problems = [*node.problems, "" if node.compute_units else NO_UNITS]
        found.append(
            Partition(
                id=f"{name}-p{index}",
                index=index,
                order=machine.orders.get(node.number),
                memory_mib=size,
                compute_units=node.compute_units,
                simds=node.fact("simd_count"),
                xcds=node.fact("num_xcc"),
                render=f"renderD{render}" if render else "",
                card=card,
                device=device,
                node=node.number,
                uuid=rocr_uuid(node.fact("unique_id")) if machine.have_own_ids else "",
                health="degraded" if any(problems) else "healthy",
                reason=join_reasons(problems),
            )
        )
    return tuple(sorted(found, key=lambda part: part.index))


def _problems(group: Sequence[KfdNode], layout: PartitionLayout, address: str, parts: Sequence[Partition]) -> list[str]:
    problems = list(layout.problems)
    if parts:
        problems += [f"partition {part.index}: {part.reason}" for part in parts if part.reason]
    else:
        problems += group[0].problems
        problems += [] if group[0].compute_units else [NO_UNITS]
    problems += [] if address else ["its PCI address is unknown"]
    problems += [] if layout.memory_mib else [NO_MEMORY]
    return problems


def _platform(model: str, target: int, is_virtual: bool) -> str:
    if target in APU_TARGETS or (model in CHIPS and CHIPS[model].is_apu):
        return "apu"
    return "vf" if is_virtual else "bare-metal" if model in GPU_MODELS else ""


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
        parts = _unlisted_partitions(address, sysfs, renders, {n: d for n, d in devices.items() if n not in claimed})
        gpus.append(_unlisted_gpu(address, sysfs, parts, read_telemetry(folder) if has_telemetry else Telemetry()))
    return gpus


def _with_plausible_memory(sysfs: SysfsFacts) -> SysfsFacts:
    model = amd_model(sysfs.device_id, sysfs.product, 0, sysfs.memory_mib, 0)
    if not sysfs.memory_mib or is_plausible(sysfs.memory_mib, model, 1, sysfs.device_id in VIRTUAL_FUNCTIONS):
        return sysfs
    return replace(sysfs, memory_mib=0, memory_problem=implausible_text(VRAM_TOTAL, sysfs.memory_mib, model))


def _unlisted_gpu(address: str, sysfs: SysfsFacts, parts: tuple[Partition, ...], telemetry: Telemetry) -> PhysicalGpu:
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
        platform=_platform(model, 0, is_virtual),
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


def _unlisted_partitions(
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
