"""The one door through which every plugin comes in, ours and strangers'.

In:    plugin objects.   Out: the plugins that are active under a policy, by point.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kaiwo.model.digest import digest
from kaiwo.model.errors import PluginError
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.plugins.contract import Allocation, Filter, Plugin, QueueOrder, Score, WorkloadOrder
from kaiwo.plugins.ordering import Ordering

POINTS = (Filter, Score, QueueOrder, WorkloadOrder, Allocation)


@dataclass(frozen=True, slots=True)
class Active:
    """The plugins of one cycle, by point, in the order in which they are asked."""

    static_filters: tuple[Filter, ...]  # asked again only when a node is redefined
    free_filters: tuple[Filter, ...]  # asked again whenever a node is touched
    scores: tuple[tuple[Score, int], ...]  # with their weights
    queue_orders: tuple[QueueOrder, ...]
    allocation: Allocation
    fallback: Allocation  # takes over when the chosen strategy misbehaves
    token: tuple[tuple[str, str, int], ...]  # name, version, weight: what cached results depend on
    static_fields: tuple[str, ...] | None  # what the static filters look at in a request; None: anything
    rules: str  # a digest of the policy and the plugins

    @property
    def filters(self) -> tuple[Filter, ...]:
        """All of them."""
        return self.static_filters + self.free_filters

    def static_key(self, want: Request) -> Any:
        """Requests with equal keys get equal answers from the static filters."""
        if self.static_fields is None:
            return want
        return tuple([getattr(want, name) for name in self.static_fields])

    def without(self, name: str) -> "Active":
        """The same without one that misbehaved."""
        static = tuple(p for p in self.static_filters if p.name != name)
        return replace(
            self,
            static_filters=static,
            free_filters=tuple(p for p in self.free_filters if p.name != name),
            scores=tuple((p, weight) for p, weight in self.scores if p.name != name),
            queue_orders=tuple(p for p in self.queue_orders if p.name != name),
            allocation=self.fallback if name == self.allocation.name else self.allocation,
            token=tuple(entry for entry in self.token if entry[0] != name),
            static_fields=_fields(static),
        )


class Registry:
    """Plugins by name, in the order in which they came in. `fallback` stands in for a strategy that misbehaves."""

    def __init__(self, plugins: Iterable[Plugin] = (), fallback: Allocation | None = None) -> None:
        self._plugins: dict[str, Plugin] = {}
        self._fallback = fallback
        self._known: list[tuple[Policy, Active]] = []  # an idle cycle must not pay for asking who serves what
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
        self._known = []

    def remove(self, name: str) -> None:
        """Let a plugin go."""
        if self._plugins.pop(name, None) is None:
            raise PluginError(f"there is no plugin '{name}' to remove")
        self._known = []

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """Name and version of every plugin: what a journal entry carries."""
        return tuple(sorted((plugin.name, plugin.version) for plugin in self._plugins.values()))

    def active(self, policy: Policy) -> Active:
        """The plugins that a policy lets work."""
        for known, active in self._known:
            if known == policy:
                return active
        chosen = self._chosen(policy)
        self._known = [(policy, chosen), *self._known[:3]]
        return chosen

    def ordering(self, policy: Policy) -> Ordering:
        """Where workloads stand in their queues, by the orders that a policy lets work."""
        plain = msgspec.structs.replace(policy, steps=1)  # the budget changes no order
        return Ordering(tuple(p for p in self._on(policy) if isinstance(p, WorkloadOrder)), plain)

    def _chosen(self, policy: Policy) -> Active:
        unknown = (set(policy.disabled_plugins) | set(policy.score_weights)) - set(self._plugins)
        if unknown:
            raise PluginError(f"the policy names unknown plugins: {', '.join(sorted(unknown))}")
        on = self._on(policy)
        weighted = [(p, policy.score_weights.get(p.name, _weight(p, policy))) for p in on if isinstance(p, Score)]
        scores = tuple((plugin, weight) for plugin, weight in weighted if weight)
        weights = {plugin.name: weight for plugin, weight in scores}
        static = tuple(p for p in on if isinstance(p, Filter) and p.is_static)
        allocation = self._allocation(policy.gpu_strategy)
        token = tuple((p.name, p.version, weights.get(p.name, 0)) for p in on)
        return Active(
            static,
            tuple(p for p in on if isinstance(p, Filter) and not p.is_static),
            scores,
            tuple(p for p in on if isinstance(p, QueueOrder)),
            allocation,
            self._fallback or allocation,
            token,
            _fields(static),
            _rules(policy, token),
        )

    def _on(self, policy: Policy) -> list[Plugin]:
        return [plugin for name, plugin in self._plugins.items() if name not in policy.disabled_plugins]

    def _allocation(self, name: str) -> Allocation:
        found = self._plugins.get(name)
        if not isinstance(found, Allocation):
            known = sorted(n for n, p in self._plugins.items() if isinstance(p, Allocation))
            raise PluginError(f"the policy's gpu_strategy '{name}' is unknown; choose one of: {', '.join(known)}")
        return found


def _fields(filters: tuple[Filter, ...]) -> tuple[str, ...] | None:
    """What these filters say that they look at; None when one of them does not say."""
    named = [getattr(plugin, "depends_on", None) for plugin in filters]
    if any(fields is None for fields in named):
        return None
    return tuple(sorted({name for fields in named if fields for name in fields}))


def _rules(policy: Policy, token: tuple[tuple[str, str, int], ...]) -> str:
    """The budget changes from cycle to cycle and changes no rule."""
    return digest((msgspec.structs.replace(policy, steps=1), token))


def _weight(plugin: Score, policy: Policy) -> int:
    """A score's own weight; those that pull towards one way of placing are silent under the other."""
    only = getattr(plugin, "placement", policy.placement)
    return plugin.weight if only == policy.placement else 0


def _methods() -> list[str]:
    return ["filter", "score", "queue_order", "workload_order", "allocation"]
