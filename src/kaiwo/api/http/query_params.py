"""Declare and read query parameters, also for the OpenAPI document, and the page cursors that `after` takes.

In:    a query string and the parameters that a route takes.   Out: typed values, by name.
An unknown parameter is refused.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import QueryParams

from kaiwo.api.http.problems import did_you_mean, invalid, quote

LABEL_PATTERN = r"^[^=,]+=[^,]*$"
TEXT_MAX = 500
T = TypeVar("T")


class Param(msgspec.Struct, frozen=True):
    """One parameter. `kind`: int | text | flag | words (repeatable) | choice | choices (repeatable, or with commas)."""

    name: str
    kind: str
    help: str
    default: Any = None
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    pattern: str = ""
    required: bool = False
    example: str = ""  # a valid value, for error messages

    def schema(self) -> dict[str, Any]:
        match self.kind:
            case "int":
                return {"type": "integer", "minimum": self.low, "maximum": self.high, "default": self.default}
            case "flag":
                return {"type": "boolean", "default": bool(self.default)}
            case "choice":
                chosen = {"default": self.default} if self.default is not None else {}
                return {"type": "string", "enum": list(self.choices), **chosen}
            case "choices":
                one = "|".join(self.choices)
                return {"type": "array", "items": {"type": "string", "pattern": f"^({one})(,({one}))*$"}}
            case "words":
                return {"type": "array", "maxItems": 20, "items": self._text()}
            case _:
                return self._text()

    def read(self, values: Sequence[str]) -> Any:
        """Raises a Problem when the value is invalid."""
        if self.kind in ("words", "choices"):
            return tuple(dict.fromkeys(each for value in values for each in self._read_many(value)))
        if len(values) > 1:
            raise invalid(f"{self.name} was given {len(values)} times; give it once", self.name)
        return self._read_one(values[0])

    def _read_many(self, value: str) -> list[str]:
        parts = value.split(",") if self.kind == "choices" else [value]
        for part in parts:
            self._check_choice(part) if self.kind == "choices" else self._check_text(part)
        return parts

    def _read_one(self, value: str) -> Any:
        match self.kind:
            case "int":
                return self._read_int(value)
            case "flag":
                if value not in ("true", "false"):
                    raise invalid(f"{self.name} must be true or false, not {quote(value)}", self.name)
                return value == "true"
            case "choice":
                self._check_choice(value)
                return value
            case _:
                self._check_text(value)
                return value

    def _read_int(self, value: str) -> int:
        number = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None
        if number is None or not self.low <= number <= self.high:
            raise invalid(
                f"{self.name} must be a whole number from {self.low} to {self.high}, not {quote(value)}", self.name
            )
        return number

    def _check_choice(self, value: str) -> None:
        if value not in self.choices:
            raise invalid(f"{self.name} has no value {quote(value)}{did_you_mean(value, self.choices)}", self.name)

    def _check_text(self, value: str) -> None:
        if not value:
            raise invalid(f"{self.name} is empty; give it a value or leave it out", self.name)
        if len(value) > TEXT_MAX or "\x00" in value:
            raise invalid(f"{self.name} must be at most {TEXT_MAX} characters of plain text", self.name)
        if self.pattern and not re.search(self.pattern, value):
            raise invalid(f"{self.name} must look like {self.example}, not {quote(value)}", self.name)

    def _text(self) -> dict[str, Any]:
        pattern = {"pattern": self.pattern} if self.pattern else {}
        return {"type": "string", "minLength": 1, "maxLength": TEXT_MAX, **pattern}


def read_query(given: QueryParams, params: Sequence[Param]) -> dict[str, Any]:
    known = {param.name: param for param in params}
    for name in given:
        if name not in known:
            if not known:
                raise invalid(f"this address takes no query parameters; remove {quote(name)}", name[:100])
            raise invalid(f"there is no query parameter {quote(name)}{did_you_mean(name, known)}", name[:100])
    values: dict[str, Any] = {}
    for name, param in known.items():
        found = given.getlist(name)
        if found:
            values[name] = param.read(found)
        elif param.required:
            raise invalid(f"{name} is missing; it can be {', '.join(param.choices)}", name)
        else:
            values[name] = () if param.kind in ("words", "choices") else param.default
    return values


def label_pairs(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, _, value in (word.partition("=") for word in values))


def write_cursor(position: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


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
