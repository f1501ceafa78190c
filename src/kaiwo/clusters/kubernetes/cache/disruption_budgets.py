"""Cache disruption budgets, and find how many pods may be evicted at once.

Pods are not counted here: the cluster's own controller does that, and the Eviction API has the last word.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kaiwo.clusters.kubernetes.decode.affinity_rules import read_selector
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.wire_objects import LabelSelector, Meta, Wire
from kaiwo.model.affinity import NodeRules

PATH = "/apis/policy/v1/poddisruptionbudgets"
ANY = -1  # no budget covers it
# The Eviction API refuses a pod that two budgets cover, whatever they allow.
TOO_MANY = "disruption budget {budget} allows {allowed} evictions now, and more of its pods would have to stop together"
TWO_BUDGETS = "more than one disruption budget covers pod {}, so the server never evicts it"


class _Spec(Wire):
    selector: LabelSelector | None = None


class _Status(Wire):
    disruptions_allowed: int = 0


class BudgetObject(Wire):
    metadata: Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class DisruptionBudget(msgspec.Struct, frozen=True):
    """The pods that it covers, and how many of them may be evicted now."""

    namespace: str
    name: str
    selector: NodeRules | None  # None: no pod
    allowed: int

    def covers(self, pod: CachedPod) -> bool:
        if pod.namespace != self.namespace or self.selector is None:
            return False
        labels = pod.labels
        return all(rule.holds(labels) for rule in self.selector)


def read_budget(item: BudgetObject) -> DisruptionBudget:
    meta, selector = item.metadata, read_selector(item.spec.selector)
    return DisruptionBudget(meta.namespace, meta.name, selector, item.status.disruptions_allowed)


class DisruptionBudgets:
    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}

    def upsert(self, budget: DisruptionBudget, pods: Iterable[CachedPod]) -> list[Key]:
        """A budget is new or changed. Returns the pods that it concerns."""
        own = self._by_namespace.setdefault(budget.namespace, {})
        before = own.get(budget.name)
        if before == budget:
            return []
        own[budget.name] = budget
        return [pod.key for pod in pods if budget.covers(pod) or (before is not None and before.covers(pod))]

    def delete(self, budget: DisruptionBudget, pods: Iterable[CachedPod]) -> list[Key]:
        """A budget is gone. Returns the pods that it concerned."""
        self._by_namespace.get(budget.namespace, {}).pop(budget.name, None)
        return [pod.key for pod in pods if budget.covers(pod)]

    def count_evictable(self, pods: Sequence[CachedPod], refused: Mapping[str, str]) -> tuple[int, str]:
        """How many of these the server would evict now, and why it would never evict one of them.

        `refused`: by UID, the server's message where it refused an eviction for good.
        """
        message = next((refused[pod.uid] for pod in pods if pod.uid in refused), "") if refused else ""
        why = self.explain_never(pods) or message
        return (0, why) if why else (self.allowed(pods), "")

    def allowed(self, pods: Iterable[CachedPod]) -> int:
        """How many of these may be evicted now; `ANY`: no budget covers them."""
        found = [self._covering(pod) for pod in pods]
        if any(len(each) > 1 for each in found):
            return 0
        return min((budget.allowed for each in found for budget in each), default=ANY)

    def pods_over(self, pods: Sequence[CachedPod]) -> dict[str, str]:
        """By UID: those of these pods that are too many for a budget, if all are to be evicted together."""
        counts: dict[tuple[str, str], int] = {}
        over: dict[str, str] = {}
        for pod in pods:
            for budget in self._covering(pod):
                key = (budget.namespace, budget.name)
                counts[key] = counts.get(key, 0) + 1
                if counts[key] > budget.allowed:
                    over[pod.uid] = TOO_MANY.format(budget="/".join(key), allowed=budget.allowed)
        return over

    def explain_never(self, pods: Iterable[CachedPod]) -> str:
        """Why one of these cannot be evicted as long as its budgets stay as they are."""
        names = sorted("/".join(pod.key) for pod in pods if len(self._covering(pod)) > 1)
        return TWO_BUDGETS.format(names[0]) if names else ""

    def _covering(self, pod: CachedPod) -> list[DisruptionBudget]:
        return [budget for budget in self._by_namespace.get(pod.namespace, {}).values() if budget.covers(pod)]
