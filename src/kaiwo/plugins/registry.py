"""Register plugins, check what they declare, and choose those that a policy enables."""

from collections.abc import Collection, Iterable, Mapping
from operator import is_
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from kaiwo.model.digest import digest
from kaiwo.model.errors import PluginError
from kaiwo.model.network.constraint import CONSOLIDATED, STRATEGIES, plugin_strategy
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import STRATEGY_PLACEMENTS, Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import (
    TOP_WEIGHT,
    Allocation,
    DomainRule,
    Filter,
    GpuScore,
    PlacementStrategy,
    Plugin,
    QueueOrder,
    ReplicaStrategy,
    Score,
    VictimFilter,
    WorkloadOrder,
)
from kaiwo.plugins.guarded_calls import MAX_DETAIL, MAX_ORDER, PLAIN, one_line, words_of
from kaiwo.snapshot.backlog import OrderFault, OrderKeys

LAST = 2**62
# Methods of the contract.
POINTS = (
    "filter", "score", "gpu_score", "queue_order", "workload_order", "victim_filter", "allocation", "domain_rule",
    "placement_strategy", "replica_strategy",
)  # fmt: skip
# Methods that are called outside of cycles: see `edge_contract`.
EDGE_POINTS = (
    "reserve", "permit", "bind", "post_bind", "resource", "topology_source", "metrics", "sink", "notification",
)  # fmt: skip
ALL_POINTS = (*POINTS, *EDGE_POINTS)
PLACEMENTS = ("pack", "spread")
_ATTRIBUTES = {
    "filter": ("reason", "is_static"), "score": ("weight",), "gpu_score": ("weight",),
    "placement_strategy": ("divides_like",),
}  # fmt: skip
_OPTIONAL = ("applies", "is_silent", "gpu_applies", "queue_order_of", "unreserve")  # methods


def is_own(plugin: Plugin) -> bool:
    """Kaiwo's own depend on the node alone, or the state forgets what they answered. Of others nobody knows: they may
    look at the clock, at queues or at other nodes."""
    return type(plugin).__module__.startswith("kaiwo.plugins.builtin.")


def check_plugin(plugin: Plugin) -> frozenset[str]:
    """Raises PluginError when a declared value is wrong. Returns the extension points that it implements."""
    name = getattr(plugin, "name", "")
    if not name or not hasattr(plugin, "version"):
        raise PluginError(f"{type(plugin).__name__} is not a plugin: give it a `name` and a `version`")
    for field in ("name", "version"):
        value = getattr(plugin, field)
        if not isinstance(value, str) or not value:
            raise _wrong(plugin, field, 'must be text, such as "1"')
    served = [method for method in ALL_POINTS if callable(getattr(plugin, method, None))]
    if not served:
        raise PluginError(f"plugin '{name}' implements no extension point; give it one of: {', '.join(ALL_POINTS)}")
    for method in served:
        for field in _ATTRIBUTES.get(method, ()):
            if not hasattr(plugin, field):
                raise PluginError(f"plugin '{name}' has `{method}` and no `{field}`; give it one")
    _check_values(plugin, served)
    return frozenset(served)


def _check_values(plugin: Plugin, served: Collection[str]) -> None:
    weight = getattr(plugin, "weight", None)
    is_weight = isinstance(weight, int) and not isinstance(weight, bool) and 0 <= weight <= TOP_WEIGHT
    if {"score", "gpu_score"} & set(served) and not is_weight:
        raise _wrong(plugin, "weight", f"must be a whole number from 0 to {TOP_WEIGHT:,}")
    if "filter" in served and not isinstance(getattr(plugin, "reason", None), Reason):
        raise _wrong(plugin, "reason", "must be one of kaiwo.model.obstacle.Reason, such as Reason.PLUGIN")
    if "filter" in served and not isinstance(getattr(plugin, "is_static", None), bool):
        raise _wrong(plugin, "is_static", "must be True or False")
    if getattr(plugin, "placement", "pack") not in PLACEMENTS:
        raise _wrong(plugin, "placement", f"must be {' or '.join(PLACEMENTS)}, or left out")
    if "placement_strategy" in served and getattr(plugin, "divides_like", None) not in STRATEGIES:
        raise _wrong(plugin, "divides_like", f"must be one of {', '.join(STRATEGIES)}")
    for method in _OPTIONAL:
        if hasattr(plugin, method) and not callable(getattr(plugin, method)):
            raise _wrong(plugin, method, "must be a method, or left out")
    known = Request.__struct_fields__
    fields = getattr(plugin, "depends_on", ())
    if not isinstance(fields, tuple) or not all(field in known for field in fields):
        raise _wrong(plugin, "depends_on", f"must be a tuple of the request's fields: {', '.join(known)}")


