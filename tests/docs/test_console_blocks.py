"""What the pages show is what happens: every console block is typed at a real Kaiwo."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.console_blocks import Terminal, agrees, script
from tests.docs.markdown import blocks

TYPED = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "quick-start",
            "daily-work",
            "fairness",
            "reservations",
            "topology",
            "levels",
            "recovery",
            "simulate",
            "what-if",
            "defragmentation",
            "placement",
        )
    ),
]
# On a busy machine the first look may come before the first cycle; a reader types more slowly.
LOOKS, LOOK_AGAIN_S = ("kaiwo status", "kaiwo get ", "kaiwo why ", "kaiwo queue"), 20.0


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(page: Path, terminal: Terminal) -> None:
    for typed in script(page):
        got, code = terminal.type(typed.command)
        deadline_s = time.monotonic() + LOOK_AGAIN_S
        while typed.command.startswith(LOOKS) and not agrees(typed.expected, got) and time.monotonic() < deadline_s:
            time.sleep(0.2)
            got, code = terminal.type(typed.command)
        assert "Traceback" not in got, f"{typed.place}: {got}"
        assert code == 0, f"{typed.place}: `{typed.command}` ended with exit code {code}:\n{got}"
        shown = "\n".join(typed.expected)
        assert agrees(typed.expected, got), f"{typed.place}: `{typed.command}` says\n{got}\nthe page says\n{shown}"


def test_the_example_plugin_does_what_its_page_says() -> None:
    page = ROOT / "docs" / "plugins.md"
    code = "\n".join(block.text for block in blocks(page, "python"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (expected,) = blocks(page, "text")
    assert done.stdout.strip() == expected.text.strip()


def test_only_pages_that_are_typed_have_console_blocks() -> None:
    """A block that looks like a terminal and is never run would rot."""
    others = [page for page in (ROOT / "docs").rglob("*.md") if page not in TYPED and blocks(page, "console")]
    assert others == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (["a  b"], "a b\n"),
        (["...", "last"], "first\nsecond\nlast\n"),
        (["first", "..."], "first\n"),
        (["on node-... of it"], "on node-17 of it\n"),
        (["x 3s y"], "x 14m y"),
        (["x 3 s y"], "x 2 min y"),
        (["x 3 s"], "x 1 h 5 min"),
        (["at http://127.0.0.1:7600"], "at http://127.0.0.1:41234"),
        (["took 3 ms"], "took 12.5 ms\n\n"),
    ],
)
def test_what_may_differ_agrees(expected: list[str], got: str) -> None:
    assert agrees(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [(["a"], "b\n"), (["a"], "a\nb\n"), (["a", "b"], "a\n"), (["  a"], "a\n"), ([], "a\n"), (["3 GPUs"], "4 GPUs\n")],
)
def test_what_must_not_differ_does_not_agree(expected: list[str], got: str) -> None:
    assert not agrees(expected, got)
