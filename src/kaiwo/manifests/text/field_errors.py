"""Name a field of a manifest, and say what is wrong with it, as a ConfigError or a warning.

Never: shows a value of `env`, `command` or `args`: they may be secrets.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kaiwo.model.errors import ConfigError

SHOWN = 40  # characters of a value in a message
LISTED = 8  # names in one warning
NAMED = 120  # characters of one name
PATH = 300  # characters of a field's path


class FieldPath(NamedTuple):
    """One field of one object, in the words of the person who wrote it."""

    owner: str  # "Pod 'train'", "document 2"; empty: the field alone is clear
    field: str

    def inner(self, name: str) -> "FieldPath":
        return FieldPath(self.owner, f"{self.field}.{name}")

    def error(self, fact: str) -> ConfigError:
        """`fact` continues the field's name: 'is "1.5", but ...; write ...'."""
        return ConfigError(self.sentence(fact), _cut(self.field, PATH))

    def sentence(self, fact: str) -> str:
        """The same words, for a warning."""
        field = _cut(self.field, PATH) or '""'
        return f"{self.owner}: {field} {fact}" if self.owner else f"{field} {fact}"


def show(value: object) -> str:
    """A value as it was written, cut if it is long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "empty"
    if isinstance(value, str):
        return '"' + _cut(value) + '"'
    if isinstance(value, int | float):
        return _cut(str(value))
    return "a list" if isinstance(value, list | tuple) else "a mapping"


def name_type(value: object) -> str:
    """The type of a value, in plain words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "nothing" if value is None else show(value)


def join(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    every = [_cut(name, NAMED) for name in names]
    more = len(every) - LISTED
    return ", ".join(every[:LISTED]) + (f" and {more} more" if more > 0 else "")


def quote_name(name: str) -> str:
    return f"'{_cut(name, NAMED)}'"


def suggest(name: str, known: Iterable[str]) -> str:
    """'; did you mean gpus?', or nothing when no known name is close."""
    import difflib  # only a mistake pays for it: 4 ms

    wanted = _cut(name).lower()
    by_lower = {option.lower(): option for option in known}
    close = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.65)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _cut(text: str, most: int = SHOWN) -> str:
    printable = "".join(sign if sign.isprintable() else "?" for sign in text[: most + 1])
    return printable if len(printable) <= most else printable[:most] + "..."
