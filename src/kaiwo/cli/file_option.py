"""The -f option: read one or more YAML files, or stdin for `-`. The server parses the YAML."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from kaiwo.model.errors import ConfigError

MOST_BYTES = 16 * 1024 * 1024


def file_option(required: bool) -> Callable[[Any], Any]:
    return click.option(
        "-f", "--file", "files", multiple=True, required=required, metavar="FILE",
        type=click.Path(allow_dash=True), help="YAML file, or - for stdin. Repeatable.",
    )  # fmt: skip


def read_files(files: Sequence[str]) -> bytes:
    """All files joined into one stream of documents, so that the server applies all of them or none."""
    texts = [_read_file(path) for path in files]
    return texts[0] if len(texts) == 1 else b"\n---\n".join(texts)


def _read_file(path: str) -> bytes:
    named = "stdin" if path == "-" else path
    try:
        if path == "-":
            text = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); check -f") from None
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{named} is larger than {MOST_BYTES // 1024 // 1024} MiB; split it")
    if not text.strip():
        raise ConfigError(f"{named} is empty; it should contain YAML documents")
    return text
