"""Learn the mix of requests from the workloads that arrive, and forget old mixes.

The order in which workloads arrived does not matter until something is forgotten.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kaiwo.model.events import PricesChanged, RequestMixChanged
from kaiwo.model.request import Request
from kaiwo.model.request_mix import RequestKind, SeenKind, kind_of
from kaiwo.model.workload import Workload

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState

WEIGHT = 4  # of one pod: a rare kind survives two halvings
MOST_PODS = 16_384  # beyond this many, every weight is halved
MOST_KNOWN = 4_096  # requests whose kind is kept


class SeenRequests:
    """Weights by kind of request."""

    def __init__(self) -> None:
        self.weights: dict[RequestKind, int] = {}
        self.arrivals = 0  # pods, since the beginning
        self.arrived_milli = 0  # GPUs
        self._total = 0
        self._kinds: dict[Request, RequestKind | None] = {}

    def add(self, workload: Workload) -> None:
        for role in workload.roles:
            kind = self._kind(role.request)
            if kind is not None:
                self.weights[kind] = self.weights.get(kind, 0) + WEIGHT * role.count
                self.arrived_milli += kind.total_milli * role.count
                self._total += WEIGHT * role.count
            self.arrivals += role.count
        if self._total > WEIGHT * MOST_PODS:
            self._forget()

    def replace(self, mix: RequestMixChanged) -> None:
        self.weights = {each.kind: each.weight for each in mix.kinds}
        self.arrivals, self.arrived_milli = mix.arrivals, mix.arrived_milli
        self._total = sum(self.weights.values())

    def as_events(self) -> Iterable[RequestMixChanged]:
        if self.arrivals:
            kinds = tuple(SeenKind(kind, self.weights[kind]) for kind in sorted(self.weights))
            yield RequestMixChanged(kinds, self.arrivals, self.arrived_milli)

    def copy(self) -> "SeenRequests":
        other = SeenRequests()
        other.weights, other._kinds = dict(self.weights), self._kinds
        other.arrivals, other.arrived_milli, other._total = self.arrivals, self.arrived_milli, self._total
        return other

    def _kind(self, request: Request) -> RequestKind | None:
        if request in self._kinds:
            return self._kinds[request]
        if len(self._kinds) >= MOST_KNOWN:
            self._kinds.clear()
        found = self._kinds[request] = kind_of(request)
        return found

    def _forget(self) -> None:
        halved = {kind: weight // 2 for kind, weight in self.weights.items()}
        self.weights = {kind: weight for kind, weight in halved.items() if weight}
        self._total = sum(self.weights.values())


def request_mix_changed(state: "ClusterState", event: RequestMixChanged) -> None:
    state.seen_requests.replace(event)


def prices_changed(state: "ClusterState", event: PricesChanged) -> None:
    state.prices = event.prices
    state.caches.clear()  # scores at the prices of before
