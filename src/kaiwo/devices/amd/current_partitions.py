"""What a GPU is cut into, and what it has in all, from the parts that are seen.

In:    the nodes of one GPU, what sysfs says, the table of legal modes.   Out: a Cut.
Never: takes what is seen for what is there: when a partition is missing, the GPU is as large as it was built.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from kaiwo.devices.amd.join_kfd_nodes import indices_of, is_partitioned_kind
from kaiwo.devices.amd.kfd_topology import KfdNode, distrust_simds
from kaiwo.devices.amd.plausible_memory import is_likely, unlikely
from kaiwo.devices.amd.sysfs_device import VRAM_TOTAL, SysfsFacts
from kaiwo.devices.gpu_names import APU_TARGETS, nominal_mib
from kaiwo.model.partition_modes import CHIPS, WHOLE_MODE, Mode, legal_modes, mode_of_count, next_modes, partition_count


class Cut(msgspec.Struct):
    """How a GPU is divided, and its totals."""

    is_cut: bool = False
    count: int = 1  # partitions that should be there
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


def cut_of(model: str, group: Sequence[KfdNode], sysfs: SysfsFacts, banks: Sequence[int], is_virtual: bool) -> Cut:
    """Everything about the division of one GPU."""
    cut = Cut(problems=[], notes=[], sizes_mib=list(banks))
    _divide(cut, model, group, sysfs, is_virtual)
    _count_units(cut, model, group, is_virtual)
    _count_memory(cut, model, group, sysfs, is_virtual)
    _list_modes(cut, model, sysfs, is_virtual)
    cut.problems += mode_problems(model, cut.compute_mode, sysfs.memory_mode, is_virtual)
    return cut


def mode_problems(model: str, compute: str, memory: str, is_virtual: bool) -> list[str]:
    """A mode that no such GPU can be in is not taken for what it is. A virtual function is what its host made it."""
    if is_virtual or model not in CHIPS or not (compute and memory) or Mode(compute, memory) in legal_modes(model):
        return []
    return [f"it says that it is in {compute} with {memory}, which an {model} cannot be"]


def _divide(cut: Cut, model: str, group: Sequence[KfdNode], sysfs: SysfsFacts, is_virtual: bool) -> None:
    chip = CHIPS.get(model)
    each = usual([node.fact("num_xcc") for node in group])
    seen = len(group)
    cut.count = seen
    told = sysfs.compute_mode if chip else ""
    if chip and not is_virtual:
        cut.count = max(seen, chip.xcds // each) if each else seen
        expected = partition_count(model, told) if told else cut.count
        if seen > expected or (each and expected * each != chip.xcds):
            cut.problems.append(f"the driver says {told or 'nothing'} and shows {_parts(cut.count)}")
        else:
            cut.count = expected
    cut.is_cut = cut.count > 1 and any(map(is_partitioned_kind, group))
    if chip and not is_virtual:
        cut.compute_mode = mode_of_count(model, cut.count)
    elif chip:
        cut.compute_mode = told or (WHOLE_MODE if seen == 1 else "CPX" if each == 1 else "")
    if cut.is_cut and seen < cut.count:
        missing = sorted(set(range(cut.count)) - set(indices_of(group)))
        numbers = ", ".join(map(str, missing))
        cut.notes.append(f"{seen} of {_parts(cut.count)} are there; missing: {numbers}")


def _count_units(cut: Cut, model: str, group: Sequence[KfdNode], is_virtual: bool) -> None:
    chip = CHIPS.get(model)
    for node in group if chip and not is_virtual else ():
        distrust_simds(node, 4 * chip.compute_units // cut.count if chip else 0)
    cut.compute_units = _total([node.compute_units for node in group], cut.count)
    cut.simds = _total([node.fact("simd_count") for node in group], cut.count)
    cut.xcds = chip.xcds if chip and not is_virtual else _total([node.fact("num_xcc") for node in group], cut.count)


def _count_memory(cut: Cut, model: str, group: Sequence[KfdNode], sysfs: SysfsFacts, is_virtual: bool) -> None:
    """Two files say it, and the table says what can be: a number that cannot is left out, and named."""
    whole_mib = sysfs.memory_mib
    cut.problems += [sysfs.memory_problem] if sysfs.memory_problem else []
    if whole_mib and not is_likely(whole_mib, model, 1, is_virtual):
        cut.problems.append(unlikely(VRAM_TOTAL, whole_mib, model))
        whole_mib = 0
    for place, (node, size) in enumerate(zip(group, cut.sizes_mib, strict=True)):
        if size and not is_likely(size, model, cut.count, is_virtual):
            node.problems.append(unlikely("mem_banks", size, model))
            cut.sizes_mib[place] = 0
    if group[0].fact("gfx_target_version") in APU_TARGETS:
        whole_mib = max(whole_mib, _total(cut.sizes_mib, cut.count))
    if whole_mib or any(cut.sizes_mib):
        cut.memory_from = "driver"
        cut.memory_mib = whole_mib or _total(cut.sizes_mib, cut.count)
    elif not is_virtual and nominal_mib(model):
        cut.memory_from = "table"
        cut.memory_mib = nominal_mib(model)
    # A partition that does not say its size has its part of the whole.
    part = usual(cut.sizes_mib) or cut.memory_mib // cut.count
    cut.sizes_mib = [size or part for size in cut.sizes_mib]


def _list_modes(cut: Cut, model: str, sysfs: SysfsFacts, is_virtual: bool) -> None:
    """What the driver offers, else what the table allows from here."""
    if model not in CHIPS:
        return
    now = Mode(cut.compute_mode, sysfs.memory_mode or "NPS1")
    if is_virtual:
        possible = next_modes(model, now, "vf")
    else:
        possible = next_modes(model, now) if sysfs.memory_mode else legal_modes(model)
    cut.compute_modes = sysfs.compute_modes or tuple(dict.fromkeys(mode.compute for mode in possible))
    cut.memory_modes = sysfs.memory_modes or tuple(sorted({mode.memory for mode in possible}))


def usual(values: Sequence[int]) -> int:
    """The value that most have, zeros left out."""
    told = [value for value in values if value > 0]
    return Counter(told).most_common(1)[0][0] if told else 0


def _total(values: Sequence[int], count: int) -> int:
    """The sum; a missing or silent part counts as much as the others."""
    silent = count - sum(value > 0 for value in values)
    return sum(values) + max(0, silent) * usual(values)


def _parts(count: int) -> str:
    return "one whole GPU" if count == 1 else f"{count} partitions"