def _wrong(plugin: Plugin, field: str, rule: str) -> PluginError:
    return PluginError(f"`{field}` of plugin '{plugin.name}' is {getattr(plugin, field)!r:.60}; it {rule}")


class Ordering(msgspec.Struct, frozen=True):
    """The order of workloads in their queues: the keys of every order plugin, one after the other."""

    plugins: tuple[WorkloadOrder, ...]
    policy: Policy

    def is_of(self, plugins: tuple[WorkloadOrder, ...]) -> bool:
        """By identity: a plugin that was loaded again may say that it equals the one before."""
        return len(plugins) == len(self.plugins) and all(map(is_, plugins, self.plugins))

    def only(self, names: Collection[str]) -> "Ordering":
        return replace(self, plugins=tuple(each for each in self.plugins if each.name in names))

    def __call__(self, workload: Workload) -> tuple[OrderKeys, tuple[OrderFault, ...]]:
        """A plugin that raises or returns nonsense puts this workload last by its key, and is reported."""
        keys: list[tuple[int, ...]] = []
        faults: list[OrderFault] = []
        for plugin in self.plugins:
            try:
                key = plugin.workload_order(workload, self.policy)
                is_key = type(key) is tuple and len(key) <= MAX_ORDER and PLAIN.issuperset(map(type, key))
                expected = f"a tuple of at most {MAX_ORDER} integers"
                detail = "" if is_key else f"returned {_types(key)} but {expected} was expected"
            except KeyboardInterrupt:
                raise  # the user pressed Ctrl-C
            except BaseException as error:  # foreign code may raise anything; the next plan's notes report it
                key, detail = (), one_line(words_of(error), MAX_DETAIL)
            if detail:
                faults.append(OrderFault(plugin.name, detail))
            keys.append((LAST,) if detail else key)
        return tuple(keys), tuple(faults)


def _types(key: object) -> str:
    """For people: not the values, which may be anything."""
    return f"({', '.join(type(part).__name__ for part in key[:5])})" if type(key) is tuple else type(key).__name__


class StrategyPlugins(NamedTuple):
    """What chooses nodes and devices under one allocation strategy."""

    scores: tuple[tuple[Score, int], ...]
    allocation: Allocation


