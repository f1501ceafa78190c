"""Format quantities and names, such as 14m, 0.5, 192Gi and train; parse durations and key=value pairs."""

import re
from collections.abc import Callable

from kaiwo.model.errors import ConfigError
from kaiwo.model.workload_record import WorkloadState

DEFAULT_NAMESPACE = "default"
UNFINISHED_STATES = tuple(state.value for state in WorkloadState if not state.is_over)
FINISHED_STATES = tuple(state.value for state in WorkloadState if state.is_over)
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+"


def age(seconds: float) -> str:
    """A duration in its largest unit: 45s, 14m, 2h, 3d."""
    left = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if left >= size:
            return f"{left // size}{unit}"
    return f"{left}s"


def duration(seconds: int) -> str:
    """A duration in full: 2h30m, 1m30s."""
    left, parts = max(0, int(seconds)), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts) or "0s"


def parse_duration(text: str) -> int:
    """Seconds in `90`, `90s`, `2h30m`, `1d`."""
    if text.isdecimal():
        return int(text)
    if not re.fullmatch(r"(\d+[smhdw])+", text):
        raise ConfigError(f"'{text}' is not a duration; write it like 90s, 10m or 2h30m")
    return sum(int(count) * _UNIT_S[unit] for count, unit in re.findall(r"(\d+)([smhdw])", text))


def milli(amount: int) -> str:
    """An amount in thousandths without needless zeros: 500 is 0.5, 8000 is 8."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    whole, rest = divmod(amount, 1000)
    return sign + (f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole))


def memory(mib: int) -> str:
    """MiB in the largest unit that stays readable: 512Mi, 192Gi, 1.5Ti."""
    for unit, size in (("Ti", 1024 * 1024), ("Gi", 1024)):
        if mib >= size:
            return f"{mib / size:.1f}".removesuffix(".0") + unit
    return f"{mib}Mi" if mib else "0"


def limit_or_dash(amount: int, write: Callable[[int], str]) -> str:
    """A limit; "-" if there is none."""
    return "-" if amount < 0 else write(amount)


def amount(number: int, unit: str) -> str:
    """An obstacle's number with its unit."""
    if unit == "milli-gpu":
        return f"{milli(number)} GPU{'' if 0 < number <= 1000 else 's'}"
    if unit == "milli-cpu":
        return f"{milli(number)} CPU{'' if 0 < number <= 1000 else 's'}"
    if unit == "mib":
        return memory(number) if number % 1024 == 0 else f"{number}Mi"  # exact, because need and have are compared
    if unit == "s":
        return duration(number)
    if unit == "gpus":
        return count(number, "GPU")
    return f"{number} {unit.removesuffix('s') if number == 1 else unit}".strip()


def count(number: int, noun: str) -> str:
    """1 node, 2 nodes."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def full_name(name: str) -> str:
    """`train` means `default/train`."""
    parts = name.split("/")
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise ConfigError(f"'{name}' is not a workload name; write it like train or team/train")
    return name if len(parts) == 2 else f"{DEFAULT_NAMESPACE}/{name}"


def short_name(name: str) -> str:
    """The name without the default namespace."""
    return name.removeprefix(f"{DEFAULT_NAMESPACE}/")


def one_line(text: str) -> str:
    """The text without control characters, which could move the cursor or change colours."""
    return text if text.isprintable() else re.sub(_CONTROL, " ", text)


def parse_pair(text: str, what: str) -> tuple[str, str]:
    """Split `team=vision` into key and value."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"'{text}' is not a {what}; write it like key=value")
    return key.strip(), value
