"""Check that a document is plain: mappings, lists, text and numbers, within limits.

After this a reader need not expect excessive depth or size, odd keys, or text that no store accepts.
"""

import math

from kaiwo.manifests.text.field_errors import FieldPath, join, name_type, show
from kaiwo.model.errors import ConfigError

MAX_DEPTH = 64
MAX_VALUES = 100_000
MAX_INTEGER = (1 << 63) - 1

TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep; write it flatter"
TOO_MANY = f"has more than {MAX_VALUES:,} values; split it into several files"
NOT_TEXT_KEY = "is not text; put it in quotes"
NOT_FINITE = "is not a finite number; write a plain number, or put it in quotes if it is text"
TOO_LARGE = f"is too large (the maximum is {MAX_INTEGER}); put it in quotes if it is text"
NO_NUL = "contains a NUL character; remove it"
NOT_UNICODE = "contains half of a surrogate pair; write the whole character"

Path = tuple["Path", str] | None  # made into text only for a message


def check_tree(document: object, owner: str) -> None:
    """Raise a ConfigError for the first value that no manifest may contain."""
    _check(document, owner, None, 1, [0])


def _check(value: object, owner: str, path: Path, depth: int, seen: list[int]) -> None:
    seen[0] += 1
    if seen[0] > MAX_VALUES:
        raise ConfigError(f"{owner} {TOO_MANY}")
    if isinstance(value, dict | list | tuple):
        if depth > MAX_DEPTH:
            raise ConfigError(f"{owner} {TOO_DEEP}")
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise FieldPath(owner, f"the key {show(key)}").error(NOT_TEXT_KEY)
                _check_text(key, owner, (None, "a key"))
                _check(item, owner, (path, key), depth + 1, seen)
        else:
            for index, item in enumerate(value):
                _check(item, owner, (path, f"[{index}]"), depth + 1, seen)
    else:
        _check_scalar(value, owner, path)


def _check_scalar(value: object, owner: str, path: Path) -> None:
    if isinstance(value, str):
        _check_text(value, owner, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _path(owner, path).error(NOT_FINITE)
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise _path(owner, path).error(TOO_LARGE)
    elif value is not None:
        raise _path(owner, path).error(f"is {name_type(value)} of a kind that no manifest holds; write it as text")


def _check_text(text: str, owner: str, path: Path) -> None:
    if "\0" in text:
        raise _path(owner, path).error(NO_NUL)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _path(owner, path).error(NOT_UNICODE) from None


def _path(owner: str, path: Path) -> FieldPath:
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(join([step]))
    return FieldPath(owner, ".".join(reversed(steps)).replace(".[", "[") or "it")