class ActivePlugins(msgspec.Struct, frozen=True):
    """The plugins of one cycle, by point, in the order in which they are called."""

    static_filters: tuple[Filter, ...]  # called again only when a node is redefined
    free_filters: tuple[Filter, ...]  # called again whenever a node changes
    scores: tuple[tuple[Score, int], ...]  # with their weights
    gpu_scores: tuple[tuple[GpuScore, int], ...]
    queue_orders: tuple[QueueOrder, ...]
    victim_filters: tuple[VictimFilter, ...]
    domain_rules: tuple[DomainRule, ...]
    strategies: tuple[PlacementStrategy, ...]  # Kaiwo's own last
    replicas: tuple[ReplicaStrategy, ...]  # the policy's, then those that replace it
    allocation: Allocation
    fallback: Allocation  # takes over when the chosen strategy misbehaves
    token: tuple[tuple[str, str, int], ...]  # name, version, weight: what cached results depend on
    static_fields: tuple[str, ...] | None  # of requests, on which the static filters depend; None: any
    rules: str  # a digest of the policy and the plugins
    by_strategy: Mapping[str, "StrategyPlugins"]  # for requests whose queue names a strategy

    def scores_of(self, want: Request) -> tuple[tuple[Score, int], ...]:
        chosen = self.by_strategy.get(want.strategy) if want.strategy else None
        return self.scores if chosen is None else chosen.scores

    def allocation_of(self, want: Request) -> Allocation:
        chosen = self.by_strategy.get(want.strategy) if want.strategy else None
        return self.allocation if chosen is None else chosen.allocation

    @property
    def filters(self) -> tuple[Filter, ...]:
        return self.static_filters + self.free_filters

    def strategy(self, *names: str) -> PlacementStrategy | None:
        """The first of these strategies that is active; else the default, where it is registered."""
        known = {each.name: each for each in self.strategies}
        wanted = (plugin_strategy(name) or name for name in (*names, CONSOLIDATED))
        return next((known[name] for name in wanted if name in known), None)

    @property
    def others_filter(self) -> bool:
        """Whether answers of free filters may not outlive the cycle: see `is_own`."""
        return not all(map(is_own, self.free_filters))

    @property
    def others_score(self) -> bool:
        """The same for scores."""
        by_strategy = [each.scores for each in self.by_strategy.values()]
        return not all(is_own(plugin) for scores in (self.scores, *by_strategy) for plugin, _ in scores)

    def static_key(self, want: Request) -> Any:
        """Requests with equal keys get equal answers from the static filters."""
        if self.static_fields is None:
            return want
        return tuple([getattr(want, name) for name in self.static_fields])

    def is_asked(self, name: str) -> bool:
        """Whether a cycle asks this plugin: one may serve only the order of workloads, or nothing under this policy."""
        served = [plugin for plugins in self._served() for plugin in plugins]
        return any(
            plugin.name == name for plugin in (*served, *(each.allocation for each in self.by_strategy.values()))
        )

    def without(self, name: str) -> "ActivePlugins":
        static = tuple(p for p in self.static_filters if p.name != name)
        left = replace(
            self,
            static_filters=static,
            free_filters=tuple(p for p in self.free_filters if p.name != name),
            scores=tuple((p, weight) for p, weight in self.scores if p.name != name),
            by_strategy={
                strategy: StrategyPlugins(
                    tuple((p, weight) for p, weight in each.scores if p.name != name),
                    self.fallback if name == each.allocation.name else each.allocation,
                )
                for strategy, each in self.by_strategy.items()
            },
            gpu_scores=tuple((p, weight) for p, weight in self.gpu_scores if p.name != name),
            queue_orders=tuple(p for p in self.queue_orders if p.name != name),
            victim_filters=tuple(p for p in self.victim_filters if p.name != name),
            domain_rules=tuple(p for p in self.domain_rules if p.name != name),
            strategies=tuple(p for p in self.strategies if p.name != name or name in STRATEGIES),
            replicas=tuple(p for p in self.replicas if p.name != name),
            allocation=self.fallback if name == self.allocation.name else self.allocation,
            token=tuple(entry for entry in self.token if entry[0] != name),
            static_fields=_fields(static),
        )
        if left._served() == self._served():  # called again, it would misbehave forever
            raise PluginError(f"plugin '{name}' misbehaves and nothing replaces it; remove it, or choose another")
        return left

    def _served(self) -> tuple[tuple[Plugin, ...], ...]:
        scores = tuple(plugin for plugin, _ in (*self.scores, *self.gpu_scores))
        others = (self.domain_rules, self.strategies, self.replicas)
        return self.filters, scores, self.queue_orders, self.victim_filters, (self.allocation,), *others


