"""Find out how a GPU is partitioned, and its totals, from its KFD nodes, sysfs and the table of legal modes.

Never: counts only what is visible: if a partition is missing, the totals are still those of the whole GPU.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from kaiwo.devices.amd.group_kfd_nodes import can_be_partitioned, partition_indices
from kaiwo.devices.amd.kfd_topology import KfdNode, drop_implausible_simds
from kaiwo.devices.amd.sysfs_device import VRAM_TOTAL, SysfsFacts
from kaiwo.devices.gpu_names import APU_TARGETS, implausible_text, is_plausible, nominal_mib
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import (
    WHOLE_MODE,
    Mode,
    legal_modes,
    mode_with_partitions,
    next_modes,
    partition_count,
)


class PartitionLayout(msgspec.Struct):
    is_partitioned: bool = False
    count: int = 1  # expected partitions
    compute_mode: str = ""
    compute_modes: tuple[str, ...] = ()
    memory_modes: tuple[str, ...] = ()
    compute_units: int = 0
    simds: int = 0
    xcds: int = 0
    memory_mib: int = 0
    memory_from: str = ""
    sizes_mib: list[int] = []  # of each node
    problems: list[str] = []
    notes: list[str] = []


def find_partition_layout(
    model: str, group: Sequence[KfdNode], sysfs: SysfsFacts, banks: Sequence[int], is_virtual: bool
) -> PartitionLayout:
    layout = PartitionLayout(problems=[], notes=[], sizes_mib=list(banks))
    _count_partitions(layout, model, group, sysfs, is_virtual)
    _count_units(layout, model, group, is_virtual)
    _count_memory(layout, model, group, sysfs, is_virtual)
    _list_modes(layout, model, sysfs, is_virtual)
    layout.problems += mode_problems(model, layout.compute_mode, sysfs.memory_mode, is_virtual)
    return layout


def mode_problems(model: str, compute: str, memory: str, is_virtual: bool) -> list[str]:
    """A problem if the model does not have this mode; the host decides for a virtual function."""
    if is_virtual or model not in CHIPS or not (compute and memory) or Mode(compute, memory) in legal_modes(model):
        return []
    return [f"it reports {compute} with {memory}, which an {model} does not support"]


def _count_partitions(
    layout: PartitionLayout, model: str, group: Sequence[KfdNode], sysfs: SysfsFacts, is_virtual: bool
) -> None:
    chip = CHIPS.get(model)
    each = most_common([node.fact("num_xcc") for node in group])
    seen = len(group)
    layout.count = seen
    reported = sysfs.compute_mode if chip else ""
    if chip and not is_virtual:
        layout.count = max(seen, chip.xcds // each) if each else seen
        expected = partition_count(model, reported) if reported else layout.count
        if seen > expected or (each and expected * each != chip.xcds):
            shown = _partitions_text(layout.count)
            layout.problems.append(f"the driver says {reported or 'nothing'} and shows {shown}")
        else:
            layout.count = expected
    layout.is_partitioned = layout.count > 1 and any(map(can_be_partitioned, group))
    if chip and not is_virtual:
        layout.compute_mode = mode_with_partitions(model, layout.count)
    elif chip:
        layout.compute_mode = reported or (WHOLE_MODE if seen == 1 else "CPX" if each == 1 else "")
    if layout.is_partitioned and seen < layout.count:
        missing = sorted(set(range(layout.count)) - set(partition_indices(group)))
        numbers = ", ".join(map(str, missing))
        layout.notes.append(f"{seen} of {_partitions_text(layout.count)} are present; missing: {numbers}")


def _count_units(layout: PartitionLayout, model: str, group: Sequence[KfdNode], is_virtual: bool) -> None:
    chip = CHIPS.get(model)
    layout.xcds = _extrapolated_sum([node.fact("num_xcc") for node in group], layout.count)
    if chip and not is_virtual:
        layout.xcds = chip.xcds
        for node in group:
            drop_implausible_simds(node, 4 * chip.compute_units // layout.count)
    layout.compute_units = _extrapolated_sum([node.compute_units for node in group], layout.count)
    layout.simds = _extrapolated_sum([node.fact("simd_count") for node in group], layout.count)


def _count_memory(
    layout: PartitionLayout, model: str, group: Sequence[KfdNode], sysfs: SysfsFacts, is_virtual: bool
) -> None:
    """Compare the memory sizes in two files with the data sheet; an implausible one is a problem and ignored."""
    whole_mib = sysfs.memory_mib
    layout.problems += [sysfs.memory_problem] if sysfs.memory_problem else []
    if whole_mib and not is_plausible(whole_mib, model, 1, is_virtual):
        layout.problems.append(implausible_text(VRAM_TOTAL, whole_mib, model))
        whole_mib = 0
    for index, (node, size) in enumerate(zip(group, layout.sizes_mib, strict=True)):
        if size and not is_plausible(size, model, layout.count, is_virtual):
            node.problems.append(implausible_text("mem_banks", size, model))
            layout.sizes_mib[index] = 0
    if group[0].fact("gfx_target_version") in APU_TARGETS:
        whole_mib = max(whole_mib, _extrapolated_sum(layout.sizes_mib, layout.count))
    if whole_mib or any(layout.sizes_mib):
        layout.memory_from = "driver"
        layout.memory_mib = whole_mib or _extrapolated_sum(layout.sizes_mib, layout.count)
    elif not is_virtual and nominal_mib(model):
        layout.memory_from = "table"
        layout.memory_mib = nominal_mib(model)
    # A partition of unknown size has its part of the whole.
    part = most_common(layout.sizes_mib) or layout.memory_mib // layout.count
    layout.sizes_mib = [size or part for size in layout.sizes_mib]


def _list_modes(layout: PartitionLayout, model: str, sysfs: SysfsFacts, is_virtual: bool) -> None:
    """The modes that the driver offers, or else those that the table allows."""
    if model not in CHIPS:
        return
    now = Mode(layout.compute_mode, sysfs.memory_mode or "NPS1")
    if is_virtual:
        possible = next_modes(model, now, "vf")
    else:
        possible = next_modes(model, now) if sysfs.memory_mode else legal_modes(model)
    layout.compute_modes = sysfs.compute_modes or tuple(dict.fromkeys(mode.compute for mode in possible))
    layout.memory_modes = sysfs.memory_modes or tuple(sorted({mode.memory for mode in possible}))


def most_common(values: Sequence[int]) -> int:
    """The most common value, without zeros; 0 if there is none."""
    reported = [value for value in values if value > 0]
    return Counter(reported).most_common(1)[0][0] if reported else 0


def _extrapolated_sum(values: Sequence[int], count: int) -> int:
    """The sum, with the most common value for missing partitions."""
    missing = count - sum(value > 0 for value in values)
    return sum(values) + max(0, missing) * most_common(values)


def _partitions_text(count: int) -> str:
    return "one whole GPU" if count == 1 else f"{count} partitions"
