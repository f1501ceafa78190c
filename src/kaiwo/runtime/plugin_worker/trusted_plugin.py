"""Load a plugin into the scheduler's own process, because an administrator trusts it. Nothing limits it there."""

import importlib
import sys
from typing import Any

from kaiwo.model.errors import PluginError
from kaiwo.plugins.contract import Plugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.plugin_object import make_plugin


def load_trusted(load: Load, version: str) -> Plugin:
    """Import it from its staged files; modules of an earlier version of it are forgotten."""
    package = load.object.partition(":")[0].partition(".")[0]
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        if name == package and not _is_staged(sys.modules[name]):
            raise PluginError(f"its package '{package}' has the name of another module; rename it")
        del sys.modules[name]
    sys.path.insert(0, load.folder)
    importlib.invalidate_caches()
    try:
        plugin = make_plugin(load)
        plugin.name, plugin.version = load.name, version
    except Exception as error:  # foreign code may raise anything; the plugin is refused with these words
        raise PluginError(f"loading it raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(load.folder)
    found: Plugin = plugin
    return found


def _is_staged(module: Any) -> bool:
    return "/plugins/" in (getattr(module, "__file__", "") or "")
