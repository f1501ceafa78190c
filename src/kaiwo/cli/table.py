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
SHORT = 12  # a column is not cut below this


class Column(msgspec.Struct, frozen=True):
    """A title and how to get its text from an item; `now` is the cluster's time."""

    title: str
    text: Callable[[Any, float], str]
    is_number: bool = False  # right-aligned
    is_wide: bool = False  # only with -o wide
    is_state: bool = False  # may be coloured
    least: int = 24  # below this many cells it is hard to read


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
    if not width:
        return [_line(columns, row, widths, paint) for row in cells]
    widths = shrink(columns, widths, width)
    shown = visible(widths, width)
    is_all = shown == len(columns)
    lines = [_line(columns[:shown], row[:shown], widths[:shown], paint, not is_all) for row in cells]
    if is_all:
        return lines
    # Columns that do not fit at all are hinted at by an ellipsis at the edge.
    edge = " " if shown and _total(widths[:shown]) + 2 <= width else ""
    return [line + edge + ELLIPSIS for line in lines]


def shrink(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Take from the right columns first: words down to a readable length, then down to a short one."""
    fitted = list(widths)
    for least in ([column.least for column in columns], [SHORT] * len(fitted)):
        for i in range(len(fitted) - 1, -1, -1):
            if not (columns[i].is_number or columns[i].is_state):
                fitted[i] -= min(max(0, _total(fitted) - width), max(0, fitted[i] - least[i]))
    if fitted:
        fitted[0] = min(fitted[0], max(0, width - 1))
    return fitted


def visible(widths: Sequence[int], width: int) -> int:
    """How many columns fit; when not all do, a cell is kept free for the ellipsis."""
    if _total(widths) <= width:
        return len(widths)
    shown = len(widths)
    while shown and _total(widths[:shown]) + 1 > width:
        shown -= 1
    return shown


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


def _line(
    columns: Sequence[Column],
    row: Sequence[str],
    widths: Sequence[int],
    paint: Callable[[str], str],
    is_padded: bool = False,
) -> str:
    parts = []
    for column, cell, size in zip(columns, row, widths, strict=True):
        text = cut(cell, size)
        padding = " " * (size - display_width(text))
        if column.is_state:
            text = paint(text)
        parts.append(padding + text if column.is_number else text + padding)
    line = GAP.join(parts)
    return line if is_padded else line.rstrip()
