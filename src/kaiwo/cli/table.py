"""Lay out rows so that they fit the terminal.

In:    columns, rows of text, a width.   Out: lines, none wider than the width, none wrapped.
Never: loses a column silently; what is cut ends in an ellipsis.
"""

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kaiwo.cli.words import one_line

GAP = "  "
ELLIPSIS = "…"
NARROWEST = 4  # a column is not cut below this while another can give


class Column(msgspec.Struct, frozen=True):
    """A title and how to get its text from an item; `now` is the cluster's time."""

    title: str
    text: Callable[[Any, float], str]
    is_number: bool = False  # right-aligned
    is_wide: bool = False  # only with -o wide
    is_state: bool = False  # may be coloured


def lay_out(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int = 0,
    titles: bool = True,
    paint: Callable[[str], str] = str,
) -> list[str]:
    """The table as lines. `width` 0: as wide as it needs. `paint` may colour the cells of state columns."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    # A column in which nobody has anything to say (notes, reasons) is left out, title and all.
    told = [i for i in range(len(columns)) if not cells or any(row[i] for row in cells)]
    columns = [columns[i] for i in told]
    cells = [[row[i] for i in told] for row in cells]
    if titles:
        cells.insert(0, [column.title for column in columns])
    if not cells:
        return []
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(columns))]
    if width:
        widths = shrink(widths, width)
    if width and _total(widths) > width:  # narrower than any table: cut the lines themselves
        return [cut(_line(columns, row, widths, str), width) for row in cells]
    return [_line(columns, row, widths, paint) for row in cells]


def shrink(widths: Sequence[int], width: int) -> list[int]:
    """Take from the right columns first; the left ones name the thing."""
    fitted = list(widths)
    over = _total(fitted) - width
    for i in range(len(fitted) - 1, -1, -1):
        if over <= 0:
            break
        given = min(over, max(0, fitted[i] - NARROWEST))
        fitted[i] -= given
        over -= given
    return fitted


def display_width(text: str) -> int:
    """How many cells of the terminal it takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def cut(text: str, width: int) -> str:
    """At most `width` cells, with an ellipsis where something was left out."""
    if display_width(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += _cells(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + ELLIPSIS if width > 0 else ""


def _cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], paint: Callable[[str], str]) -> str:
    parts = []
    for column, cell, size in zip(columns, row, widths, strict=True):
        text = cut(cell, size)
        padding = " " * (size - display_width(text))
        if column.is_state:
            text = paint(text)
        parts.append(padding + text if column.is_number else text + padding)
    return GAP.join(parts).rstrip()
