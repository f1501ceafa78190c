"""Read small sysfs files safely.

Never: blocks on a pipe, reads a huge file to its end, or raises anything but OSError.
"""

import os
import re
from collections.abc import Mapping

import msgspec

MAX_BYTES = 1 << 16  # sysfs returns at most a page; a larger file is not sysfs
MAX_ENTRIES = 4096
PAGE_BYTES = 4096  # memory sizes are whole pages; few truncated numbers are
MAX_MEMORY_BYTES = 1 << 46  # 64 TiB; no GPU has that much
MAX_NUMBER = (1 << 64) - 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PLAIN = re.compile(rb"(?:[A-Za-z_][A-Za-z0-9_]{0,62} [0-9]{1,20}\n)+")
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def read_bytes(path: str, most: int = MAX_BYTES) -> bytes:
    """The contents of a small file; OSError if it can't be read or is too large."""
    handle = os.open(path, _FLAGS)
    try:
        data = os.read(handle, most + 1)
    finally:
        os.close(handle)
    if len(data) > most:
        raise OSError(0, f"larger than {most >> 10} KiB", path)
    return data


def read_text(path: str) -> str:
    """The first line, printable characters only; empty if there is none."""
    try:
        data = read_bytes(path)
    except OSError:
        return ""
    line = data.decode("utf-8", "replace").strip().partition("\n")[0]
    return "".join(sign for sign in line if sign.isprintable() and sign != "�").strip()


def read_number(path: str) -> int | None:
    """A whole number, decimal or 0x...; None if there is none. Some files contain -1 for unknown."""
    return parse_number(read_text(path))


def parse_number(text: str) -> int | None:
    """The number in a text; None for `N/A`, junk, and numbers beyond 64 bits."""
    try:
        value = int(text, 16) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        return None
    return value if -MAX_NUMBER <= value <= MAX_NUMBER else None


def plausible_bytes(reported: int, file: str) -> tuple[int, str]:
    """The size, or 0 and a problem if it can't be one."""
    is_third = -3 * reported % PAGE_BYTES <= 2  # in TPX a partition has a third of the pages, rounded down
    if 0 <= reported < MAX_MEMORY_BYTES and (reported % PAGE_BYTES == 0 or is_third):
        return reported, ""
    return 0, f"{file} says {reported}, which is not a memory size"


def list_entries(path: str) -> list[str]:
    return sorted(_entries(path))


def numbered_entries(path: str, most_digits: int = 6) -> list[int]:
    found = [int(name) for name in _entries(path) if name.isdecimal() and name.isascii() and len(name) <= most_digits]
    found.sort()
    return found


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)[:MAX_ENTRIES]
    except (OSError, ValueError):
        return []


def error_text(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


class Properties(msgspec.Struct):
    """The contents of a file of `name number` lines, and its problems."""

    facts: Mapping[str, int] = {}
    problems: list[str] = []
    is_truncated: bool = False  # it ends within a line


def read_properties(path: str) -> Properties:
    try:
        data = read_bytes(path)
    except OSError as error:
        return Properties(problems=[f"{os.path.basename(path)}: {error_text(error)}"])
    return parse_properties(data)


def parse_properties(data: bytes) -> Properties:
    """Parse lines of a name and a number; other lines are problems."""
    is_truncated = not data.endswith(b"\n")
    # Nearly all files are valid, and one match of the whole is ten times faster than parsing each line.
    if _PLAIN.fullmatch(data):
        words = data.decode().split()
        facts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        if max(facts.values()) <= MAX_NUMBER:
            return Properties(facts, [], is_truncated)
    return _parse_lines(data, is_truncated)


def _parse_lines(data: bytes, is_truncated: bool) -> Properties:
    facts: dict[str, int] = {}
    problems: list[str] = []
    for line in data.decode("latin-1").split("\n"):
        words = line.split()
        if not words:
            continue
        value = parse_number(words[1]) if len(words) == 2 else None
        if not _NAME.fullmatch(words[0]):
            problems.append("properties has lines that are not text")
        elif value is None or value < 0:
            problems.append(f"properties has no number for {words[0]}")
        else:
            facts[words[0]] = value
    if not facts:
        problems.append("properties is empty" if not data.strip() else "properties is not readable text")
    return Properties(facts, list(dict.fromkeys(problems))[:4], is_truncated)
