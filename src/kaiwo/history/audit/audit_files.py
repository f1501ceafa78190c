"""The files of the audit: numbered segments, and the head, which says how far the records must reach.

KAIWO_HOME/audit/00000001.jsonl, ...   lines of JSON, only ever appended to
KAIWO_HOME/audit/head                  number and hash of the last record, so that a missing end is noticed
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kaiwo.history.audit.audit_record import NO_HASH

FOLDER = "audit"
HEAD_BYTES = 512  # one sector, written at once
_SUFFIX = ".jsonl"
_EARLIER = ("audit.jsonl.1", "audit.jsonl")  # the audit of versions without a chain, beside the folder


class AuditHead(msgspec.Struct, frozen=True):
    count: int = 0  # number of the last record
    hash: str = NO_HASH  # of the last record
    first: int = 1  # number of the first record that is kept
    before: str = NO_HASH  # hash of the record before that one
    synced: int = 0  # up to this record everything was flushed to the disk
    boot: str = ""  # of the machine, when the head was last written


def segment_path(folder: Path, sequence: int) -> Path:
    return folder / f"{sequence:08d}{_SUFFIX}"


def segments(folder: Path) -> list[int]:
    """Numbers of the segments, the oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 8 and stem.isascii() and stem.isdigit())


def read_head(folder: Path) -> AuditHead | None:
    """None: it is missing or cannot be read."""
    try:
        with (folder / "head").open("rb") as file:
            content = file.read(HEAD_BYTES + 1)
        if len(content) != HEAD_BYTES or content[-1:] != b"\n":
            return None
        head = msgspec.json.decode(content.partition(b" ")[0], type=AuditHead)
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    return head if encode_head(head) == content else None


def encode_head(head: AuditHead) -> bytes:
    """With a hash of its own, and filled up with blanks."""
    body = msgspec.json.encode(head)
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"".join((body, b" ", digest)).ljust(HEAD_BYTES - 1) + b"\n"


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines with their newlines. A last line without one is incomplete."""
    with path.open("rb") as file:
        yield from file


def earlier_hash(home: Path) -> tuple[str, list[str]]:
    """The hash over the audit files of earlier versions, and their names; the chain begins with it."""
    digest, names = hashlib.sha256(), []
    for name in _EARLIER:
        path = home / name
        if path.is_file():
            names.append(name)
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return (digest.hexdigest(), names) if names else (NO_HASH, [])


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
