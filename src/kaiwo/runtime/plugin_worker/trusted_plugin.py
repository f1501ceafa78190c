"""Load a plugin into the scheduler's own process, because an administrator trusts it. Nothing limits it there."""

import importlib
import re
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from kaiwo.model.errors import ConfigError, PluginError
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.guarded_calls import MAX_DETAIL, one_line, words_of
from kaiwo.plugins.registry import POINTS
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.plugin_object import make_plugin
from kaiwo.runtime.plugin_worker.worker_process import CallCosts

LATE = 5  # deadlines that a call may take in all; of the processor it may take one


def load_trusted(
    load: Load, version: str, costs: CallCosts, deadline_ms: int, on_fault: Callable[[str], None]
) -> Plugin:
    """Import it from its staged files; modules of an earlier version of it are forgotten.

    Nothing can stop a call inside the scheduler. One that takes too long is reported, so that it is the last.
    """
    package = load.object.partition(":")[0].partition(".")[0]
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        if name == package and not _is_of(load, sys.modules[name]):
            raise PluginError(f"its package '{package}' has the name of another module or plugin's package; rename it")
        del sys.modules[name]
    sys.path.insert(0, load.folder)
    importlib.invalidate_caches()
    try:
        with np.errstate():
            plugin = make_plugin(load)
        plugin.name, plugin.version = load.name, version
        for point in POINTS:
            if callable(method := getattr(plugin, point, None)):
                setattr(plugin, point, _measured(method, costs, deadline_ms, on_fault))
    except ConfigError as error:
        raise PluginError(f"it {error}") from error
    except (Exception, SystemExit) as error:  # foreign code may raise anything; the plugin is refused with these words
        raise PluginError(f"loading it {one_line(words_of(error), MAX_DETAIL)}") from error
    finally:
        sys.path.remove(load.folder)
    found: Plugin = plugin
    return found


def _measured(
    method: Callable[..., Any], costs: CallCosts, deadline_ms: int, on_fault: Callable[[str], None]
) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any) -> Any:
        began_ns, began_busy_ns = time.perf_counter_ns(), time.thread_time_ns()
        try:
            with np.errstate():  # what it sets of NumPy must not make the scheduler's own arithmetic raise
                return method(*arguments)
        finally:
            took_ns, busy_ns = time.perf_counter_ns() - began_ns, time.thread_time_ns() - began_busy_ns
            costs.add(took_ns // 1000)
            if busy_ns > deadline_ms * 1_000_000 or took_ns > LATE * deadline_ms * 1_000_000:
                on_fault(f"took {took_ns // 1_000_000} ms for one answer; {deadline_ms} ms is the most")

    return call


def _is_of(load: Load, module: Any) -> bool:
    """Whether the module was staged for this plugin: its files are below plugins/NAME-HASH."""
    return any(
        folder.parent.name == "plugins" and re.fullmatch(f"{load.name}-[0-9a-f]{{12}}", folder.name)
        for folder in Path(getattr(module, "__file__", None) or "").parents
    )
