"""Read our own pages: fenced blocks, tables, headings and links.

In:    a Markdown file.   Out: its parts, each with the line where it begins.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)
_FENCE = re.compile(r"\s*```(\S*)\s*$")
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_IMAGE = re.compile(r'!\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"')


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    language: str
    text: str
    line: int  # of its first line of text

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """The page's fenced blocks, in order; only those of these languages, if any are named."""
    found: list[Block] = []
    fence: tuple[str, int] | None = None
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        match = _FENCE.match(line)
        if match and fence is None:
            fence = (match[1], number + 1)
        elif match and fence is not None:
            found.append(Block(page, fence[0], "\n".join(lines[fence[1] - 1 : number - 1]), fence[1]))
            fence = None
    assert fence is None, f"{page}: the block that begins in line {fence and fence[1]} has no end"
    return [block for block in found if not languages or block.language in languages]


def prose(page: Path) -> list[str]:
    """The lines outside of fenced blocks."""
    kept, is_code = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            kept.append(line)
    return kept


def table(page: Path, first_title: str) -> list[list[str]]:
    """The rows of the page's tables whose first column has this title, without the code marks."""
    rows: list[list[str]] = []
    is_inside = False
    for line in prose(page):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] == first_title:
            is_inside = True
        elif not cells:
            is_inside = False
        elif is_inside and not set(line) <= set("|-: "):
            rows.append(cells)
    assert rows, f"{page} has no table with the first column {first_title!r}"
    return rows


def code_words(cell: str) -> list[str]:
    """What stands between code marks on one line."""
    return re.findall(r"`([^`\n]+)`", cell)


def page_code_words(page: Path) -> list[str]:
    """What stands between code marks anywhere outside of the page's fenced blocks, even where a line ends inside."""
    paragraphs = [" ".join(text.split()) for text in re.split(r"\n\s*\n", "\n".join(prose(page)))]
    odd = [text for text in paragraphs if text.count("`") % 2]
    assert not odd, f"{page}: a code mark is missing in: {odd[0]}"
    return [word for text in paragraphs for word in code_words(text)]


def links(page: Path) -> Iterator[str]:
    """Where the page's links lead."""
    for line in prose(page):
        yield from _LINK.findall(re.sub(r"`[^`]*`", "", line))


def images(page: Path) -> Iterator[str]:
    """The page's pictures."""
    for line in prose(page):
        yield from (one or other for one, other in _IMAGE.findall(line))


def anchors(page: Path) -> set[str]:
    """What a link can name after '#': the headings, as GitHub writes them."""
    titles = [line.lstrip("#").strip() for line in prose(page) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
