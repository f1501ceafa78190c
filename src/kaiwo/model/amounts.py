"""Format amounts as people write them: 4 GPUs, 0.762 GPU, 192 GiB, 2 h 10 min.

In:    an integer in the core's unit: milli-GPU, milli-CPU, MiB, seconds.   Out: text with a unit.
Amounts are exact, so that two that differ never read the same, unless the function's name says that it rounds.
"""

from kaiwo.model.request import MAX_CPU_MILLI, MAX_GPUS, MAX_MIB

GIB_MIB, TIB_MIB = 1024, 1024 * 1024
_NOUNS = {
    "gpus": "GPU",
    "devices": "device",
    "pods": "pod",
    "nodes": "node",
    "queues": "queue",
    "workloads": "workload",
}
_BYTES = (
    (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (10**9, "GB"), (1 << 10, "KiB"), (10**6, "MB"), (10**3, "kB"),
)  # fmt: skip
_TIMES_S = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
# A request for more than this is stored as this: see `model.request`.
_MOST = {"gpus": MAX_GPUS, "milli-gpu": 1000 * MAX_GPUS, "milli-cpu": MAX_CPU_MILLI, "mib": MAX_MIB}


def amount(value: int, unit: str, *others: int) -> str:
    """A value in the unit of an obstacle. `others`: see `memory`."""
    return _amount(value, unit, others) + (" or more" if value == _MOST.get(unit) else "")


def count(value: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"


def rate(mb_s: int) -> str:
    """`25.0 GB/s`."""
    return f"{mb_s // 1000}.{mb_s % 1000 // 100} GB/s"


def thousandths(value: int) -> str:
    """500 is `0.5`, 8000 is `8`."""
    sign, (whole, rest) = "-" if value < 0 else "", divmod(abs(value), 1000)
    return f"{sign}{whole}.{rest:03d}".rstrip("0") if rest else f"{sign}{whole}"


def gpus(milli: int) -> str:
    """`0.5 GPU`, `1.5 GPUs`."""
    return _milli(milli, "GPU")


def cpus(milli: int) -> str:
    """`0.5 CPU`, `16 CPUs`."""
    return _milli(milli, "CPU")


def memory(mib: int, *others: int) -> str:
    """`192 GiB`, `1.5 GiB`, `16000 MiB`: the largest unit that needs at most one decimal place.

    `others`: what the sentence compares it with or adds to it. All of them get the same unit.
    """
    every = (mib, *others)
    for size, name in ((TIB_MIB, "TiB"), (GIB_MIB, "GiB")):
        if max(every) >= size and all(each * 10 % size == 0 for each in every):
            return f"{mib / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{mib} MiB"


def compared_memory(need: int, have: int) -> tuple[str, str]:
    """`244.1 GiB` and `192 GiB`: what is needed and what there is, in one unit with at most one decimal place.

    What there is, is rounded down, so that asking for it fits. Exact where both would read the same, or one as 0.
    """
    for size, name in ((TIB_MIB, "TiB"), (GIB_MIB, "GiB")):
        tenths = ((need * 10 + size // 2) // size, have * 10 // size)
        is_in_order = tenths[0] > tenths[1] if need > have else tenths[0] < tenths[1]
        if max(need, have) >= size and is_in_order and all(tenths) == all((need, have)):
            first, second = (f"{each // 10}.{each % 10}".removesuffix(".0") for each in tenths)
            return f"{first} {name}", f"{second} {name}"
    return memory(need, have), memory(have, need)


def bytes_(value: int, *others: int) -> str:
    """`5 GiB`, `20 GB`: the largest unit that needs at most one decimal place, for all of them."""
    every = (value, *others)
    for size, name in _BYTES:
        if max(every) >= size and all(each * 10 % size == 0 for each in every):
            return f"{value / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{value} bytes"


def unit_of_extended(resource: str) -> str:
    """Kubernetes counts storage and huge pages in bytes, all other extended resources in pieces."""
    is_in_bytes = resource in ("ephemeral-storage", "storage") or resource.startswith("hugepages-")
    return "bytes" if is_in_bytes else ""


def rounded_memory(mib: int) -> str:
    """`42.1 GiB`: one decimal place, for columns and measurements."""
    for size, name in ((TIB_MIB, "TiB"), (GIB_MIB, "GiB")):
        if mib >= size:
            return f"{mib / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{mib} MiB" if mib else "0"


def duration(seconds: int) -> str:
    """`2 h 10 min`, `1 min 30 s`."""
    left, parts = max(0, seconds), []
    for size, unit in _TIMES_S:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts) or "0 s"


def rounded_duration(seconds: int) -> str:
    """Seconds below two minutes, whole minutes from there on: `90 s`, `2 h 5 min`."""
    return f"{max(0, seconds)} s" if seconds < 120 else duration(seconds - seconds % 60)


def short_duration(seconds: float) -> str:
    """Only the largest unit, for columns: `14 min`, `3 d`."""
    left = max(0, int(seconds))
    size, unit = next((each for each in _TIMES_S if left >= each[0]), _TIMES_S[-1])
    return f"{left // size} {unit}"


def _amount(value: int, unit: str, others: tuple[int, ...]) -> str:
    match unit:
        case "milli-gpu":
            return gpus(value)
        case "milli-cpu":
            return cpus(value)
        case "mib":
            return memory(value, *others)
        case "s":
            return duration(value)
        case "bytes":
            return bytes_(value, *others)
    return count(value, _NOUNS[unit]) if unit in _NOUNS else f"{value} {unit}".strip()


def _milli(value: int, noun: str) -> str:
    return f"{thousandths(value)} {noun}{'' if 0 < value <= 1000 else 's'}"
