"""Print JSON, YAML, and text wrapped and coloured for the terminal.

Colour only repeats what the text says. Pipes, NO_COLOR and dumb terminals get none.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.workloads import ObstacleView
from kaiwo.cli.output.formatting import one_line, one_of

if TYPE_CHECKING:
    from kaiwo.cli.output.table_layout import Column

FORMATS = ("table", "wide", "json", "yaml", "name")
_COLOURS = {
    "running": 32, "succeeded": 32, "ready": 32, "ok": 32, "free": 32, "healthy": 32,
    "waiting": 33, "starting": 33, "stopping": 33, "held": 33, "cordoned": 33, "warn": 33, "shared": 33,
    "degraded": 33,
    "failed": 31, "not-ready": 31, "unhealthy": 31, "fail": 31,
    "cancelled": 90,
}  # fmt: skip


def output_option(*formats: str) -> Callable[[Any], Any]:
    """`-o`, with the first of the formats as the default."""
    names = formats or FORMATS
    text = f"Output format: {one_of(names)}."
    return click.option("-o", "--output", type=click.Choice(names), default=names[0], metavar="FORMAT", help=text)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def has_colour() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """0 for a pipe, which gets unwrapped lines."""
    return terminal_size()[0] if is_terminal() else 0


def terminal_size() -> tuple[int, int]:
    """Columns and lines. Not shutil's: importing that costs 5 ms."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        columns, lines = 0, 0
    return columns or 80, lines or 24


def paint_state(word: str) -> str:
    code = _COLOURS.get(word)
    return f"\x1b[{code}m{word}\x1b[0m" if code and has_colour() else word


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if has_colour() else text


def print_body(body: bytes, output: str) -> None:
    """The API's JSON, indented, or as YAML."""
    import msgspec

    if output == "yaml":
        print_data(msgspec.json.decode(body), output)
    else:
        click.echo(msgspec.json.format(body, indent=2).decode())


def print_data(data: Any, output: str) -> None:
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10_000), nl=False)
    else:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def print_documents(documents: Sequence[Any]) -> None:
    """Print manifests as one YAML file."""
    import yaml

    click.echo(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=10_000), nl=False)


def print_document(data: Any, output: str) -> None:
    """Print one of many documents: as one line of JSON, or as a YAML document."""
    import msgspec

    if output == "yaml":
        click.echo("---")
        print_data(msgspec.to_builtins(data), output)
    else:
        click.echo(msgspec.json.encode(data))
    sys.stdout.flush()


def print_outcome(body: bytes, outcome: Outcome, output: str = "table") -> None:
    """Print what a change did; warnings go to stderr."""
    if output in ("json", "yaml"):
        print_body(body, output)
        return
    for line in outcome.names if output == "name" else outcome.done:
        click.echo(line)
    for line in outcome.would if output == "table" else ():
        click.echo(wrap(line))
    for warning in outcome.warnings:
        hint(f"warning: {warning}")


def hint(text: str) -> None:
    """Print a hint on stderr, wrapped unless it has several lines."""
    click.echo(text if "\n" in text else wrap(text), err=True)


def wrap(text: str, indent: str = "", hanging: str | None = None) -> str:
    """Wrap text to the terminal's width; `hanging` indents all lines but the first."""
    import textwrap

    text, width = one_line(text), terminal_width()
    if not width:
        return indent + text
    rest = indent if hanging is None else hanging
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def wrap_command(command: str, indent: str = "") -> str:
    """Wrap a shell command with backslashes, so that it can still be copied."""
    width = terminal_width()
    if not width or len(indent + command) <= width:
        return indent + command
    lines: list[str] = []
    for part in command.replace(" && ", " &&\n").split("\n"):
        line = indent
        for word in part.split(" "):
            if line.strip() and len(line) + len(word) + len("  \\") > width:
                lines.append(line + " \\")
                line = indent + "  "
            line += word if not line.strip() else f" {word}"
        lines.append(line)
    return "\n".join(lines)


def print_obstacles(obstacles: Sequence[ObstacleView]) -> None:
    """Each with its remedy; the sentence has the numbers."""
    for obstacle in obstacles:
        click.echo(wrap(obstacle.sentence, "- ", "  "))
        if obstacle.remedy:
            click.echo(wrap(f"remedy: {obstacle.remedy}", "    "))


def print_table(columns: "Sequence[Column]", rows: Sequence[Sequence[str]], indent: str = "") -> None:
    from kaiwo.cli.output.table_layout import lay_out

    for line in lay_out(columns, rows, terminal_width(), paint=paint_state):
        click.echo(indent + line)


def as_sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def print_facts(*facts: tuple[str, str]) -> None:
    """Print aligned `name:   value` lines, without those whose value is empty."""
    shown = [(name, value) for name, value in facts if value]
    size = max((len(name) for name, _ in shown), default=0) + 3
    for name, value in shown:
        text = wrap(value, f"{name + ':':<{size}}", " " * size)
        if name == "state":
            word = value.partition(":")[0]
            text = text.replace(word, paint_state(word), 1)
        click.echo(text)
