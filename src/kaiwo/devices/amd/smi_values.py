"""Read values from the JSON of AMD's tools, which write them in many ways.

In:    42, "42", "42.0", "42 W", {"value": 42, "unit": "W"}, "N/A", "N/A (Secondary die)", null.
Out:   a number, a text, or None.
"""

import re
from typing import Any

_NUMBER = re.compile(r"\s*\(?\s*(-?\d{1,20}(?:\.\d{1,12})?)\s*([A-Za-z%]*)")
_MIB = {"": 1, "B": 1 / (1 << 20), "KB": 1 / 1024, "MB": 1, "GB": 1024, "TB": 1 << 20}


def number(value: Any) -> float | None:
    found = _split(value)
    return found[0] if found else None


def whole(value: Any, least: int = 0, most: int = 1 << 62) -> int | None:
    """A whole number within bounds, decimal or hexadecimal."""
    if isinstance(value, str) and re.fullmatch(r"\s*0[xX][0-9a-fA-F]{1,16}\s*", value):
        found: float | None = int(value, 16)
    else:
        found = number(value)
    return round(found) if found is not None and least <= found <= most else None


def mib(value: Any, unit: str = "MB") -> int | None:
    """Memory in MiB; the tools write MB and GB for MiB and GiB."""
    found = _split(value)
    if found is None or found[0] < 0:
        return None
    reported = (found[1] or unit).upper().replace("IB", "B")
    return int(found[0] * _MIB[reported]) if reported in _MIB else None


def text_value(value: Any) -> str:
    """The text; empty for N/A and the like."""
    text = value.strip() if isinstance(value, str) else ""
    return "" if text.upper() in ("N/A", "NA", "NONE", "UNKNOWN", "NULL") or text.upper().startswith("N/A ") else text


def value_at(data: Any, *names: str) -> Any:
    for name in names:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def first_value(data: Any, *names: str) -> Any:
    """The first of these entries that has a value."""
    for name in names:
        value = value_at(data, name)
        if value is not None and (not isinstance(value, str) or text_value(value)):
            return value
    return None


def _split(value: Any) -> tuple[float, str] | None:
    if isinstance(value, dict):
        inner = _split(value.get("value"))
        unit = value.get("unit")
        return (inner[0], unit if isinstance(unit, str) else inner[1]) if inner else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        found = _NUMBER.match(value)
        return (float(found[1]), found[2]) if found else None
    return (float(value), "") if abs(value) < 1e19 else None
