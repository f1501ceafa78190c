"""Parse ROCm's compute-unit masks as ROCr does."""

import re

MAX_UNITS = 1024
_LIST = r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*"
_SET = re.compile(rf"({_LIST}):(0[xX][0-9a-fA-F]+|{_LIST})")


def parse_mask(text: str) -> dict[int, frozenset[int]]:
    """Parse a mask as ROCr does: up to the first mistake; the rest is ignored."""
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
        return [bit for bit in range(mask.bit_length()) if mask >> bit & 1] if mask.bit_length() <= MAX_UNITS else None
    return _parse_list(text)


def _parse_list(text: str) -> list[int] | None:
    """None if a number occurs twice or a range runs backwards."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high >= MAX_UNITS:
            return None
        numbers += range(low, high + 1)
    return numbers if len(set(numbers)) == len(numbers) else None
