"""Read a mapping field by field; each value has the right type, or a ConfigError names the field.

A field that is there but empty (null) counts as absent, as in Kubernetes. A field that was not read is unknown:
`finish` makes an error or a warning of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kaiwo.manifests.text.field_errors import FieldPath, join, name_type, show, suggest
from kaiwo.model.errors import ConfigError

T = TypeVar("T")
MAX_LISTED = 800  # characters of field names in one sentence


class FieldReader:
    """One mapping of one object."""

    def __init__(self, data: Mapping[str, Any], owner: str, warnings: list[str], path: str = "") -> None:
        self.owner = owner
        self.warnings = warnings
        self.prefix = path
        self._data = data
        self._read: set[str] = set()
        self._ignored: dict[str, list[str]] = {}

    def path_of(self, name: str) -> FieldPath:
        return FieldPath(self.owner, f"{self.prefix}.{name}" if self.prefix else name)

    def warn(self, name: str, fact: str) -> None:
        """`fact` continues the field's name."""
        self.warnings.append(self.path_of(name).sentence(fact))

    def has(self, name: str) -> bool:
        """True if the field is there and not empty."""
        return self._data.get(name) is not None

    @property
    def written(self) -> Iterable[str]:
        """Every field that is there, empty or not."""
        return self._data

    def names(self) -> list[str]:
        """Every field that is not empty."""
        return [name for name, value in self._data.items() if value is not None]

    def value(self, name: str) -> Any:
        """The value as it was written; None if absent."""
        self._read.add(name)
        return self._data.get(name)

    def read(self, name: str, reader: Callable[[object, FieldPath], T], default: T) -> T:
        """The value that a reader of `quantities` or `names` makes of it."""
        value = self.value(name)
        return default if value is None else reader(value, self.path_of(name))

    def text(self, name: str, default: str = "") -> str:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.path_of(name).error(f"must be text, not {name_type(value)}; put it in quotes")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.path_of(name).error("must be true or false, without quotes")
        return value

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        value = self.value(name)
        return default if value is None else check_integer(value, self.path_of(name), least, most)

    def choice(self, name: str, options: Iterable[str], default: str = "") -> str:
        value = self.text(name, default)
        if self.has(name) and value not in options:
            raise self.path_of(name).error(f"is {show(value)}; write {', '.join(options)}{suggest(value, options)}")
        return value

    def inner(self, name: str) -> "FieldReader":
        """The mapping below; an empty one when absent."""
        value = self.value(name)
        if value is not None and not isinstance(value, dict):
            raise self.path_of(name).error(f"must be a mapping, not {name_type(value)}; write its fields below it")
        return FieldReader(value or {}, self.owner, self.warnings, self.path_of(name).field)

    def items(self, name: str) -> list["FieldReader"]:
        """The mappings of a list."""
        found = []
        for index, item in enumerate(self._list(name)):
            path = self.path_of(f"{name}[{index}]")
            if not isinstance(item, dict):
                raise path.error(f"must be a mapping, not {name_type(item)}; write its fields below a dash")
            found.append(FieldReader(item, self.owner, self.warnings, path.field))
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts. The values are never shown."""
        found = self._list(name)
        for index, item in enumerate(found):
            if not isinstance(item, str):
                path = self.path_of(f"{name}[{index}]")
                raise path.error(f"must be text, not {name_type(item)}; put it in quotes")
        return tuple(found)

    def text_map(self, name: str) -> dict[str, str]:
        """A mapping from text to text. The values are never shown."""
        inner = self.inner(name)
        return {key: inner.text(key) for key in inner.names()}

    def ignore(self, why: str, *names: str) -> None:
        """Known fields that are not used: one warning for all of them, and only when they are there."""
        self._read.update(names)
        self._ignored.setdefault(why, []).extend(self.path_of(name).field for name in names if self.has(name))

    def skip(self, *names: str) -> None:
        """Known fields that need no warning."""
        self._read.update(names)

    def finish(self, strict: bool = True, known: Iterable[str] = ()) -> None:
        """Warn about ignored fields. An unknown field is an error: a mistyped field must not be lost silently."""
        for why, fields in self._ignored.items():
            if fields:
                self.warnings.append(f"{self.owner}: {join(fields)} {'is' if len(fields) == 1 else 'are'} {why}")
        unknown = [name for name in self._data if name not in self._read and (strict or self.has(name))]
        if unknown and strict:
            raise unknown_field(unknown[0], [*self._read, *known], self.path_of(unknown[0]))
        if unknown:
            hint = suggest(unknown[0], [*self._read, *known]) if len(unknown) == 1 else ""
            fields = [self.path_of(name).field for name in unknown]
            self.warnings.append(f"{self.owner}: unknown and ignored: {join(fields)}{hint}")

    def _list(self, name: str) -> list[Any]:
        value = self.value(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise self.path_of(name).error(f"must be a list, not {name_type(value)}; write [a, b] or one item per dash")
        return list(value)


def check_integer(value: object, path: FieldPath, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise path.error(f"must be a whole number without quotes, not {show(value)}; write {max(least, 1)} or another")
    if not least <= value <= most:
        raise path.error(f"is {value}, but must be {least:,} to {most:,}; write a number in that range")
    return value


def unknown_field(name: str, known: Iterable[str], path: FieldPath) -> ConfigError:
    """The error for an unknown field, with the field that was probably meant."""
    names = sorted(known)
    listed = f"; remove it, or use one of: {', '.join(names)}"
    hint = suggest(name, names) or (listed if len(listed) <= MAX_LISTED else "; remove it")
    return path.error(f"is not a known field{hint}")
