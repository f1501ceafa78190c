"""Which memory sizes are believed: a file may be half written, or hold -1.

In:    bytes as a file says them; MiB and the model they are said of.   Out: what can be true, and a word on the rest.
Never: believes a number because it is one: a healthy device with false memory misleads the whole cluster.
"""

from kaiwo.devices.gpu_names import nominal_mib
from kaiwo.model.partition_modes import CHIPS

PAGE_BYTES = 4096  # the driver hands out memory by pages; of a number that was cut off, few are whole pages
MOST_BYTES = 1 << 46  # 64 TiB on one GPU is no memory size


def plausible_bytes(reported: int, file: str) -> tuple[int, str]:
    """0 and a problem when it is no size of memory."""
    is_third = -3 * reported % PAGE_BYTES <= 2  # in TPX a partition has a third of whole pages, rounded down
    if 0 <= reported < MOST_BYTES and (reported % PAGE_BYTES == 0 or is_third):
        return reported, ""
    return 0, f"{file} says {reported}, which is no size of memory"


def is_plausible(mib: int, model: str, parts: int, is_virtual: bool) -> bool:
    """Near what the data sheet says, where we have one; the lost digits of a number make it ten times smaller.

    A virtual function has what its host gave it, and an APU shares with the CPU: those may be much smaller.
    """
    nominal = nominal_mib(model)
    is_apu = model in CHIPS and CHIPS[model].is_apu
    least = nominal // parts // (16 if is_virtual or is_apu else 2)
    return not nominal or least <= mib <= 2 * nominal


def implausible_text(file: str, mib: int, model: str) -> str:
    """The problem in words."""
    return f"{file} says {mib:,} MiB, which is not believed of an {model}"
