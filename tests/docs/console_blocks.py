"""Type what a page shows, and compare what comes back with what the page says.

A `console` block is run: a line that begins with `$ ` is typed, the lines below it are what must come back. A line
`...` stands for any lines, `...` inside a line for any text. Widths, ages, milliseconds and ports may differ. All
blocks of a page share one shell, one folder (the checkout) and one home; other blocks are shown and not run.

`kaiwo up` is started beside the shell, on any free port and with eight virtual nodes whatever the machine has.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT
from tests.docs.markdown import Block, blocks
from tests.waiting import PATIENCE_S

BIN = Path(sys.executable).parent
LAST_WORDS = "Ctrl-C stops Kaiwo"


class Typed(NamedTuple):
    """One command of a page, and what the page says comes back."""

    command: str
    expected: list[str]
    place: str


def commands(block: Block) -> list[Typed]:
    """What a block types."""
    found: list[Typed] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if line.startswith("$ "):
            found.append(Typed(line[2:], [], f"{block.page.relative_to(ROOT)}:{number}"))
        else:
            assert found, f"{block.place}: a console block begins with a line that begins with '$ '"
            found[-1].expected.append(line)
    return found


def script(page: Path) -> list[Typed]:
    """All that a page types."""
    return [typed for block in blocks(page, "console") for typed in commands(block)]


def agrees(expected: list[str], got: str) -> bool:
    """What came back is what the page says."""
    parts = [r"(?:.*\n)*?" if line.strip() == "..." else _loose(line) + r"\n" for line in _trimmed(expected)]
    text = "".join(line + "\n" for line in map(_plain, _trimmed(got.splitlines())))
    return re.fullmatch("".join(parts), text) is not None


def _trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _loose(line: str) -> str:
    return r".*?".join(re.escape(part) for part in _plain(line).split("..."))


def _plain(line: str) -> str:
    """The line without what differs from run to run: widths, ages, milliseconds, ports."""
    line = re.sub(r"(127\.0\.0\.1):\d+", r"\1:PORT", line.rstrip())
    line = re.sub(r"\b\d+(?:\.\d+)? ms\b", "MS", line)
    line = re.sub(r"(?<= )\d+(?:[smhd]| (?:s|min|h|d))(?: \d+ (?:s|min|h))?(?= |$)", "AGE", line)
    indent = len(line) - len(line.lstrip())
    return line[:indent] + " ".join(line.split())


class Terminal:
    """A shell, and the Kaiwo that was started beside it."""

    def __init__(self, folder: Path) -> None:
        home = folder / ".local" / "share" / "kaiwo"
        self.env = {**os.environ, "HOME": str(folder), "KAIWO_HOME": str(home), "NO_COLOR": "1"}
        self.env["PATH"] = f"{BIN}{os.pathsep}{self.env['PATH']}"
        for name in ("KAIWO_SERVER", "KAIWO_TOKEN", "XDG_DATA_HOME"):
            self.env.pop(name, None)
        self.ups: list[subprocess.Popen[str]] = []
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            env=self.env,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, command: str) -> tuple[str, int]:
        """What comes back, and the exit code."""
        if command.startswith("kaiwo up"):
            return self._start(shlex.split(command)[2:]), 0
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f'{{ {command}\n}} </dev/null\necho "@@ $?"\n')
        self.shell.stdin.flush()
        lines: list[str] = []
        while not (found := re.search(r"@@ (\d+)$", line := self.shell.stdout.readline())):
            assert line, f"the shell ended over: {command}"
            lines.append(line)
        return "".join(lines) + line[: found.start()], int(found[1])

    def _start(self, flags: list[str]) -> str:
        for up in self.ups:
            up.wait(PATIENCE_S)  # a page that starts a second one has ended the first
        up = subprocess.Popen(
            [BIN / "kaiwo", "up", *flags, "--port", "0", "--nodes", "8"],
            env=self.env,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.ups.append(up)
        assert up.stdout is not None
        lines = [up.stdout.readline()]
        while lines[-1] and not lines[-1].startswith(LAST_WORDS):
            lines.append(up.stdout.readline())
        return "".join(lines)

    def close(self) -> None:
        """Leave nothing running."""
        self.shell.kill()
        self.shell.communicate()
        living = "waiting,held,starting,running,stopping"
        kaiwo = [str(BIN / "kaiwo")]
        names = [*kaiwo, "get", "workloads", "--state", living, "-o", "name", "--limit", "0"]
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            left = subprocess.run(names, env=self.env, capture_output=True, text=True, check=False).stdout.split()
            if not left:
                break
            subprocess.run([*kaiwo, "cancel", *left], env=self.env, capture_output=True, check=False)
        for up in self.ups:
            up.terminate()
            up.communicate(timeout=PATIENCE_S)
