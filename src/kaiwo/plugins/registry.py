"""The one door through which every plugin comes in, ours and strangers'.

In:    plugin objects.   Out: the plugins that are active under a policy, by point.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kaiwo.model.errors import PluginError
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import Allocation, Filter, Plugin, QueueOrder, Score, WorkloadOrder

LAST = 2**62
POINTS = (Filter, Score, QueueOrder, WorkloadOrder, Allocation)


@dataclass(frozen=True, slots=True)
class Active:
    """The plugins of one cycle, by point, in the order in which they are asked."""

    static_filters: tuple[Filter, ...]  # asked again only when a node is redefined
    free_filters: tuple[Filter, ...]  # asked again whenever a node is touched
    scores: tuple[tuple[Score, int], ...]  # with their weights
    queue_orders: tuple[QueueOrder, ...]
    allocation: Allocation
    token: tuple[tuple[str, str, int], ...]  # name, version, weight: what cached results depend on

    @property
    def filters(self) -> tuple[Filter, ...]:
        """All of them."""
        return self.static_filters + self.free_filters

    def without(self, name: str) -> "Active":
        """The same without one that misbehaved."""
        if name == self.allocation.name:
            raise PluginError(f"the allocation strategy '{name}' failed and nothing can stand in for it")
        return Active(
            tuple(p for p in self.static_filters if p.name != name),
            tuple(p for p in self.free_filters if p.name != name),
            tuple((p, weight) for p, weight in self.scores if p.name != name),
            tuple(p for p in self.queue_orders if p.name != name),
            self.allocation,
            tuple(entry for entry in self.token if entry[0] != name),
        )


class Registry:
    """Plugins by name, in the order in which they came in."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._plugins: dict[str, Plugin] = {}
        self._orders: list[WorkloadOrder] = []
        self.faults: dict[str, str] = {}  # order plugins that misbehaved, and the last thing they did
        self._last: tuple[Policy, Active] | None = None  # an idle cycle must not pay for asking who serves what
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: Plugin) -> None:
        """Take a plugin in, or say why not."""
        name = getattr(plugin, "name", "")
        if not isinstance(plugin, Plugin) or not name:
            raise PluginError(f"{type(plugin).__name__} is not a plugin: give it a `name` and a `version`")
        if name in self._plugins:
            raise PluginError(f"plugin '{name}' is registered already; rename one of them")
        if not any(isinstance(plugin, point) for point in POINTS):
            raise PluginError(f"plugin '{name}' serves no point; give it one of: {', '.join(_methods())}")
        self._plugins[name] = plugin
        self._changed()

    def remove(self, name: str) -> None:
        """Let a plugin go."""
        if self._plugins.pop(name, None) is None:
            raise PluginError(f"there is no plugin '{name}' to remove")
        self._changed()

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """Name and version of every plugin: what a journal entry carries."""
        return tuple(sorted((plugin.name, plugin.version) for plugin in self._plugins.values()))

    def active(self, policy: Policy) -> Active:
        """The plugins that a policy lets work."""
        if self._last is None or self._last[0] != policy:
            self._last = (policy, self._chosen(policy))
        return self._last[1]

    def _chosen(self, policy: Policy) -> Active:
        unknown = (set(policy.disabled_plugins) | set(policy.score_weights)) - set(self._plugins)
        if unknown:
            raise PluginError(f"the policy names unknown plugins: {', '.join(sorted(unknown))}")
        on = [plugin for name, plugin in self._plugins.items() if name not in policy.disabled_plugins]
        weighted = [(p, policy.score_weights.get(p.name, _weight(p, policy))) for p in on if isinstance(p, Score)]
        scores = tuple((plugin, weight) for plugin, weight in weighted if weight)
        weights = {plugin.name: weight for plugin, weight in scores}
        return Active(
            tuple(p for p in on if isinstance(p, Filter) and p.is_static),
            tuple(p for p in on if isinstance(p, Filter) and not p.is_static),
            scores,
            tuple(p for p in on if isinstance(p, QueueOrder)),
            self._allocation(policy.gpu_strategy),
            tuple((p.name, p.version, weights.get(p.name, 0)) for p in on),
        )

    def workload_order(self, workload: Workload) -> tuple[tuple[int, ...], ...]:
        """Where a workload stands: the keys of every order plugin, one after the other."""
        return tuple(self._order_by(plugin, workload) for plugin in self._orders)

    def _order_by(self, plugin: WorkloadOrder, workload: Workload) -> tuple[int, ...]:
        """A plugin that raises or returns nonsense puts this workload last by its own word, and is reported."""
        try:
            key = plugin.workload_order(workload)
            if isinstance(key, tuple) and all(isinstance(part, int) for part in key):
                return key
            detail = f"returned {key!r} where a tuple of integers was due"
        except Exception as error:  # a stranger's code may raise anything; the next plan's notes say so
            detail = f"raised {type(error).__name__}: {error}"
        self.faults[plugin.name] = f"{workload.name}: {detail}"
        return (LAST,)

    def _changed(self) -> None:
        self._last = None
        self._orders = [plugin for plugin in self._plugins.values() if isinstance(plugin, WorkloadOrder)]

    def _allocation(self, name: str) -> Allocation:
        found = self._plugins.get(name)
        if not isinstance(found, Allocation):
            known = sorted(n for n, p in self._plugins.items() if isinstance(p, Allocation))
            raise PluginError(f"the policy's gpu_strategy '{name}' is unknown; choose one of: {', '.join(known)}")
        return found


def _weight(plugin: Score, policy: Policy) -> int:
    """A score's own weight; those that pull towards one way of placing are silent under the other."""
    only = getattr(plugin, "placement", policy.placement)
    return plugin.weight if only == policy.placement else 0


def _methods() -> list[str]:
    return ["filter", "score", "queue_order", "workload_order", "allocation"]
