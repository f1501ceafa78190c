"""A request that fits what the same work used before: its GPU share, GPU memory, CPU and memory.

In:    a request, what the last runs used, and how much to leave.   Out: a smaller request with its reasons, or None.
Never: gives less than the measured peak with its headroom, gives more than was asked for, or sizes what was not
       measured. The number of GPUs stays: the program determines it.

What grows from run to run is expected to grow further. A run that used all that it was given says only that it needed
at least that; then, and after a run that failed with less than its owner asked for, the owner's amount holds until
such runs are forgotten.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.advise.run_uses import UNKNOWN, PodAmounts, RunUse
from kaiwo.model.gpus.gpu import NOBODY, WHOLE_MILLI
from kaiwo.model.request import Request

PRESSED_PERCENT = 95  # of what it was given: it may have needed more
WORTH_PERCENT = 10  # a change that saves less is not made
# Beyond its memory a run fails; beyond its share it is only slower. So memory has more headroom.
MEMORY_MARGIN_PERCENT = 30
CAPPED_MARGIN_PERCENT = 30  # more where a share is also the most that a run can get
LARGEST_SHARE_MILLI = 700  # what a larger share leaves of a GPU is of little use to others
STEPS = PodAmounts(gpu_milli=50, gpu_mib=256, cpu_milli=100, memory_mib=64)  # amounts are multiples of these


class SizeRule(NamedTuple):
    headroom_percent: int = 20
    least_runs: int = 5
    may_burst: bool = True  # a share may use what others leave; False: it is also the most that a run gets


class Resized(msgspec.Struct, frozen=True):
    """One amount of a request, and why it changes."""

    amount: str  # a field of PodAmounts
    asked: int
    peak: int
    expected: int  # the peak, and further growth
    given: int
    runs: int


class RightSize(msgspec.Struct, frozen=True):
    request: Request
    reasons: tuple[Resized, ...]


def amounts_of(request: Request, device_mib: int) -> PodAmounts:
    """What one pod asks for. The memory of a share without an amount of its own is its part of the device."""
    if not request.gpus or request.is_partition:
        return PodAmounts(cpu_milli=request.cpu_milli or UNKNOWN, memory_mib=request.memory_mib or UNKNOWN)
    milli = request.milli_on(device_mib) if request.is_memory and device_mib else request.gpu_milli
    mib = request.gpu_mib or (device_mib * request.gpu_milli // WHOLE_MILLI if device_mib else UNKNOWN)
    return PodAmounts(milli, mib, request.cpu_milli or UNKNOWN, request.memory_mib or UNKNOWN)


def right_size(
    request: Request, runs: Sequence[RunUse], rule: SizeRule, device_mib: int, resizes_gpus: bool = True
) -> RightSize | None:
    """`device_mib`: the memory of the devices that it runs on; 0: unknown, and its GPU share stays."""
    if sum(not run.failed for run in runs) < rule.least_runs:  # who fails early has not used all that it needs
        return None
    asked, found = amounts_of(request, device_mib), {}
    for name in PodAmounts.__struct_fields__:
        resized = _resized(name, getattr(asked, name), runs, rule)
        if resized is not None:
            found[name] = resized
    reasons = [found[name] for name in ("cpu_milli", "memory_mib") if name in found]
    request = replace(request, **{each.amount: each.given for each in reasons})
    if resizes_gpus and device_mib and {"gpu_milli", "gpu_mib"} & found.keys():
        smaller = _smaller_share(request, found, runs, rule, device_mib)
        if smaller is not None:
            request, reasons = smaller, [found[name] for name in ("gpu_milli", "gpu_mib") if name in found] + reasons
    return RightSize(request, tuple(reasons)) if reasons else None


def _resized(name: str, asked: int, runs: Sequence[RunUse], rule: SizeRule) -> Resized | None:
    peaks = [_peak(run, name, rule) for run in runs]
    if asked <= 0 or UNKNOWN in peaks:
        return None
    if any((run.failed and run.is_adjusted) or _is_pressed(run, name) for run in runs):
        return None
    expected = max(peaks) + _growth(peaks)
    given = min(asked, _with_headroom(name, expected, rule))
    if (asked - given) * 100 < asked * WORTH_PERCENT:
        return None
    return Resized(name, asked, max(peaks), expected, given, len(runs))


def _peak(run: RunUse, name: str, rule: SizeRule) -> int:
    """A cap slows even a short burst."""
    peak: int = getattr(run.peak, name)
    return max(peak, run.top_gpu_milli) if name == "gpu_milli" and not rule.may_burst and peak != UNKNOWN else peak


def _is_pressed(run: RunUse, name: str) -> bool:
    """It had less than its owner asked for, and used all of it."""
    given, asked, peak = (int(getattr(each, name)) for each in (run.given, run.asked, run.peak))
    return 0 < given < asked and peak * 100 >= given * PRESSED_PERCENT


def _growth(peaks: Sequence[int]) -> int:
    """How much further the next runs are expected to grow: as much as the later runs exceeded the earlier ones."""
    half = len(peaks) // 2
    return max(0, max(peaks[half:]) - max(peaks[:half])) if half else 0


def _with_headroom(name: str, expected: int, rule: SizeRule) -> int:
    percent = 100 + rule.headroom_percent
    if name in ("gpu_mib", "memory_mib"):
        percent += MEMORY_MARGIN_PERCENT
    elif name == "gpu_milli" and not rule.may_burst:
        percent += CAPPED_MARGIN_PERCENT
    step = int(getattr(STEPS, name))
    return max(step, -(-expected * percent // (100 * step)) * step)


def _smaller_share(
    request: Request, found: dict[str, Resized], runs: Sequence[RunUse], rule: SizeRule, device_mib: int
) -> Request | None:
    """A share needs both its part of the processors and of the memory. `found` gets what is given in the end."""
    if request.is_partition or NOBODY in request.share_with or (request.is_whole and request.least_grade):
        return None
    if request.gpus != 1 or any(run.peak.gpu_milli == UNKNOWN or run.peak.gpu_mib == UNKNOWN for run in runs):
        return None
    asked = amounts_of(request, device_mib)
    milli = found["gpu_milli"].given if "gpu_milli" in found else asked.gpu_milli
    mib = found["gpu_mib"].given if "gpu_mib" in found else asked.gpu_mib
    if request.is_memory and request.fraction_milli:
        return replace(request, gpu_milli=milli, gpu_mib=mib)
    if request.is_memory:  # its part of the processors follows from its memory
        mib = max(mib, -(-milli * device_mib // WHOLE_MILLI))
        if (request.gpu_mib - mib) * 100 < request.gpu_mib * WORTH_PERCENT or not _keep_only(found, "gpu_mib"):
            return None
        found["gpu_mib"] = msgspec.structs.replace(found["gpu_mib"], given=mib)
        return replace(request, gpu_mib=mib)
    # A fraction brings its part of the memory, so the larger of both needs counts.
    step = STEPS.gpu_milli
    milli = max(milli, -(-mib * WHOLE_MILLI // (device_mib * step)) * step)
    if milli > LARGEST_SHARE_MILLI or milli >= request.gpu_milli or not _keep_only(found, "gpu_milli"):
        return None
    if (request.gpu_milli - milli) * 100 < request.gpu_milli * WORTH_PERCENT:
        return None
    found["gpu_milli"] = msgspec.structs.replace(found["gpu_milli"], given=milli)
    threads = max(request.threads_milli, request.gpu_milli) if rule.may_burst else request.threads_milli
    return replace(request, gpu_milli=milli, threads_milli=threads)


def _keep_only(found: dict[str, Resized], name: str) -> bool:
    """Of both amounts of a GPU, one is changed; False: it does not change."""
    other = "gpu_milli" if name == "gpu_mib" else "gpu_mib"
    found.pop(other, None)
    return name in found
