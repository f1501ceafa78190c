"""Quantities as people say them, exactly: two that differ never read the same.

In:    an integer in the unit of the core.   Out: `4 GPUs`, `0.762 GPU`, `192 GiB`, `196609 MiB`.
The most that is counted stands for all that is more: it is not the number that somebody wrote.
"""

from kaiwo.model.request import MOST_CPU_MILLI, MOST_GPUS, MOST_MIB

GIB, TIB = 1024, 1024 * 1024  # in MiB
_COUNTED = {
    "gpus": "GPU",
    "devices": "device",
    "pods": "pod",
    "nodes": "node",
    "queues": "queue",
    "workloads": "workload",
}
_MOST = {"gpus": MOST_GPUS, "milli-gpu": 1000 * MOST_GPUS, "milli-cpu": MOST_CPU_MILLI, "mib": MOST_MIB}


def amount(value: int, unit: str) -> str:
    """The number with its unit."""
    return _amount(value, unit) + (" or more" if value == _MOST.get(unit) else "")


def _amount(value: int, unit: str) -> str:
    match unit:
        case "milli-gpu":
            return _milli(value, "GPU")
        case "milli-cpu":
            return _milli(value, "CPU")
        case "mib":
            return _memory(value)
        case "s":
            return f"{value} s"
    return _count(value, _COUNTED[unit]) if unit in _COUNTED else str(value)


def _count(value: int, noun: str) -> str:
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"


def _milli(value: int, noun: str) -> str:
    plain = f"{value / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{plain} {noun}" if 0 < value <= 1000 else f"{plain} {noun}s"


def _memory(mib: int) -> str:
    """In the largest unit in which three places after the point say it exactly."""
    for size, name, least in ((TIB, "TiB", 10 * TIB), (GIB, "GiB", 10 * GIB)):
        if mib >= least and mib * 1000 % size == 0:
            return f"{mib / size:.3f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{mib} MiB"
