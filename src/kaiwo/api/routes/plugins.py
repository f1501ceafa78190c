"""Routes that list plugins, and enable, disable and reload those that did not come with Kaiwo."""

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.views.answers import Page
from kaiwo.api.views.plugins import PluginView
from kaiwo.runtime.plugin_worker.plugin_set import PluginStatus

ONE = "/plugins/{name}"


async def list_plugins(call: EndpointCall) -> Page[PluginView]:
    items = [_view(status) for status in call.context.plugins.statuses()]
    return Page(items, len(items))


async def get_plugin(call: EndpointCall) -> PluginView:
    return _view(call.context.plugins.status(call.path["name"]))


async def enable_plugin(call: EndpointCall) -> PluginView:
    return await _change(call, "enable")


async def disable_plugin(call: EndpointCall) -> PluginView:
    return await _change(call, "disable")


async def reload_plugin(call: EndpointCall) -> PluginView:
    return await _change(call, "reload")


async def _change(call: EndpointCall, action: str) -> PluginView:
    name, plugins = call.path["name"], call.context.plugins
    change = {"enable": plugins.enable, "disable": plugins.disable, "reload": plugins.reload}[action]
    before = plugins.find(name)  # None: it may be new in the file, which the change reads again
    after = await change(name, call.context.live.ask)
    call.trail.changed(f"plugin/{name}", _audited(before) if before else None, _audited(after))
    return _view(after)


def _audited(status: PluginStatus) -> dict[str, str]:
    """What an administrator changes; not the counters."""
    return {"state": status.state, "version": status.version, "sha256": status.sha256}


def _view(status: PluginStatus) -> PluginView:
    return msgspec.convert(msgspec.to_builtins(status), PluginView)


ROUTES = (
    Route("GET", "/plugins", "The plugins: where they come from, what they cost, and how they failed.", list_plugins,
          Page[PluginView], needs_state=False),
    Route("GET", ONE, "One plugin.", get_plugin, PluginView, needs_state=False, errors=(404,)),
    Route("POST", ONE + "/enable", "Start it.", enable_plugin, PluginView, errors=(404,)),
    Route("POST", ONE + "/disable", "Stop it, until it is enabled or Kaiwo restarts.", disable_plugin, PluginView,
          errors=(404,)),
    Route("POST", ONE + "/reload", "Read the list of allowed plugins and its files again, and start it.", reload_plugin,
          PluginView, errors=(404,)),
)  # fmt: skip
