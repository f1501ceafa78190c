"""Format names, limits and choices, and parse the names, durations and pairs that people type.

`kaiwo.model.amounts` formats quantities.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from kaiwo.model.errors import ConfigError
from kaiwo.model.workload_record import WorkloadState

DEFAULT_NAMESPACE = "default"
UNFINISHED_STATES = tuple(state.value for state in WorkloadState if not state.is_over)
FINISHED_STATES = tuple(state.value for state in WorkloadState if state.is_over)
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+"


def parse_duration(text: str) -> int:
    """Seconds in `90`, `90s`, `2h30m`, `1d`."""
    if text.isdecimal():
        return int(text)
    if not re.fullmatch(r"(\d+[smhdw])+", text):
        raise ConfigError(f"'{text}' is not a duration; write it like 90s, 10m or 2h30m")
    return sum(int(count) * _UNIT_S[unit] for count, unit in re.findall(r"(\d+)([smhdw])", text))


def limit_or_dash(amount: int, write: Callable[[int], str]) -> str:
    """A limit; "-" if there is none."""
    return "-" if amount < 0 else write(amount)


def full_name(name: str) -> str:
    """`train` means `default/train`."""
    parts = name.split("/")
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise ConfigError(f"'{name}' is not a workload name; write it like train or team/train")
    return name if len(parts) == 2 else f"{DEFAULT_NAMESPACE}/{name}"


def short_name(name: str) -> str:
    return name.removeprefix(f"{DEFAULT_NAMESPACE}/")


def one_line(text: str) -> str:
    """The text without control characters, which could move the cursor or change colours."""
    return text if text.isprintable() else re.sub(_CONTROL, " ", text)


def one_of(words: Sequence[str]) -> str:
    """`mps, cu-mask or time-slicing`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def given_fields(form: dict[str, Any]) -> dict[str, Any]:
    """The form without the fields that were not given."""
    return {key: value for key, value in form.items() if value is not None and value not in ([], {}, "")}


def parse_pair(text: str, what: str) -> tuple[str, str]:
    """Split `team=vision` into key and value."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"'{text}' is not a {what}; write it like key=value")
    return key.strip(), value
