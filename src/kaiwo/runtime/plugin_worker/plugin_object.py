"""Make a plugin from what its manifest names: an instance as it is, or a class with its checked configuration."""

import importlib
from typing import Any

import msgspec

from kaiwo.runtime.plugin_worker.messages import Load


def make_plugin(load: Load) -> Any:
    """Import the module and make the object. Raises whatever the plugin's code raises, and ValueError for a
    configuration that its `Config` does not take."""
    module, _, attribute = load.object.partition(":")
    made = getattr(importlib.import_module(module), attribute)
    if not isinstance(made, type):
        return made
    wanted = getattr(made, "Config", None)
    if wanted is not None:
        return made(msgspec.convert(load.config, wanted))  # a ValidationError is a ValueError
    if load.config:
        raise ValueError(f"it takes no configuration, but {', '.join(sorted(load.config))} is configured")
    return made()
