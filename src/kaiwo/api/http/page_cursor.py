"""Cursors of pages: opaque texts that clients pass back in `after`."""

import base64
import binascii
from typing import TypeVar

import msgspec

from kaiwo.api.http.problems import invalid

T = TypeVar("T")


def write_cursor(place: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(word: str | None, kind: type[T]) -> T | None:
    """The position; None: the beginning."""
    if word is None:
        return None
    try:
        content = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(content, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise foreign_cursor() from None


def foreign_cursor() -> Exception:
    """The cursor is not from this API, or belongs to another list."""
    return invalid(
        "after is not the `next` of an earlier page of this list; leave it out to begin at the start", "after"
    )
