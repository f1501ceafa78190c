"""Look at a plugin at the door: what it says of itself must be of the right kind before anything rests on it.

In:    any object.   Out: nothing, or one PluginError that names the plugin, the fact and the way out.
"""

from collections.abc import Collection

from kaiwo.model.errors import PluginError
from kaiwo.model.reason import Reason
from kaiwo.model.request import Request
from kaiwo.plugins.contract import TOP_WEIGHT, Plugin

POINTS = ("filter", "score", "queue_order", "workload_order", "allocation")  # methods of the contract
PLACEMENTS = ("pack", "spread")
_BESIDE = {"filter": ("reason", "is_static"), "score": ("weight",)}
_OPTIONAL = ("applies", "queue_order_of")  # methods, where they are there


def check_plugin(plugin: Plugin) -> frozenset[str]:
    """It has a name and a version, serves a point, and what it says of itself makes sense. Returns its points."""
    name = getattr(plugin, "name", "")
    if not isinstance(plugin, Plugin) or not name:
        raise PluginError(f"{type(plugin).__name__} is not a plugin: give it a `name` and a `version`")
    for field in ("name", "version"):
        value = getattr(plugin, field)
        if not isinstance(value, str) or not value:
            raise _wrong(plugin, field, 'must be text, such as "1"')
    served = [method for method in POINTS if callable(getattr(plugin, method, None))]
    if not served:
        raise PluginError(f"plugin '{name}' serves no point; give it one of: {', '.join(POINTS)}")
    for method in served:
        for field in _BESIDE.get(method, ()):
            if not hasattr(plugin, field):
                raise PluginError(f"plugin '{name}' has `{method}` and no `{field}`; give it one")
    _check_values(plugin, served)
    return frozenset(served)


def _check_values(plugin: Plugin, served: Collection[str]) -> None:
    if "score" in served and not _is_weight(getattr(plugin, "weight", None)):
        raise _wrong(plugin, "weight", f"must be a whole number from 0 to {TOP_WEIGHT:,}")
    if "filter" in served and not isinstance(getattr(plugin, "reason", None), Reason):
        raise _wrong(plugin, "reason", "must be one of kaiwo.model.reason.Reason, such as Reason.PLUGIN")
    if "filter" in served and not isinstance(getattr(plugin, "is_static", None), bool):
        raise _wrong(plugin, "is_static", "must be True or False")
    if getattr(plugin, "placement", "pack") not in PLACEMENTS:
        raise _wrong(plugin, "placement", f"must be {' or '.join(PLACEMENTS)}, or left out")
    for method in _OPTIONAL:
        if hasattr(plugin, method) and not callable(getattr(plugin, method)):
            raise _wrong(plugin, method, "must be a method, or left out")
    known = Request.__struct_fields__
    looks_at = getattr(plugin, "depends_on", ())
    if not isinstance(looks_at, tuple) or not all(field in known for field in looks_at):
        raise _wrong(plugin, "depends_on", f"must be a tuple of the request's fields: {', '.join(known)}")


def _is_weight(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TOP_WEIGHT


def _wrong(plugin: Plugin, field: str, rule: str) -> PluginError:
    return PluginError(f"`{field}` of plugin '{plugin.name}' is {getattr(plugin, field)!r:.60}; it {rule}")
