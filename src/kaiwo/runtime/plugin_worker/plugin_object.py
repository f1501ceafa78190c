"""Make a plugin from what its manifest names: an instance as it is, or a class with its checked configuration."""

import importlib
from typing import Any

import msgspec

from kaiwo.model.digest import digest
from kaiwo.model.errors import ConfigError, PluginError
from kaiwo.plugins.contract import Plugin
from kaiwo.runtime.plugin_worker.messages import Load


def make_plugin(load: Load) -> Any:
    """Import the module and make the object. Raises whatever the plugin's code raises, and ConfigError for a
    configuration that its `Config` does not take, which says what the plugin does."""
    module, _, attribute = load.object.partition(":")
    made = getattr(importlib.import_module(module), attribute)
    if not isinstance(made, type):
        return made
    return configured(made, load.config)


def make_own(plugin: type, config: dict[str, Any]) -> Plugin:
    """One of Kaiwo's own that an administrator switched on. Raises PluginError for a wrong configuration."""
    try:
        made: Plugin = configured(plugin, config)
    except (ConfigError, ValueError) as error:
        raise PluginError(f"it {error}") from error
    if config:
        made.version = f"{made.version}+{digest(config)[:8]}"
    return made


def configured(plugin: type, config: dict[str, Any]) -> Any:
    wanted = getattr(plugin, "Config", None)
    if wanted is None:
        if config:
            raise ConfigError(f"takes no configuration, but {', '.join(sorted(config))} is configured")
        return plugin()
    try:
        checked = msgspec.convert(config, wanted)
    except msgspec.ValidationError as error:
        fields = ", ".join(getattr(wanted, "__struct_encode_fields__", ()))
        known = f"; its fields are: {fields}" if fields else ""
        raise ConfigError(f"does not take its configuration: {error}{known}") from error
    return plugin(checked)
