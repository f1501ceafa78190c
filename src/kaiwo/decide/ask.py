"""Ask a plugin, and set aside one that raises or returns nonsense.

A fault ends the attempt at this cycle: `decide` starts it anew without the plugin, so that no half of a plan was
made with it and half without, and the plan says so.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kaiwo.snapshot.arrays import IntArray


class PluginFaultError(Exception):
    """A plugin broke its contract."""

    def __init__(self, plugin: str, detail: str) -> None:
        super().__init__(f"{plugin}: {detail}")
        self.plugin, self.detail = plugin, detail


def ask(name: str, point: Callable[..., Any], size: int, *arguments: Any) -> IntArray:
    """The plugin's answer: an array of integers or booleans, one for each thing it was asked about."""
    try:
        answer = point(*arguments)
    except Exception as error:  # a stranger's code may raise anything; it is reported in the plan's notes
        raise PluginFaultError(name, f"raised {type(error).__name__}: {error}") from error
    if not isinstance(answer, np.ndarray) or answer.shape != (size,) or answer.dtype.kind not in "ib":
        found = f"{answer.dtype} {answer.shape}" if isinstance(answer, np.ndarray) else type(answer).__name__
        raise PluginFaultError(name, f"returned {found} where {size} integers were due")
    return answer
