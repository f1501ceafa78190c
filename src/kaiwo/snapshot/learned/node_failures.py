"""Count how often each node failed: it was ready, and then it was not. Old failures fade as new ones come."""

from collections.abc import Iterable

from kaiwo.model.events import NodeFailuresSeen
from kaiwo.model.node import Node

WEIGHT = 4  # of one failure: it survives two halvings
MOST_PER_NODE = 8  # failures, as the mean over all nodes; beyond it, every weight is halved


class NodeFailures:
    """Weights by node."""

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}

    def note(self, before: Node | None, after: Node, nodes: int) -> bool:
        """True: it has just failed."""
        if before is None or not before.ready or after.ready:
            return False
        self.weights[after.name] = self.weights.get(after.name, 0) + WEIGHT
        if sum(self.weights.values()) > WEIGHT * MOST_PER_NODE * nodes:
            halved = {name: weight // 2 for name, weight in self.weights.items()}
            self.weights = {name: weight for name, weight in halved.items() if weight}
        return True

    def as_events(self) -> Iterable[NodeFailuresSeen]:
        if self.weights:
            yield NodeFailuresSeen(dict(sorted(self.weights.items())))

    def copy(self) -> "NodeFailures":
        other = NodeFailures()
        other.weights = dict(self.weights)
        return other
