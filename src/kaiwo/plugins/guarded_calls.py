"""Call a plugin, and raise PluginFaultError if it raises or returns nonsense.

The arrays that it gets are read-only: a plugin that writes to them raises.
A fault ends this attempt at the cycle. `decide` repeats the cycle without the plugin, so that no plan is made partly
with it, and reports that in the plan's notes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np

from kaiwo.plugins.contract import TOP_SCORE
from kaiwo.snapshot.array_types import IntArray, freeze

T = TypeVar("T")
MAX_DETAIL = 500
_PLAIN = frozenset((int, bool))


class PluginFaultError(Exception):
    """`detail` is one line without control characters: plugins form it, and people read it on a terminal."""

    def __init__(self, plugin: str, detail: str) -> None:
        self.plugin, self.detail = plugin, one_line(detail, MAX_DETAIL)
        super().__init__(f"{plugin}: {self.detail}")


class PluginStoppedError(PluginFaultError):
    """It was stopped on purpose while it was asked: nobody is to blame."""


def one_line(text: str, most: int) -> str:
    """What a plugin said, for people: no line breaks, no escape sequences, and not too long."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text[:most]).split())


def call_plugin(name: str, point: Callable[..., Any], size: int, *arguments: Any) -> IntArray:
    """An array of integers or booleans, one for each node or device."""
    answer = _answer(name, point, arguments)
    if not isinstance(answer, np.ndarray) or answer.shape != (size,) or answer.dtype.kind not in "ib":
        found = f"{answer.dtype} {answer.shape}" if isinstance(answer, np.ndarray) else type(answer).__name__
        raise PluginFaultError(name, f"returned {found}; expected {size} integers")
    return answer


def call_score(name: str, point: Callable[..., Any], size: int, *arguments: Any) -> IntArray:
    """Scores within their range: beyond it, weighted sums could overflow 64 bits."""
    answer = call_plugin(name, point, size, *arguments)
    if size and (answer.min() < 0 or answer.max() > TOP_SCORE):
        raise PluginFaultError(name, f"scored {answer.min()} to {answer.max()}; expected 0 to {TOP_SCORE}")
    return answer


def call_for_int(name: str, point: Callable[..., Any], *arguments: Any) -> int:
    answer = _answer(name, point, arguments)
    if not isinstance(answer, (int, np.integer, np.bool_)):
        raise PluginFaultError(name, f"returned {answer!r}; expected one integer")
    return int(answer)


def call_for_rows(name: str, point: Callable[..., Any], size: int, *arguments: Any) -> list[tuple[int, ...]]:
    answer = _answer(name, point, arguments)
    if not isinstance(answer, np.ndarray) or len(answer) != size or answer.ndim > 2 or answer.dtype.kind not in "ib":
        found = f"{answer.dtype} {answer.shape}" if isinstance(answer, np.ndarray) else type(answer).__name__
        raise PluginFaultError(name, f"returned {found}; expected {size} integers or rows of integers")
    return [tuple(row) for row in answer.reshape(size, -1).tolist()]


def call_for_row(name: str, point: Callable[..., Any], *arguments: Any) -> tuple[int, ...]:
    answer = _answer(name, point, arguments)
    if isinstance(answer, tuple) and _PLAIN.issuperset(map(type, answer)):
        return answer
    if isinstance(answer, int):
        return (answer,)
    raise PluginFaultError(name, f"returned {answer!r}; expected one integer or a tuple of integers")


def call_for_array(name: str, point: Callable[..., Any], *arguments: Any) -> IntArray:
    """An array of integers of any length."""
    answer = _answer(name, point, arguments)
    if not isinstance(answer, np.ndarray) or answer.dtype.kind != "i":
        found = f"{answer.dtype} {answer.shape}" if isinstance(answer, np.ndarray) else type(answer).__name__
        raise PluginFaultError(name, f"returned {found}; expected integers")
    return answer


def call_for_value(name: str, point: Callable[..., Any], wanted: type[T], *arguments: Any) -> T:
    """A plain value of this type, such as a list of verdicts. What comes from another process is converted to it."""
    answer = _answer(name, point, arguments)
    try:
        return msgspec.convert(msgspec.to_builtins(answer), wanted)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PluginFaultError(name, f"returned what was not expected: {error}"[:300]) from error


def _answer(name: str, point: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    for each in arguments:
        if type(each) is np.ndarray:
            freeze(each)
    try:
        return point(*arguments)
    except KeyboardInterrupt:
        raise  # the user pressed Ctrl-C
    except PluginFaultError as fault:  # of a plugin in another process; it speaks for itself only
        raise type(fault)(name, fault.detail) from fault
    except BaseException as error:  # foreign code may raise anything, even SystemExit; the plan's notes report it
        raise PluginFaultError(name, f"raised {type(error).__name__}: {error}") from error
