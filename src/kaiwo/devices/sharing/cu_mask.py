"""AMD's compute-unit (CU) masks: choose the units of a share, and write ROCm's mask variables.

Never: writes a mask that ROCr ignores. ROCr reports no error: the process would silently get the whole GPU.

    mask = set [; set]*      set = gpus : units      gpus = list      units = list | 0xHEX
    list = (N | N-N)[, (N | N-N)]*

GPUs are numbered after ROCR_VISIBLE_DEVICES. No GPU or unit may occur twice, and no set may be empty. On a GPU with
several XCDs, bit i is a unit of XCD i mod XCDs, and an XCD without any bit runs without a mask. So units are assigned
in atoms: one unit of every XCD.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kaiwo.devices.inventory import NO_UNITS
from kaiwo.devices.sharing.share_types import GpuDevice
from kaiwo.model.gpus.gpu import WHOLE_MILLI

MASKED_TARGETS = "gfx9"  # CDNA and older; RDNA pairs its units and has other mask rules


def why_unmaskable(device: GpuDevice) -> str:
    if device.vendor != "amd":
        return "compute-unit masks exist on AMD GPUs only"
    if not device.target.startswith(MASKED_TARGETS):
        return f"compute-unit masks are not supported on {device.target or 'an unknown chip'}"
    if not device.compute_units:
        return NO_UNITS
    return ""


def unit_count(device: GpuDevice, milli: int) -> int:
    """The number of units of a share, rounded down to whole atoms; 0 if it is smaller than one atom."""
    return device.compute_units * milli // WHOLE_MILLI // device.xcds * device.xcds


def least_milli(device: GpuDevice) -> int:
    return -(-device.xcds * WHOLE_MILLI // device.compute_units)


def choose_units(device: GpuDevice, milli: int, taken: Collection[int]) -> tuple[int, ...]:
    """The lowest free units, in whole atoms, not necessarily contiguous; empty if there are too few."""
    wanted = unit_count(device, milli)
    busy = {unit // device.xcds for unit in taken}
    atoms = (atom for atom in range(device.compute_units // device.xcds) if atom not in busy)
    units = [atom * device.xcds + offset for atom in atoms for offset in range(device.xcds)][:wanted]
    return tuple(units) if wanted and len(units) == wanted else ()


def mask_variables(units: Sequence[Collection[int]]) -> dict[str, str]:
    """The mask variables for devices in the process's order; an empty entry is not masked."""
    masked = {index: of for index, of in enumerate(units) if of}
    if not masked:
        return {}
    variables = {"HSA_CU_MASK": write_mask(masked)}
    if len(masked) == len(units) and len({frozenset(of) for of in units}) == 1:
        # HIP's variable is one mask for all devices, so it is set only if all masks are equal.
        variables["ROC_GLOBAL_CU_MASK"] = f"0x{sum(1 << unit for unit in set(units[0])):x}"
    return variables


def write_mask(units: Mapping[int, Collection[int]]) -> str:
    """`0:0-15,32-47;1:0-151`."""
    return ";".join(f"{index}:{write_list(of)}" for index, of in sorted(units.items()))


def write_list(numbers: Iterable[int]) -> str:
    """`0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)
