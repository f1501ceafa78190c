"""What the verbs of `kaiwo simulate` share: lists of seeds and policies, and the progress bar."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kaiwo.model.errors import ConfigError

INTERRUPTED = 130  # what a shell expects after Ctrl-C
BAR_WIDTH = 30
MOST_SEEDS = 1_000
TRACES = ("traces", "shared/traces")  # where traces usually are, here or in a folder above


def data_option(trace: str, files: str) -> Callable[[Any], Any]:
    """`--data DIR`: the folder of a trace. Without it, the trace is looked for where traces usually are."""

    def folder(_: click.Context, __: click.Parameter, given: str) -> Path:
        return Path(given) if given else find_trace(trace, Path.cwd())

    words = f"{files} (default: {TRACES[0]}/{trace}, here or in a folder above)."
    return click.option("--data", metavar="DIR", default="", callback=folder, help=words)


def find_trace(trace: str, start: Path) -> Path:
    for folder in (start, *start.parents):
        for place in TRACES:
            if (folder / place / trace).is_dir():
                return folder / place / trace
    raise ConfigError(f"there is no {TRACES[0]}/{trace} here or in a folder above; name the trace's folder with --data")


def seed_numbers(text: str, option: str = "--seeds") -> list[int]:
    """`42-46` or `42,45`, each once, in order."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"{option} is '{text}'; write a range such as 42-46, or a list such as 42,45")
        begin, end = int(first), int(last or first)
        if end < begin or end - begin >= MOST_SEEDS:
            raise ConfigError(
                f"{option} has the range {part.strip()}; it must go up, over at most {MOST_SEEDS:,} numbers"
            )
        found += range(begin, end + 1)
    return list(dict.fromkeys(found))


def names_in(text: str, option: str) -> list[str]:
    """`a,b`, each once, in order."""
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise ConfigError(f"{option} is '{text}'; write names with commas between them")
    return list(dict.fromkeys(found))


def check_variant(folder: Path, variant: str) -> None:
    """A sentence before any process starts."""
    from kaiwo.simulate.openb_trace import variants_in

    known = variants_in(folder) if folder.is_dir() else []
    if folder.is_dir() and variant not in known:
        there = f"there are: {', '.join(known)}" if known else "it has no openb_pod_list_*.csv at all"
        raise ConfigError(f"{folder} has no variant '{variant}'; {there}")


class ProgressBar:
    """One line on a terminal's stderr; nothing elsewhere."""

    def __init__(self, runs: int) -> None:
        self._runs, self._is_shown = runs, sys.stderr.isatty()
        self._parts: dict[int, float] = {}

    def show(self, run: int, part: float) -> None:
        self._parts[run] = part
        if self._is_shown:
            done = sum(self._parts.values()) / self._runs
            click.echo(f"\r{bar_text(done)} {done:4.0%}", nl=False, err=True)

    def clear(self) -> None:
        if self._is_shown:
            click.echo("\r" + " " * (BAR_WIDTH + 8) + "\r", nl=False, err=True)


def bar_text(done: float) -> str:
    filled = round(BAR_WIDTH * done)
    return "[" + "#" * filled + "." * (BAR_WIDTH - filled) + "]"
