"""One record of the audit as a line of JSON, and the hash that chains it to the record before it.

A line is the record's JSON with its own SHA-256 as the last field. The hash covers all bytes before it, and among them
the hash of the record before.
"""

import datetime
import hashlib
from typing import Any

import msgspec

NO_HASH = "0" * 64  # before the first record, where there was no earlier audit file
MAX_VALUE_BYTES = 4000  # of an old or a new value; of a longer one the beginning and the hash are kept
MAX_TEXT = 1000
_HASH_FIELD = b',"hash":"'
_SUFFIX_BYTES = len(_HASH_FIELD) + 64 + len(b'"}')

# What people and the scheduler do, and how it ended.
BEGUN, DONE, REFUSED, FAILED = "begun", "done", "refused", "failed"


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One write. `object`: its kind and name, such as `node/node-3`."""

    action: str
    object: str = ""
    person: str = ""
    role: str = ""
    credential: str = ""  # how the person proved who they are; never a secret
    old: Any = None
    new: Any = None
    reason: str = ""  # as the person gave it, or as the scheduler has it
    outcome: str = DONE
    detail: str = ""  # why it was refused or failed
    of: int = 0  # the record that says that this write began


class AuditRecord(AuditEntry, frozen=True, omit_defaults=True, kw_only=True):
    n: int  # 1, 2, 3, ...
    prev: str  # hash of the record before
    at: str  # UTC


class ChainLink(msgspec.Struct, frozen=True):
    """What the chain needs to know of a line."""

    n: int
    prev: str
    hash: str = ""
    action: str = ""
    new: Any = None


_decode_record = msgspec.json.Decoder(AuditRecord).decode
_decode_link = msgspec.json.Decoder(ChainLink).decode


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def encode_line(entry: AuditEntry, n: int, prev: str, at: str) -> tuple[bytes, str]:
    """The line without its newline, and its hash."""
    try:
        text = msgspec.json.encode(entry)
    except (TypeError, ValueError, OverflowError):  # text that is not Unicode, a number over 64 bits
        text = b""
    if not text or len(text) > MAX_VALUE_BYTES:  # rare: most entries have a few hundred bytes
        text = msgspec.json.encode(_bounded_entry(entry))
    body = b'{"n":%d,"prev":"%s","at":"%s",%s' % (n, prev.encode(), at.encode(), text[1:])
    digest = hashlib.sha256(body).hexdigest()
    return b"".join((body[:-1], _HASH_FIELD, digest.encode(), b'"}')), digest


def _bounded_entry(entry: AuditEntry) -> AuditEntry:
    given = {name: getattr(entry, name) for name in AuditEntry.__struct_fields__}
    given["old"], given["new"] = bounded(entry.old), bounded(entry.new)
    for name in ("action", "object", "person", "role", "credential", "reason", "outcome", "detail"):
        given[name] = _printable(given[name])
    return AuditEntry(**given)


def read_link(line: bytes) -> ChainLink | None:
    """None: the line is not a whole record, or its bytes do not have the hash that it names."""
    body = line[:-_SUFFIX_BYTES] + b"}"
    given = line[-_SUFFIX_BYTES:]
    digest = hashlib.sha256(body).hexdigest()
    if given != b"".join((_HASH_FIELD, digest.encode(), b'"}')):
        return None
    try:
        link = _decode_link(line)
    except (msgspec.DecodeError, ValueError):
        return None
    return link if link.n > 0 else None


def read_record(line: bytes) -> AuditRecord | None:
    try:
        return _decode_record(line)
    except (msgspec.DecodeError, ValueError):
        return None


def bounded(value: Any) -> Any:
    """A large value as its beginning, its size and its hash."""
    if value is None or isinstance(value, bool | int):
        return value
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):  # text that is not Unicode, a number over 64 bits
        return {"unencodable": ascii(value)[:MAX_TEXT]}
    if len(text) <= MAX_VALUE_BYTES:
        return value
    start = text[:MAX_TEXT].decode(errors="replace")
    return {"begins": start, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}


def _printable(text: str) -> str:
    """Text that a client sent may hold anything, also what no encoding can write."""
    if text.isascii() and len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()
