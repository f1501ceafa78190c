"""Ask plugins about domains of the network: which a workload may use, and which of those with room is the best.

In:    the levels of one part of a workload.   Out: a mask of nodes, and a strategy for `DomainRanking`.
"""

from collections.abc import Sequence

import numpy as np

from kaiwo.decide.placement.domain_choice import NodeUse, Strategy
from kaiwo.decide.placement.levels import ConstraintLevels, Level
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.model.network.constraint import CONSOLIDATED, STRATEGIES
from kaiwo.plugins.contract import DomainTable
from kaiwo.plugins.guarded_calls import call_plugin, call_score
from kaiwo.snapshot.array_types import BoolArray, IntArray


class DomainRules:
    """The plugins' opinion about the domains of one workload."""

    def __init__(self, placer: Placer, workload: str, queue: str) -> None:
        self._placer, self._workload, self._queue = placer, workload, queue
        self._masks: dict[int, BoolArray] = {}  # by the identity of the levels, which live as long as the nodes

    def mask(self, levels: ConstraintLevels, use: NodeUse) -> BoolArray:
        """The nodes outside of all domains that a rule excludes, on any level above single nodes."""
        known = self._masks.get(id(levels))
        if known is None:
            known = self._masks[id(levels)] = self._ask_rules(levels, use)
        return known

    def _ask_rules(self, levels: ConstraintLevels, use: NodeUse) -> BoolArray:
        allowed = np.ones(len(use.total), np.bool_)
        view, policy = self._placer.working.view, self._placer.policy
        for level in levels.levels[:-1]:
            if not len(level.domain_names):
                continue
            domains = self._table(levels, level, np.arange(len(level.domain_names)), use)
            for rule in self._placer.plugins.domain_rules:
                may_use = call_plugin(rule.name, rule.domain_rule, len(domains), view, domains, policy) != 0
                inside = level.domain_of_node >= 0
                allowed[inside] &= may_use[level.domain_of_node[inside]]
        return allowed

    def strategy(self, name: str, levels: ConstraintLevels, at: int, use: NodeUse) -> Strategy | None:
        """How the plugin of this name ranks the domains of one level; None: it is not there."""
        plugin = self._placer.plugins.strategy(name, self._placer.policy.topology_strategy)
        if plugin is None:
            return None

        def ranks(numbers: IntArray, terms: IntArray, weights: IntArray) -> IntArray:
            domains = self._table(levels, levels.levels[at], numbers, use)
            view = self._placer.working.view
            return call_score(plugin.name, plugin.placement_strategy, len(numbers), view, domains, terms, weights)

        return ranks

    def divides_like(self, name: str) -> str:
        """The strategy of Kaiwo's own after which a strategy divides pods inside a domain."""
        if name in STRATEGIES:
            return name
        plugin = self._placer.plugins.strategy(name, self._placer.policy.topology_strategy)
        return plugin.divides_like if plugin is not None else CONSOLIDATED

    def _table(self, levels: ConstraintLevels, level: Level, numbers: IntArray, use: NodeUse) -> DomainTable:
        names: Sequence[str] = level.domain_names
        inside = level.domain_of_node >= 0
        by_domain = level.domain_of_node[inside]

        def sums(values: IntArray) -> IntArray:
            found: IntArray = np.bincount(by_domain, values[inside], len(names)).astype(np.int64)[numbers]
            return found

        return DomainTable(
            self._workload, self._queue, levels.topology, level.name, tuple(names[at] for at in numbers.tolist()),
            sums(np.ones(len(inside), np.int64)), sums(use.total), sums(use.used),
        )  # fmt: skip
