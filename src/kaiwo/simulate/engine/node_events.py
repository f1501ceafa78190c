"""What happens to nodes during a run: failures and repairs, and GPUs that are cut into other partitions.

In:    the events, in any order.   Out: nodes as they are from an instant on.
A failed node loses its pods. A node that is to be partitioned takes no new pods, waits until it is empty, and is back
after the time that the change takes.
"""

import heapq
import random
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass

from msgspec.structs import replace

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.partition_modes import Mode, legal_modes, partition_gpu, read_mode
from kaiwo.model.node import Node

DAY_S = 86_400


@dataclass(frozen=True, slots=True, order=True)
class NodeEvent:
    at_s: int
    node: str
    kind: str  # fail | repair | partition
    mode: Mode | None = None  # of a partition event; None: whole GPUs
    takes_s: int = 300


@dataclass(frozen=True, slots=True)
class NodeChange:
    node: Node
    gpus_milli: int  # by which the capacity that may be used grows
    stops_pods: bool = False


class NodeEvents:
    def __init__(self, nodes: Sequence[Node], events: Sequence[NodeEvent]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._left = sorted(events)
        heapq.heapify(self._left)
        self._draining: dict[str, NodeEvent] = {}

    @property
    def next_s(self) -> int | None:
        return self._left[0].at_s if self._left else None

    @property
    def is_draining(self) -> bool:
        return bool(self._draining)

    def due(self, now_s: int, held: Mapping[str, Sized]) -> list[NodeChange]:
        """What changes now. `held` is what runs on each node: a draining node changes once it is empty."""
        changes = []
        while self._left and self._left[0].at_s <= now_s:
            changes.append(self._begin(heapq.heappop(self._left)))
        for name in [name for name in sorted(self._draining) if not held.get(name)]:
            event = self._draining.pop(name)
            heapq.heappush(self._left, NodeEvent(now_s + event.takes_s, name, "repartitioned", event.mode))
        return [change for change in changes if change is not None]

    def _begin(self, event: NodeEvent) -> NodeChange | None:
        node = self._nodes[event.node]
        size = sum(gpu.milli for gpu in node.gpus)
        match event.kind:
            case "fail" if node.ready:
                after, more, stops = replace(node, ready=False, reason="failed"), -size, True
            case "repair" if not node.ready:
                after, more, stops = replace(node, ready=True, reason=""), size, False
            case "partition":
                self._draining[node.name] = event
                after, more, stops = replace(node, cordoned=True, reason="is partitioned"), 0, False
            case "repartitioned":
                whole = [replace(gpu, id=gpu.parent or gpu.id, parent="", profile="", milli=1000) for gpu in node.gpus]
                mode = event.mode
                gpus = whole if mode is None else [part for gpu in whole for part in partition_gpu(gpu, mode)]
                after, more, stops = replace(node, gpus=tuple(gpus), cordoned=False, reason=""), 0, False
            case _:
                return None
        self._nodes[node.name] = after
        return NodeChange(after, more, stops)


def random_failures(
    nodes: Sequence[Node], days: int, per_node_year: float, repair_s: int, seed: int
) -> list[NodeEvent]:
    """Each node fails at random, as often as said on average, and is back after the time of a repair."""
    draw, found = random.Random(seed), list[NodeEvent]()
    if per_node_year <= 0:
        return found
    mean_s = 365 * DAY_S / per_node_year
    for node in sorted(nodes, key=lambda node: node.name):
        at_s = draw.expovariate(1 / mean_s)
        while at_s < days * DAY_S:
            found += [NodeEvent(int(at_s), node.name, "fail"), NodeEvent(int(at_s) + repair_s, node.name, "repair")]
            at_s += repair_s + draw.expovariate(1 / mean_s)
    return sorted(found)


def read_partition_changes(texts: Sequence[str], nodes: Sequence[Node]) -> list[NodeEvent]:
    """`NODE=CPX+NPS4@SECONDS`: from then on the node drains, and its GPUs are cut."""
    by_name, found = {node.name: node for node in nodes}, list[NodeEvent]()
    for text in texts:
        name, _, rest = text.partition("=")
        profile, _, at_s = rest.partition("@")
        if name not in by_name or not at_s.isdecimal():
            known = "there is no such node" if name not in by_name else "write it as NODE=CPX+NPS4@SECONDS"
            raise ConfigError(f"--partition has '{text}': {known}")
        modes = {mode for gpu in by_name[name].gpus for mode in legal_modes(gpu.model)}
        compute, memory = read_mode(profile.upper())
        mode = Mode(compute, memory or "NPS1")
        if mode not in modes:
            there = ", ".join(sorted(each.profile for each in modes)) or "none"
            raise ConfigError(f"--partition has '{text}': the GPUs of {name} cannot be cut so; possible: {there}")
        found.append(NodeEvent(int(at_s), name, "partition", mode))
    return found
