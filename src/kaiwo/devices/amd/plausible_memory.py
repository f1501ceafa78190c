"""Check whether a reported memory size is plausible: a file may be truncated, or contain -1.

A healthy device with a wrong memory size would mislead the scheduler.
"""

from kaiwo.devices.gpu_names import nominal_mib
from kaiwo.model.gpu_models import CHIPS

PAGE_BYTES = 4096  # sizes are whole pages; few truncated numbers are
MOST_BYTES = 1 << 46  # 64 TiB; no GPU has that much


def plausible_bytes(reported: int, file: str) -> tuple[int, str]:
    """The size, or 0 and a problem if it can't be one."""
    is_third = -3 * reported % PAGE_BYTES <= 2  # in TPX a partition has a third of the pages, rounded down
    if 0 <= reported < MOST_BYTES and (reported % PAGE_BYTES == 0 or is_third):
        return reported, ""
    return 0, f"{file} says {reported}, which is not a memory size"


def is_plausible(mib: int, model: str, parts: int, is_virtual: bool) -> bool:
    """True if it is near the data sheet's size; a missing digit makes a number ten times smaller.

    A virtual function has what its host gave it, and an APU shares memory with the CPU; both may have much less.
    """
    nominal = nominal_mib(model)
    is_apu = model in CHIPS and CHIPS[model].is_apu
    least = nominal // parts // (16 if is_virtual or is_apu else 2)
    return not nominal or least <= mib <= 2 * nominal


def implausible_text(file: str, mib: int, model: str) -> str:
    """The problem as text."""
    return f"{file} says {mib:,} MiB, which is implausible for an {model}"
