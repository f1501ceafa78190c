"""Trees as the amdgpu driver makes them under /sys, for machines that nobody has at hand.

In:    a description of a machine.   Out: its files in a folder.
The lines, their order and their values are those of real kernels; the numbers of a model are its data sheet's.
"""

from collections.abc import Collection
from pathlib import Path

import msgspec

from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import partition_count

GIB = 1 << 30
KFD = "sys/class/kfd/kfd/topology/nodes"
PCI = "sys/bus/pci/devices"
DEVICE_IDS = {
    "MI210": 0x740F, "MI300A": 0x74A0, "MI300X": 0x74A1, "MI308X": 0x74A2, "MI325X": 0x74A5, "MI350X": 0x75A0,
    "MI355X": 0x75A3,
}  # fmt: skip
TARGETS = {"MI210": 90010, "MI350X": 90500, "MI355X": 90500}
MEMORY_GIB = {"MI210": 64, "MI300A": 128, "MI300X": 192, "MI308X": 192, "MI325X": 256, "MI350X": 288, "MI355X": 288}
FIRST_RENDER, RENDERS_A_GPU = 128, 8


class Box(msgspec.Struct, frozen=True):
    """A machine with equal GPUs, half of them beside each of its two CPUs."""

    model: str = "MI300X"
    gpus: int = 2
    compute: str = "SPX"
    memory: str = "NPS1"
    xcp: str = "amdgpu_xcp_{}"  # how the kernel spells a partition device
    lost: Collection[tuple[int, int]] = ()  # (GPU, partition) that the kernel does not show
    has_banks: bool = True
    has_sysfs: bool = True
    has_kfd: bool = True
    has_links: bool = True

    @property
    def parts(self) -> int:
        return partition_count(self.model, self.compute)

    @property
    def units(self) -> int:
        return (CHIPS[self.model].compute_units if self.model in CHIPS else 104) // self.parts

    @property
    def xcds(self) -> int:
        return (CHIPS[self.model].xcds if self.model in CHIPS else 1) // self.parts


def address(gpu: int) -> str:
    return f"0000:{5 + 32 * gpu:02x}:00.0"


def uuid(gpu: int) -> str:
    """As ROCr calls a whole GPU of a box."""
    return f"GPU-{16404946649897475633 + gpu:016X}"


def rebuild(link: Path, box: Box, generation: int) -> Path:
    """The driver makes its devices anew and counts up: seen all at once through the same path."""
    folder = link.with_name(f"{link.name}-{generation}")
    write_box(folder, box)
    write_files(folder / "sys/class/kfd/kfd/topology", {"generation_id": generation})
    fresh = link.with_name(f"{link.name}-next")
    fresh.symlink_to(folder)
    fresh.replace(link)
    return link


def write_box(root: Path, box: Box) -> Path:
    """The whole tree; the same folder comes back."""
    seen = [(gpu, part) for gpu in range(box.gpus) for part in range(box.parts) if (gpu, part) not in box.lost]
    if box.has_kfd:
        for cpu in range(2):
            write(root / KFD / str(cpu), cpu_properties())
        for node, (gpu, part) in enumerate(seen, 2):
            write_node(root / KFD / str(node), box, gpu, part)
            if box.has_links:
                write_links(root / KFD / str(node), box, node, gpu, seen)
    if box.has_sysfs:
        for gpu in range(box.gpus):
            write_pci(root / PCI / address(gpu), box, gpu)
        for number, (gpu, part) in enumerate((gpu, part) for gpu, part in seen if part):
            write_partition(root / "sys/devices/platform" / box.xcp.format(number), gpu, part)
    return root


def write(folder: Path, facts: dict[str, int]) -> None:
    folder.mkdir(parents=True)
    (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in facts.items()))


def write_files(folder: Path, files: dict[str, object]) -> None:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def cpu_properties() -> dict[str, int]:
    return {
        "cpu_cores_count": 96, "simd_count": 0, "mem_banks_count": 1, "caches_count": 0, "io_links_count": 1,
        "p2p_links_count": 0, "cpu_core_id_base": 0, "simd_per_cu": 0, "gfx_target_version": 0, "vendor_id": 0,
        "device_id": 0, "location_id": 0, "domain": 0, "drm_render_minor": 0, "hive_id": 0,
        "max_engine_clk_ccompute": 2750,
    }  # fmt: skip


