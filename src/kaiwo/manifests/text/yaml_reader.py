"""Build plain values from a YAML parser's events, so that every error can name its line.

Never: recurses, resolves a tag to code, guesses (octal, sexagesimal and dates stay text), or walks an alias twice.
"""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import yaml

from kaiwo.manifests.text.document_limits import MAX_DEPTH, MAX_INTEGER, NOT_FINITE, NOT_TEXT_KEY, TOO_DEEP, TOO_LARGE
from kaiwo.manifests.text.field_errors import show
from kaiwo.model.errors import ConfigError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq")) | {None, "!"}
_PLAIN_STYLES = (None, "")  # of libyaml, and of the parser written in Python
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **{word: True for name in ("true", "yes", "on") for word in (name, name.capitalize(), name.upper())},
    **{word: False for name in ("false", "no", "off") for word in (name, name.capitalize(), name.upper())},
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
MAX_VALUES = 500_000  # in one text, with aliases expanded: more than a megabyte of plain YAML has
MAX_CHARACTERS = 5_000_000
_MERGE = object()
_NO_KEY = object()


def read_yaml(text: str) -> list[Any]:
    """Every document that is not empty."""
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _malformed(error, builder.document, text) from None
    except yaml.YAMLError as error:
        reason = show(getattr(error, "reason", "") or "it cannot be read")
        raise ConfigError(f"document {builder.document or 1} is not YAML text ({reason}); save it as UTF-8") from None
    return builder.documents


class _Size(NamedTuple):
    """How much was read, with aliases expanded."""

    values: int = 0
    characters: int = 0


@dataclass(slots=True)
class _Open:
    """A mapping or list that has not ended yet."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    start: _Size
    height: int = 1
    key: Any = _NO_KEY
    merged: list[dict[str, Any]] = field(default_factory=list)


class _Builder:
    def __init__(self) -> None:
        self.documents: list[Any] = []
        self.document = 0
        self._size = _Size()
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, _Size, int]] = {}  # value, size, levels

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._take_scalar(event)
            case yaml.AliasEvent():
                self._take_alias(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._take_start(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._take_end(event)
            case yaml.DocumentStartEvent():
                self.document += 1
                self._anchors.clear()

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        self._check_tag(event)
        as_text = event.style not in _PLAIN_STYLES or event.tag == _TAG + "str"
        is_key = self._expects_key()
        if is_key and not as_text and event.value == "<<":
            self._open[-1].key = _MERGE
            return
        value = event.value if as_text else self._resolve(event)
        if is_key and not isinstance(value, str):
            self._fail(event, f"the key {show(event.value)} {NOT_TEXT_KEY}")
        size = _Size(1, len(event.value))
        self._counted(event, size)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, size, 0)
        self._put(value, 0, event)

    def _take_alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            self._fail(event, "an alias has no finished anchor before it; put a text that begins with * into quotes")
        value, size, height = self._anchors[str(event.anchor)]
        self._counted(event, size)
        self._put(value, height, event)

    def _take_start(self, event: yaml.CollectionStartEvent) -> None:
        self._check_tag(event)
        if self._expects_key():
            self._fail(event, f"a mapping or list is used as a key, which {NOT_TEXT_KEY}")
        if len(self._open) >= MAX_DEPTH:
            self._fail(event, f"the document {TOO_DEEP}")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(value, event.anchor, self._size))
        self._counted(event, _Size(1))

    def _take_end(self, event: yaml.CollectionEndEvent) -> None:
        done = self._open.pop()
        for source in done.merged:
            for key, value in source.items():
                done.value.setdefault(key, value)  # type: ignore[union-attr]
        if done.anchor is not None:
            size = _Size(self._size.values - done.start.values, self._size.characters - done.start.characters)
            self._anchors[done.anchor] = (done.value, size, done.height)
        self._put(done.value, done.height, event)

    def _put(self, value: Any, height: int, event: yaml.Event) -> None:
        if not self._open:
            if value is not None:
                self.documents.append(value)
            return
        parent = self._open[-1]
        if len(self._open) + height > MAX_DEPTH:
            self._fail(event, f"the document {TOO_DEEP}")
        parent.height = max(parent.height, height + 1)
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is _NO_KEY:
            if not isinstance(value, str):
                self._fail(event, f"a key {NOT_TEXT_KEY}")
            if value in parent.value:
                self._fail(event, f"the key {show(value)} appears twice in one mapping; keep one of the two")
            parent.key = value
        elif parent.key is _MERGE:
            self._merge(parent, value, event)
            parent.key = _NO_KEY
        else:
            parent.value[parent.key] = value
            parent.key = _NO_KEY

    def _merge(self, parent: _Open, value: Any, event: yaml.Event) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            self._fail(event, "'<<' takes a mapping or a list of mappings; give it an alias of one")
        self._counted(event, _Size(sum(map(len, sources))))
        parent.merged += sources

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is _NO_KEY

    def _resolve(self, event: yaml.ScalarEvent) -> Any:
        text: str = event.value
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
            digits = text.replace("_", "")
            if len(digits) > 20 or abs(int(digits, 0)) > MAX_INTEGER:
                self._fail(event, f"the number here {TOO_LARGE}")
            return int(digits, 0)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self._fail(event, f"the value here {NOT_FINITE}")
            return number
        if _NOT_FINITE.fullmatch(text):
            self._fail(event, f"the value here {NOT_FINITE}")
        return text

    def _check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag not in _PLAIN_TAGS:
            self._fail(event, "a tag is not allowed; put a text that begins with ! into quotes")

    def _counted(self, event: yaml.Event, more: _Size) -> None:
        self._size = _Size(self._size.values + more.values, self._size.characters + more.characters)
        if self._size.values > MAX_VALUES or self._size.characters > MAX_CHARACTERS:
            limits = f"more than {MAX_VALUES:,} values or {MAX_CHARACTERS:,} characters"
            self._fail(event, f"the text holds {limits}, aliases expanded; split it")

    def _fail(self, event: yaml.Event, sentence: str) -> NoReturn:
        line = event.start_mark.line + 1 if event.start_mark else 1
        raise ConfigError(f"document {self.document}, line {line}: {sentence}", f"line {line}")


def _malformed(error: yaml.MarkedYAMLError, document: int, text: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    written = "".join(text.splitlines()[line - 1 : line])
    indent = written[: len(written) - len(written.lstrip())]
    if "\t" in indent or "\t" in written[: mark.column + 1 if mark else 0]:
        way_out = "there is a tab where spaces must be; indent with spaces"
    else:
        started = error.context_mark.line + 1 if error.context and error.context_mark else line
        since = f", {error.context} that starts on line {started}" if started != line else ""
        way_out = f"the YAML is malformed ({error.problem}{since}); check the indentation, colons, quotes and brackets"
    return ConfigError(f"document {document or 1}, line {line}: {way_out}", f"line {line}")
