"""Turn text that a person wrote into documents within `document_limits`: YAML, one or many, or JSON.

Never: runs a tag, expands an anchor bomb, or lets a parser's own exception out: each fault is one ConfigError.
"""

import json
import re
from typing import Any

from kaiwo.manifests.text.document_limits import MAX_INTEGER, NOT_FINITE, TOO_DEEP, TOO_LARGE, check_tree
from kaiwo.manifests.text.field_errors import FieldPath, name_type
from kaiwo.model.errors import ConfigError

LIMIT_BYTES = 1_000_000
MAX_TAG_LINES = 16  # the parser's work grows with their square: 70,000 of them take 12 s
_TAG_LINE = re.compile(r"^%TAG", re.MULTILINE)


def read_single(text: str | bytes, where: str, way_out: str, example: str, field: str = "") -> dict[str, Any]:
    """Read a file with one document; an error begins with the file's name."""
    try:
        documents = read_documents(text, example=example)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", error.field) from None
    if len(documents) > 1:
        raise ConfigError(f"{where} has {len(documents)} documents; {way_out}", field)
    return documents[0]


def read_documents(
    text: str | bytes, limit_bytes: int = LIMIT_BYTES, example: str = "name: train"
) -> list[dict[str, Any]]:
    """Every document that is not empty; errors show `example`, a field that a document could have."""
    plain = _decode(text, limit_bytes)
    documents = _try_json(plain) or _read_yaml(plain)
    for number, document in enumerate(documents, start=1):
        owner = f"document {number}"
        if not isinstance(document, dict):
            raise ConfigError(
                f"{owner} is {name_type(document)}, not a mapping; write fields such as `{example}`, one per line",
                owner,
            )
        check_tree(document, owner)
    if not documents:
        raise ConfigError(f"there is no document in it; write at least one, such as `{example}`")
    return documents


def read_values(text: str | bytes, limit_bytes: int = LIMIT_BYTES) -> list[Any]:
    """Every YAML or JSON document, whatever it is: a mapping, a list or a single value."""
    plain = _decode(text, limit_bytes)
    documents = _try_json(plain) or _read_yaml(plain)
    for number, document in enumerate(documents, start=1):
        check_tree(document, f"document {number}")
    return documents


def read_json(text: str | bytes, limit_bytes: int = LIMIT_BYTES) -> dict[str, Any]:
    """The one mapping of a JSON text."""
    try:
        document = _load_json(_decode(text, limit_bytes))
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}"
        raise ConfigError(f"{line} is not JSON ({error.msg}); check the quotes, commas and brackets", line) from None
    if not isinstance(document, dict):
        raise ConfigError(f'the text is {name_type(document)}, not a mapping; write fields in braces: {{"name": "x"}}')
    return document


def _decode(text: str | bytes, limit_bytes: int) -> str:
    size = len(text)
    if size <= limit_bytes and isinstance(text, str):
        size = len(text.encode(errors="replace"))
    if size > limit_bytes:
        fact = f"the text has {size:,} bytes and the maximum is {limit_bytes:,}"
        raise ConfigError(f"{fact}; split it into several files")
    try:
        plain = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        plain.encode()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"line {line} is not UTF-8 text; save the file as UTF-8", f"line {line}") from None
    except UnicodeEncodeError:
        raise ConfigError("the text is not valid Unicode; save the file as UTF-8") from None
    if "\0" in plain:
        line = plain[: plain.index("\0")].count("\n") + 1
        raise ConfigError(f"line {line} contains a NUL byte; give a YAML or JSON file", f"line {line}")
    return plain


def _try_json(text: str) -> list[Any]:
    """The one document of a JSON text; none if it is not JSON, because YAML can then read it or say what is wrong."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return [_load_json(text)]
    except json.JSONDecodeError:
        return []


def _load_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_bounded_integer, parse_constant=_refuse_constant)
    except RecursionError:
        raise ConfigError(f"document 1 {TOO_DEEP}", "document 1") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise FieldPath("", name).error("appears twice in one mapping; keep one of the two")
        found[name] = value
    return found


def _bounded_integer(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > MAX_INTEGER:
        raise FieldPath("document 1", "a number").error(TOO_LARGE)
    return int(digits)


def _refuse_constant(name: str) -> None:
    raise FieldPath("document 1", name).error(NOT_FINITE)


def _read_yaml(text: str) -> list[Any]:
    if len(_TAG_LINE.findall(text)) > MAX_TAG_LINES:
        raise ConfigError(f"the text has more than {MAX_TAG_LINES} %TAG lines; remove them")
    from kaiwo.manifests.text.yaml_reader import read_yaml

    return read_yaml(text)
