"""Lay out a table so that no line is wider than the terminal.

Never: drops a column silently: cut text ends in an ellipsis, and prose that does not fit is printed below its row.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from kaiwo.cli.output.formatting import one_line

GAP = "  "
ELLIPSIS = "…"
SHORT_WIDTH = 12  # a column is not cut below this
PROSE_INDENT = "    "  # indent of prose below its row
MIN_PROSE_WIDTH = 6  # a prose column this narrow still shows a node name such as node-7


class Column(msgspec.Struct, frozen=True):
    """A title and how to get its text from an item; `now` is the cluster's time."""

    title: str
    text: Callable[[Any, float], str]
    is_number: bool = False  # right-aligned
    is_wide: bool = False  # only with -o wide
    is_roomy: bool = False  # of those, also on a terminal that has room for it
    is_state: bool = False  # may be coloured
    min_width: int = 24  # a narrower column is hard to read
    is_prose: bool = False  # the last column: a sentence, which is never cut


def text_columns(titles: Sequence[str], numbers: Collection[str] = ()) -> list[Column]:
    """Columns for rows that are text already; those in `numbers` are right-aligned."""
    return [Column(title, lambda *_: "", is_number=title in numbers) for title in titles]


def lay_out(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int = 0,
    titles: bool = True,
    paint: Callable[[str], str] = str,
) -> list[str]:
    """The table as lines. `width` 0: unlimited. `paint` may colour the cells of state columns."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    # A column without any text, such as NOTES or REASON, is left out.
    used = [i for i in range(len(columns)) if not cells or any(row[i] for row in cells)]
    columns = [columns[i] for i in used]
    cells = [[row[i] for i in used] for row in cells]
    if titles:
        cells.insert(0, [column.title for column in columns])
    if not cells or not columns:
        return [""] * len(cells)
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(columns))]
    if not width:
        return [_row_line(columns, row, widths, paint) for row in cells]
    below: list[str] = [""] * len(cells)
    if len(columns) > 1 and columns[-1].is_prose and _total_width(widths) > width:
        columns, cells, widths, below = _move_below(columns, cells, widths, width, titles)
    lines = _row_lines(columns, cells, shrink_widths(columns, widths, width), width, titles, paint)
    return [line for head, text in zip(lines, below, strict=True) for line in (head, *fold(text, width, PROSE_INDENT))]


def natural_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """The width of the table if nothing is cut or moved."""
    cells = [[column.title for column in columns], *rows]
    return _total_width([max(display_width(row[i]) for row in cells) for i in range(len(columns))])


def shrink_widths(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Narrow the columns from the right: first to a readable width, then to a short one.

    The first column is the name, which people type: it is cut only if the state would not be visible otherwise.
    """
    fitted = list(widths)
    for floors in (
        [column.min_width for column in columns],
        [columns[0].min_width, *[SHORT_WIDTH] * (len(fitted) - 1)],
    ):
        for i in range(len(fitted) - 1, -1, -1):
            if not (columns[i].is_number or columns[i].is_state):
                fitted[i] -= min(max(0, _total_width(fitted) - width), max(0, fitted[i] - floors[i]))
    last_state = max((i for i, column in enumerate(columns) if column.is_state), default=0)
    over = _total_width(fitted[: last_state + 1]) + 1 - width
    fitted[0] -= min(max(0, over), max(0, fitted[0] - SHORT_WIDTH))
    fitted[0] = min(fitted[0], max(0, width - 1))
    return fitted


def visible_columns(widths: Sequence[int], width: int) -> int:
    """How many columns fit; if not all do, one cell stays free for the ellipsis."""
    if _total_width(widths) <= width:
        return len(widths)
    shown = len(widths)
    while shown and _total_width(widths[:shown]) + 1 > width:
        shown -= 1
    return shown


def fold(text: str, width: int, indent: str = "") -> list[str]:
    """Fold text into lines of at most `width` cells; a word longer than a line is broken."""
    room = max(1, width - len(indent))
    lines: list[str] = []
    for word in text.split():
        if lines and display_width(lines[-1]) + 1 + display_width(word) <= room:
            lines[-1] += f" {word}"
            continue
        lines.append("")
        for char in word:
            if lines[-1] and display_width(lines[-1] + char) > room:
                lines.append("")
            lines[-1] += char
    return [cut(indent + line, width) for line in lines]


def display_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def cut(text: str, width: int) -> str:
    """Cut the text to `width` cells, with an ellipsis at the cut."""
    if display_width(text) <= width:
        return text
    shown, used = "", 0
    for char in text:
        used += _char_width(char)
        if used > width - 1:
            break
        shown += char
    return shown + ELLIPSIS if width > 0 else ""


def _move_below(
    columns: Sequence[Column], cells: list[list[str]], widths: list[int], width: int, titles: bool
) -> tuple[Sequence[Column], list[list[str]], list[int], list[str]]:
    """Move prose that does not fit in the last column below its row; short texts stay."""
    title = display_width(columns[-1].title)
    others = shrink_widths(columns[:-1], widths[:-1], width - len(GAP) - title)
    room = width - _total_width(others) - len(GAP)
    has_column = room >= min(title, MIN_PROSE_WIDTH)
    stays = [(titles and i == 0) or (has_column and display_width(row[-1]) <= room) for i, row in enumerate(cells)]
    below = ["" if fits else row[-1] for row, fits in zip(cells, stays, strict=True)]
    if not has_column:
        return columns[:-1], [row[:-1] for row in cells], widths[:-1], below
    left = [[*row[:-1], row[-1] if fits else ""] for row, fits in zip(cells, stays, strict=True)]
    return columns, left, [*others, room], below


def _row_lines(
    columns: Sequence[Column],
    cells: list[list[str]],
    widths: Sequence[int],
    width: int,
    titles: bool,
    paint: Callable[[str], str],
) -> list[str]:
    """One line for each row. An ellipsis at the end of the titles stands for columns that do not fit."""
    shown = visible_columns(widths, width)
    is_all = shown == len(columns)
    edge = " " if shown and _total_width(widths[:shown]) + 2 <= width else ""
    lines: list[str] = []
    for i, row in enumerate(cells):
        hints = not is_all and (i == 0 or not titles)
        line = _row_line(columns[:shown], row[:shown], widths[:shown], paint, hints)
        lines.append(line + edge + ELLIPSIS if hints else line)
    return lines


def _char_width(char: str) -> int:
    import unicodedata  # only what is not ASCII needs it

    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _row_line(
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