def write_node(folder: Path, box: Box, gpu: int, part: int) -> None:
    place = ((5 + 32 * gpu) << 8) | part
    facts = cpu_properties() | {
        "cpu_cores_count": 0, "simd_count": 4 * box.units, "simd_per_cu": 4, "vendor_id": 0x1002,
        "gfx_target_version": TARGETS.get(box.model, 90402), "device_id": DEVICE_IDS[box.model], "location_id": place,
        "drm_render_minor": FIRST_RENDER + RENDERS_A_GPU * gpu + part, "hive_id": 15188982192727901047,
        "local_mem_size": 0, "unique_id": 16404946649897475633 + gpu, "num_xcc": box.xcds,
    }  # fmt: skip
    facts["max_engine_clk_ccompute"] = facts.pop("max_engine_clk_ccompute")  # always the last line
    write(folder, facts)
    write_files(folder, {"gpu_id": 24248 + 64 * gpu + part, "name": "ip discovery"})
    if box.has_banks:
        size = MEMORY_GIB[box.model] * GIB // box.parts
        bank = {"heap_type": 1, "size_in_bytes": size, "flags": 0, "width": 8192, "mem_clk_max": 1300}
        write(folder / "mem_banks" / "0", bank)


def write_links(folder: Path, box: Box, node: int, gpu: int, seen: list[tuple[int, int]]) -> None:
    cpu = 2 * gpu // box.gpus
    write(folder / "io_links" / "0", link(2, node, cpu, 20, 64000))
    others = [(number, to) for number, (to, _) in enumerate(seen, 2) if number != node]
    for number, (other, to) in enumerate(others, 1):
        near = to == gpu
        write(folder / "io_links" / str(number), link(11, node, other, 13 if near else 15, 819200 if near else 50000))


def link(kind: int, here: int, there: int, weight: int, reach: int) -> dict[str, int]:
    return {
        "type": kind, "version_major": 0, "version_minor": 0, "node_from": here, "node_to": there, "weight": weight,
        "min_latency": 0, "max_latency": 0, "min_bandwidth": 0, "max_bandwidth": reach,
        "recommended_transfer_size": 0, "flags": 1,
    }  # fmt: skip


def write_pci(folder: Path, box: Box, gpu: int) -> None:
    render = FIRST_RENDER + RENDERS_A_GPU * gpu
    total = MEMORY_GIB[box.model] * GIB
    files: dict[str, object] = {
        "vendor": "0x1002", "device": f"0x{DEVICE_IDS[box.model]:04x}", "class": "0x120000", "revision": "0x00",
        "numa_node": 2 * gpu // box.gpus, "product_name": f"AMD Instinct {box.model} OAM",
        "unique_id": f"{16404946649897475633 + gpu:x}", "mem_info_vram_total": total,
        "mem_info_vram_used": 297 << 20, "gpu_busy_percent": 37, "mem_busy_percent": 5,
        "hwmon/hwmon3/temp1_input": 35000, "hwmon/hwmon3/temp1_label": "edge",
        "hwmon/hwmon3/temp2_input": 41000, "hwmon/hwmon3/temp2_label": "junction",
        "hwmon/hwmon3/temp3_input": 33000, "hwmon/hwmon3/temp3_label": "mem",
        "hwmon/hwmon3/power1_average": 124_000_000, "hwmon/hwmon3/power1_cap": 750_000_000,
        "ras/umc_err_count": "ue: 0\nce: 2", "ras/gfx_err_count": "ue: 0\nce: 1",
        "ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R",
    }  # fmt: skip
    if box.model in CHIPS:
        files |= {
            "current_compute_partition": box.compute, "current_memory_partition": box.memory,
            "available_compute_partition": "SPX, DPX, QPX, CPX", "available_memory_partition": "NPS1, NPS4",
        }  # fmt: skip
    write_files(folder, files)
    (folder / "drm" / f"renderD{render}").mkdir(parents=True)
    (folder / "drm" / f"card{8 * gpu + 1}").mkdir()


def write_partition(folder: Path, gpu: int, part: int) -> None:
    (folder / "drm" / f"renderD{FIRST_RENDER + RENDERS_A_GPU * gpu + part}").mkdir(parents=True)
    (folder / "drm" / f"card{8 * gpu + 1 + part}").mkdir()