class Registry:
    """Plugins by name, in order of registration. `fallback` replaces a strategy that misbehaves."""

    def __init__(self, plugins: Iterable[Plugin] = (), fallback: Allocation | None = None) -> None:
        self._plugins: dict[str, Plugin] = {}
        self._points: dict[str, frozenset[str]] = {}  # of each plugin: checking a protocol costs 2 ms per policy
        self._fallback = fallback
        self._recent: list[tuple[Policy, ActivePlugins]] = []  # by policy, so that idle cycles need not choose again
        self._expected: set[str] = set()  # may come and go while Kaiwo runs: a policy may name them all the same
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: Plugin) -> None:
        points = check_plugin(plugin)
        if plugin.name in self._plugins:
            raise PluginError(f"plugin '{plugin.name}' is registered already; rename one of them")
        self._plugins[plugin.name], self._points[plugin.name] = plugin, points
        self._recent = []

    def expect(self, names: Iterable[str]) -> None:
        """Plugins that an administrator allowed. A policy that names one which is not active is served without it."""
        self._expected.update(names)
        self._recent = []

    def replace_all(self, plugins: Iterable[Plugin]) -> None:
        """These instead of all before, in this order. Nothing changes when one of them is not right."""
        other = Registry(plugins, self._fallback)
        self._plugins, self._points, self._recent = other._plugins, other._points, []

    def remove(self, name: str) -> None:
        if self._plugins.pop(name, None) is None:
            raise PluginError(f"there is no plugin '{name}' to remove")
        del self._points[name]
        self._recent = []

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """In order of registration."""
        return tuple(self._plugins.values())

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """Name and version of every plugin, for journal entries."""
        return tuple(sorted((plugin.name, plugin.version) for plugin in self._plugins.values()))

    def active(self, policy: Policy) -> ActivePlugins:
        for known, active in self._recent:
            if known == policy:
                return active
        chosen = self._chosen(policy)
        self._recent = [(policy, chosen), *self._recent[:3]]
        return chosen

    def ordering(self, policy: Policy) -> Ordering:
        plugins = cast(list[WorkloadOrder], self._enabled(policy, "workload_order"))
        return Ordering(tuple(plugins), _without_steps(policy))

    def _chosen(self, policy: Policy) -> ActivePlugins:
        for field, names in (("disabledPlugins", policy.disabled_plugins), ("scoreWeights", policy.score_weights)):
            if unknown := sorted(set(names) - set(self._plugins) - self._expected):
                known = ", ".join(sorted(self._plugins))
                raise PluginError(f"{field} names unknown plugins: {', '.join(unknown)}; there are: {known}")
        self._check_strategy(policy)
        filters = cast(list[Filter], self._enabled(policy, "filter"))
        scores = _weighted(cast(list[Score], self._enabled(policy, "score")), policy)
        gpu_scores = _weighted(cast(list[GpuScore], self._enabled(policy, "gpu_score")), policy)
        weights = {plugin.name: weight for plugin, weight in (*scores, *gpu_scores)}
        static = tuple(p for p in filters if p.is_static)
        allocation = self._allocation(policy.gpu_strategy)
        token = tuple((p.name, p.version, weights.get(p.name, 0)) for p in self._enabled(policy))
        return ActivePlugins(
            static,
            tuple(p for p in filters if not p.is_static),
            scores,
            gpu_scores,
            tuple(cast(list[QueueOrder], self._enabled(policy, "queue_order"))),
            tuple(cast(list[VictimFilter], self._enabled(policy, "victim_filter"))),
            tuple(cast(list[DomainRule], self._enabled(policy, "domain_rule"))),
            tuple(cast(list[PlacementStrategy], self._serving("placement_strategy"))),
            self._replica_strategies(policy.replica_strategy),
            allocation,
            self._fallback or allocation,
            token,
            _fields(static),
            digest((_rules_of(policy), token)),
            self._by_strategy(policy),
        )

    def _by_strategy(self, policy: Policy) -> dict[str, StrategyPlugins]:
        scores = cast(list[Score], self._enabled(policy, "score"))
        return {
            name: StrategyPlugins(
                _weighted(scores, msgspec.structs.replace(policy, placement=placement)), self._allocation(name)
            )
            for name, placement in STRATEGY_PLACEMENTS.items()
            if "allocation" in self._points.get(name, ())
        }

    def _enabled(self, policy: Policy, point: str = "") -> list[Plugin]:
        """The plugins that the policy enables; with a point, only those that implement it."""
        off, points = policy.disabled_plugins, self._points
        return [p for name, p in self._plugins.items() if name not in off and (not point or point in points[name])]

    def _serving(self, point: str) -> list[Plugin]:
        return [plugin for name, plugin in self._plugins.items() if point in self._points[name]]

    def _check_strategy(self, policy: Policy) -> None:
        wanted = plugin_strategy(policy.topology_strategy)
        if wanted and wanted not in self._expected and "placement_strategy" not in self._points.get(wanted, ()):
            raise PluginError(f"topology.strategy names the plugin '{wanted}', which is not active or is no strategy")

    def _replica_strategies(self, name: str) -> tuple[ReplicaStrategy, ...]:
        """The chosen one first; the last one that is registered, which is Kaiwo's own, replaces it."""
        known = cast(list[ReplicaStrategy], self._serving("replica_strategy"))
        chosen = [each for each in known if each.name == name]
        if known and not chosen and name not in self._expected:
            names = ", ".join(sorted(each.name for each in known))
            raise PluginError(f"replicaStrategy is '{name}', which is unknown; choose one of: {names}")
        return (*chosen, *(each for each in known[-1:] if each not in chosen))

    def _allocation(self, name: str) -> Allocation:
        known = sorted(n for n, points in self._points.items() if "allocation" in points)
        if name in self._expected and name not in known and self._fallback is not None:
            return self._fallback
        if name not in known:
            raise PluginError(f"gpuStrategy is '{name}', which is unknown; choose one of: {', '.join(known)}")
        return cast(Allocation, self._plugins[name])


