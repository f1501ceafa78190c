"""Slurm's short way to write many host names: `rack[1-2]n[01-10,15],login` and back."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.check_topology import check_name_length

MAX_HOSTS = 100_000
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
_ENDS_IN_NUMBER = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII | re.DOTALL)
_SHOWN = 40


def expand_hostlist(text: str, where: str) -> tuple[str, ...]:
    """All names, in the order in which they are written; the same name twice counts once."""
    found: dict[str, None] = {}
    for part in _split(text, where):
        for name in _expand(part, where, MAX_HOSTS - len(found)):
            check_name_length(name, where)
            found[name] = None
    return tuple(found)


def fold_hostlist(names: Iterable[str]) -> str:
    """A short text that expands to the same set of names."""
    numbered: dict[tuple[str, int], set[int]] = {}
    plain = set()
    for name in names:
        match = _ENDS_IN_NUMBER.fullmatch(name)
        if match is None:
            plain.add(name)
        else:
            digits = match[2]
            width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
            numbered.setdefault((match[1], width), set()).add(int(digits))
    parts = sorted(plain)
    for (prefix, width), numbers in sorted(numbered.items()):
        ranges = [
            f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
            for first, last in _runs(sorted(numbers))
        ]
        alone = len(ranges) == 1 and "-" not in ranges[0]
        parts.append(prefix + (ranges[0] if alone else f"[{','.join(ranges)}]"))
    return ",".join(parts)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        values = [number for _, number in run]
        yield values[0], values[-1]


def _split(text: str, where: str) -> list[str]:
    """At the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        if sign == "[":
            depth += 1
        elif sign == "]":
            depth -= 1
        elif sign == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
        if depth not in (0, 1):
            raise _error(where, text, "has brackets that do not match; write them as n[1-4]")
    if depth:
        raise _error(where, text, "has a bracket that is not closed; write it as n[1-4]")
    parts.append(text[start:])
    if not all(parts):
        raise _error(where, text, "has an empty name; remove the extra comma")
    return parts


def _expand(part: str, where: str, room: int) -> Iterator[str]:
    pieces = re.split(r"\[([^][]*)\]", part)
    choices: list[list[str]] = []
    total = 1
    for at, piece in enumerate(pieces):
        choices.append(_numbers(piece, part, where, room) if at % 2 else [piece])
        total *= len(choices[-1])
    if total > room:
        raise _error(where, part, f"makes more than {MAX_HOSTS:,} names; write fewer")
    return ("".join(chosen) for chosen in product(*choices))


def _numbers(ranges: str, part: str, where: str, room: int) -> list[str]:
    found: list[str] = []
    for each in ranges.split(","):
        match = _RANGE.fullmatch(each)
        if match is None:
            raise _error(where, part, f"has {each[:_SHOWN]!r} in brackets, which is no number or range; write 1 or 1-4")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _error(where, part, f"has the range {each}, which ends before it begins; swap the two numbers")
        if int(last) - int(first) + len(found) >= room:
            raise _error(where, part, f"makes more than {MAX_HOSTS:,} names; write fewer")
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return found


def _error(where: str, text: str, fact: str) -> ConfigError:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return ConfigError(f"{where}: {shown!r} {fact}", where)
