"""Disruption budgets: how many pods may be asked to go at once.

In:    PodDisruptionBudgets as they change.   Out: for pods, what the tightest budget that covers one still allows, and
       why none of them can ever go.
Never: counts pods itself: the cluster's own controller does, and the Eviction API has the last word.
"""

from collections.abc import Iterable

import msgspec

from kaiwo.clusters.kubernetes.decode.affinity_rules import read_selector
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.wire_objects import LabelSelector, Meta, Wire
from kaiwo.model.affinity import Rules

PATH = "/apis/policy/v1/poddisruptionbudgets"
ANY = -1  # no budget covers it
# The Eviction API knows no answer for a pod that two of them cover: it refuses, whatever they allow.
TWO_BUDGETS = "more than one budget covers pod {}, and then the server evicts it never"


class _Spec(Wire):
    selector: LabelSelector | None = None


class _Status(Wire):
    disruptions_allowed: int = 0


class BudgetObject(Wire):
    """One PodDisruptionBudget."""

    metadata: Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class DisruptionBudget(msgspec.Struct, frozen=True):
    """Whom it covers, and how many of them may go now."""

    namespace: str
    name: str
    selector: Rules | None  # None: nobody
    allowed: int

    def covers(self, pod: CachedPod) -> bool:
        if pod.namespace != self.namespace or self.selector is None:
            return False
        labels = pod.labels
        return all(rule.holds(labels) for rule in self.selector)


def read_budget(item: BudgetObject) -> DisruptionBudget:
    meta = item.metadata
    return DisruptionBudget(
        meta.namespace, meta.name, read_selector(item.spec.selector), item.status.disruptions_allowed
    )


class DisruptionBudgets:
    """All of them, by namespace."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}

    def upsert(self, budget: DisruptionBudget, pods: Iterable[CachedPod]) -> list[Key]:
        """Whom the change concerns."""
        own = self._by_namespace.setdefault(budget.namespace, {})
        before = own.get(budget.name)
        if before == budget:
            return []
        own[budget.name] = budget
        return [pod.key for pod in pods if budget.covers(pod) or (before is not None and before.covers(pod))]

    def delete(self, budget: DisruptionBudget, pods: Iterable[CachedPod]) -> list[Key]:
        """Whom it concerned."""
        self._by_namespace.get(budget.namespace, {}).pop(budget.name, None)
        return [pod.key for pod in pods if budget.covers(pod)]

    def allowed(self, pods: Iterable[CachedPod]) -> int:
        """How many of these may go now; `ANY`: nobody counts them."""
        found = [self._covering(pod) for pod in pods]
        if any(len(each) > 1 for each in found):
            return 0
        return min((budget.allowed for each in found for budget in each), default=ANY)

    def why_never(self, pods: Iterable[CachedPod]) -> str:
        """Why one of these cannot be evicted, and will not be while its budgets are as they are."""
        names = sorted("/".join(pod.key) for pod in pods if len(self._covering(pod)) > 1)
        return TWO_BUDGETS.format(names[0]) if names else ""

    def _covering(self, pod: CachedPod) -> list[DisruptionBudget]:
        return [budget for budget in self._by_namespace.get(pod.namespace, {}).values() if budget.covers(pod)]
