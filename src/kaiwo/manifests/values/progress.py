"""Read a report of progress: how long a step took, how long it should take, or the bandwidth of collectives.

In:    fields of a form, or one text such as `step=2.1s expected=2s steps=1200`.   Out: a ProgressReport.
"""

import re
from collections.abc import Mapping
from decimal import Decimal

from kaiwo.manifests.text.field_errors import FieldPath, show, suggest
from kaiwo.manifests.values.quantities import read_bandwidth_mb_s
from kaiwo.model.performance import ProgressReport

FIELDS = ("step", "expected", "bandwidth", "steps")
STEP_EXAMPLE = "write it as 2.1s or 350ms"
MAX_STEP_US = 86_400_000_000
MAX_STEPS = 10**15
_STEP = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|ms|s|m|h)?")
_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_MAX_TEXT = 200


def read_progress(
    fields: Mapping[str, object], path: FieldPath, workload: str, at_s: int, pod: str = ""
) -> ProgressReport:
    step_us = _read_step_us(fields["step"], path.inner("step")) if "step" in fields else 0
    expected_us = _read_step_us(fields["expected"], path.inner("expected")) if "expected" in fields else 0
    bandwidth = read_bandwidth_mb_s(fields["bandwidth"], path.inner("bandwidth")) if "bandwidth" in fields else 0
    steps = _read_steps(fields["steps"], path.inner("steps")) if "steps" in fields else 0
    if expected_us and not step_us:
        raise path.inner("expected").error("is the time that a step should take; give step, too")
    if not (step_us or bandwidth or steps):
        raise path.error("says nothing; give the time of a step, a bandwidth, or the number of steps")
    return ProgressReport(workload, at_s, pod, step_us, expected_us, bandwidth, steps)


def read_progress_text(text: str, path: FieldPath, workload: str, at_s: int, pod: str = "") -> ProgressReport:
    """`step=2.1s expected=2s bandwidth=180GB/s steps=1200`, in any order."""
    if len(text) > _MAX_TEXT:
        raise path.error(f"has {len(text)} characters; write at most {_MAX_TEXT}")
    fields: dict[str, object] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        if not equals or name not in FIELDS:
            raise path.error(f"has {show(part)}; write it as step=2.1s{suggest(name, FIELDS)}")
        fields[name] = value
    return read_progress(fields, path, workload, at_s, pod)


def progress_text(report: ProgressReport) -> str:
    """The text that reads as this report."""
    parts = {
        "step": f"{report.step_us}us" if report.step_us else "",
        "expected": f"{report.expected_us}us" if report.expected_us else "",
        "bandwidth": f"{report.bandwidth_mb_s}MB/s" if report.bandwidth_mb_s else "",
        "steps": str(report.steps or ""),
    }
    return " ".join(f"{name}={text}" for name, text in parts.items() if text)


def _read_step_us(value: object, path: FieldPath) -> int:
    text = repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    match = _STEP.fullmatch(text) if isinstance(text, str) else None
    us = int(Decimal(match[1]) * _US[match[2] or "s"]) if match else 0
    if not 1 <= us <= MAX_STEP_US:
        raise path.error(f"is {show(value)}; {STEP_EXAMPLE}, at most a day")
    return us


def _read_steps(value: object, path: FieldPath) -> int:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not re.fullmatch("[0-9]{1,15}", text) or int(text) > MAX_STEPS:
        raise path.error(f"is {show(value)}; write the number of steps that are done, such as 1200")
    return int(text)