def _fields(filters: tuple[Filter, ...]) -> tuple[str, ...] | None:
    """The request fields that these filters declare; None when one of them declares none."""
    named = [getattr(plugin, "depends_on", None) for plugin in filters]
    if any(fields is None for fields in named):
        return None
    return tuple(sorted({name for fields in named if fields for name in fields}))


# Every cycle looks at lost places and restart costs, and the state learns the rule about sharing from an event. Slow
# nodes are found when speeds are measured, and reach the state as events, too. What is kept for predicted demand is a
# reservation.
_OTHERWISE_KNOWN = (
    "keep_lost_place_s", "share_with", "max_restart_cost_s", "slow_nodes", "slow_below_percent", "slow_for_s",
    "predicted_ahead_s", "predicted_priority", "predicted_permille",
)  # fmt: skip


def _rules_of(policy: Policy) -> tuple[object, ...]:
    """What affects the order of work and where it fits: not the step budget, which changes from cycle to cycle, and not
    how long places are kept and what restarts may cost, which every cycle looks at."""
    fixed = _without_steps(policy)
    return tuple(getattr(fixed, name) for name in Policy.__struct_fields__ if name not in _OTHERWISE_KNOWN)


def _without_steps(policy: Policy) -> Policy:
    """The step budget changes from cycle to cycle."""
    return msgspec.structs.replace(policy, steps=1)


Weighted = TypeVar("Weighted", Score, GpuScore)


def _weighted(plugins: list[Weighted], policy: Policy) -> tuple[tuple[Weighted, int], ...]:
    """Those that count, with their weights."""
    found = [(plugin, policy.score_weights.get(plugin.name, _weight(plugin, policy))) for plugin in plugins]
    return tuple((plugin, weight) for plugin, weight in found if weight)


def _weight(plugin: Score | GpuScore, policy: Policy) -> int:
    """0 for a score that is meant for the other placement."""
    only = getattr(plugin, "placement", policy.placement)
    return plugin.weight if only == policy.placement else 0
