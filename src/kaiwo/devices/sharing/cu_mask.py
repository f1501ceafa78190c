"""AMD's compute-unit masks: which units a share may use, and how ROCm wants that written.

In:    compute units by number.   Out: HSA_CU_MASK, ROC_GLOBAL_CU_MASK; a text parsed as ROCr parses it.
Never: writes a mask that ROCr ignores. A wrong mask is not an error there: the process silently gets the whole GPU.

    mask = set [; set]*      set = gpus : units      gpus = list      units = list | 0xHEX
    list = (N | N-N)[, (N | N-N)]*

GPUs are counted after ROCR_VISIBLE_DEVICES. No GPU and no unit may come twice, and no set may be empty of units. On a
GPU of several XCDs the unit with bit i lies on XCD i mod XCDs, and an XCD that gets no bit runs without a mask: so
units are handed out in atoms, one unit of every XCD.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from kaiwo.devices.sharing.share_types import GpuDevice
from kaiwo.model.gpu import WHOLE_MILLI

MASKED_TARGETS = "gfx9"  # CDNA and before; RDNA pairs its units and is masked by other rules
MOST_UNITS = 1024
_LIST = r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*"
_SET = re.compile(rf"({_LIST}):(0[xX][0-9a-fA-F]+|{_LIST})")


def why_unmaskable(device: GpuDevice) -> str:
    """Why a share of this device cannot be masked; empty when it can."""
    if device.vendor != "amd":
        return "compute-unit masks exist on AMD GPUs only"
    if not device.target.startswith(MASKED_TARGETS):
        return f"compute-unit masks are not written for {device.target or 'an unknown chip'}"
    if not device.compute_units:
        return "the number of its compute units is not known"
    return ""


def unit_count(device: GpuDevice, milli: int) -> int:
    """How many units a share has: its part, rounded down to whole atoms; 0 when it is smaller than one."""
    return device.compute_units * milli // WHOLE_MILLI // device.xcds * device.xcds


def least_milli(device: GpuDevice) -> int:
    """The smallest share that holds one atom."""
    return -(-device.xcds * WHOLE_MILLI // device.compute_units)


def choose_units(device: GpuDevice, milli: int, taken: Collection[int]) -> tuple[int, ...]:
    """The lowest free units, whole atoms only; empty when there are not enough. They need not lie side by side."""
    wanted = unit_count(device, milli)
    busy = {unit // device.xcds for unit in taken}
    atoms = (atom for atom in range(device.compute_units // device.xcds) if atom not in busy)
    units = [atom * device.xcds + offset for atom in atoms for offset in range(device.xcds)][:wanted]
    return tuple(units) if wanted and len(units) == wanted else ()


def mask_variables(units: Sequence[Collection[int]]) -> dict[str, str]:
    """The variables for devices in the order in which the process sees them; an empty entry is not masked."""
    masked = {index: of for index, of in enumerate(units) if of}
    if not masked:
        return {}
    variables = {"HSA_CU_MASK": write_mask(masked)}
    if len(masked) == len(units) and len({frozenset(of) for of in units}) == 1:
        # HIP's own variable knows one mask for all devices, so it is written only where they have the same.
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


def parse_mask(text: str) -> dict[int, frozenset[int]]:
    """As ROCr reads it: up to the first mistake; what stands from there on counts for nothing."""
    found: dict[int, frozenset[int]] = {}
    for part in text.replace(" ", "").split(";"):
        match = _SET.fullmatch(part)
        gpus = _parse_list(match[1]) if match else None
        units = _parse_units(match[2]) if match else None
        if not gpus or not units or found.keys() & set(gpus):
            break
        found |= dict.fromkeys(gpus, frozenset(units))
    return found


def _parse_units(text: str) -> list[int] | None:
    if text[:2].lower() == "0x":
        mask = int(text, 16)
        return [bit for bit in range(mask.bit_length()) if mask >> bit & 1] if mask.bit_length() <= MOST_UNITS else None
    return _parse_list(text)


def _parse_list(text: str) -> list[int] | None:
    """None when a number comes twice or a range runs backwards."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high >= MOST_UNITS:
            return None
        numbers += range(low, high + 1)
    return numbers if len(set(numbers)) == len(numbers) else None
