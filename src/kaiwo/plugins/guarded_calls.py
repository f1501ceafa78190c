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
MAX_ORDER = 64  # integers of one queue or workload: the scheduler compares them one by one
PLAIN = frozenset((int, bool))  # not their subclasses: their own code would run in every comparison


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


def words_of(error: BaseException) -> str:
    """What it says of itself; a stranger's exception may raise once more when it is asked."""
    try:
        return f"raised {type(error).__name__}: {error}"
    except BaseException:
        return f"raised {type(error).__name__}, which has no words"


def _kind_of(answer: Any) -> str:
    """For people. Subclasses of arrays are none: their own code would run wherever the answer is used."""
    return f"{answer.dtype} {answer.shape}" if type(answer) is np.ndarray else type(answer).__name__


def call_plugin(name: str, point: Callable[..., Any], size: int, *arguments: Any) -> IntArray:
    """An array of integers or booleans, one for each node or device."""
    answer = _answer(name, point, arguments)
    if type(answer) is not np.ndarray or answer.shape != (size,) or answer.dtype.kind not in "ib":
        raise PluginFaultError(name, f"returned {_kind_of(answer)}; expected {size} integers")
    return answer


def call_score(name: str, point: Callable[..., Any], size: int, *arguments: Any) -> IntArray:
    """Scores within their range: beyond it, weighted sums could overflow 64 bits, and narrow integers sooner."""
    answer = call_plugin(name, point, size, *arguments).astype(np.int64, copy=False)
    if size and not _is_in_range(answer):
        raise PluginFaultError(name, f"scored {answer.min()} to {answer.max()}; expected 0 to {TOP_SCORE}")
    return answer


def _is_in_range(scores: IntArray) -> bool:
    if scores.dtype == np.int64:  # nearly always: negative ones are far above as unsigned numbers
        return bool(np.maximum.reduce(scores.view(np.uint64)) <= TOP_SCORE)
    return bool(scores.min() >= 0 and scores.max() <= TOP_SCORE)


def call_for_int(name: str, point: Callable[..., Any], *arguments: Any) -> int:
    answer = _answer(name, point, arguments)
    if not isinstance(answer, (int, np.integer, np.bool_)):
        raise PluginFaultError(name, f"returned {_kind_of(answer)}; expected one integer")
    return int(answer)


def call_for_rows(name: str, point: Callable[..., Any], size: int, *arguments: Any) -> list[tuple[int, ...]]:
    return rows_of(name, _answer(name, point, arguments), size)


def rows_of(name: str, answer: Any, size: int) -> list[tuple[int, ...]]:
    """The same of an answer that is there."""
    is_array = type(answer) is np.ndarray and answer.dtype.kind in "ib" and answer.ndim in (1, 2)
    if not is_array or len(answer) != size or not 0 < answer.size <= size * MAX_ORDER:
        rows = f"rows of at most {MAX_ORDER} integers"
        raise PluginFaultError(name, f"returned {_kind_of(answer)}; expected {size} integers or {rows}")
    return [tuple(row) for row in answer.reshape(size, -1).tolist()]


def call_for_row(name: str, point: Callable[..., Any], *arguments: Any) -> tuple[int, ...]:
    answer = _answer(name, point, arguments)
    if type(answer) is tuple and len(answer) <= MAX_ORDER and PLAIN.issuperset(map(type, answer)):
        return answer
    if type(answer) in PLAIN:
        return (answer,)
    raise PluginFaultError(name, f"returned {_kind_of(answer)}; expected one integer or a tuple of integers")


def call_for_array(name: str, point: Callable[..., Any], *arguments: Any) -> IntArray:
    """An array of integers of any length."""
    answer = _answer(name, point, arguments)
    if type(answer) is not np.ndarray or answer.dtype.kind != "i":
        raise PluginFaultError(name, f"returned {_kind_of(answer)}; expected integers")
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
        raise PluginFaultError(name, words_of(error)) from error
