"""Built-in strategies and rules for work that asks for levels of the network: which domains it may use and gets."""

import numpy as np

from kaiwo.model.network.constraint import BALANCED, CONSOLIDATED, DISTRIBUTED, STATED
from kaiwo.model.policy import Policy
from kaiwo.plugins.contract import DomainTable
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.view import View


class _Weighted:
    """The domain with the highest sum of the weighted terms."""

    def placement_strategy(self, view: View, domains: DomainTable, terms: IntArray, weights: IntArray) -> IntArray:
        total: IntArray = (terms * weights).sum(axis=1) // max(1, int(weights.sum()))
        return total


class Consolidated(_Weighted):
    """In the tightest level that fits."""

    name, version, divides_like = CONSOLIDATED, "1", CONSOLIDATED


class Balanced(_Weighted):
    """In the tightest level that fits, in equal parts."""

    name, version, divides_like = BALANCED, "1", BALANCED


class Distributed(_Weighted):
    """Evenly over all domains."""

    name, version, divides_like = DISTRIBUTED, "1", DISTRIBUTED


class Stated(_Weighted):
    """No tighter than the work asks for."""

    name, version, divides_like = STATED, "1", STATED


class DomainQueues:
    """Keep work with levels out of domains that the policy's `topology.onlyFor` gives to other queues."""

    name, version = "domain-queues", "1"

    def domain_rule(self, view: View, domains: DomainTable, policy: Policy) -> BoolArray:
        if not policy.domain_queues:
            return np.ones(len(domains), np.bool_)
        queues = view.queues
        above = {queues.names[row] for row in queues.path[queues.row[domains.queue]]}
        owners = (policy.domain_queues.get(name) for name in domains.names)
        return np.fromiter((each is None or not above.isdisjoint(each) for each in owners), np.bool_, len(domains))


PLUGINS = (Consolidated, Balanced, Distributed, Stated, DomainQueues)
