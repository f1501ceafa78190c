"""Count, per node, the pods with each mark, and the pods that repel a mark (see model.affinity).

Pods without such rules are not counted, so clusters without them pay nothing.
"""

from functools import lru_cache
from typing import TypeAlias

import numpy as np

from kaiwo.model.affinity import PodAffinity
from kaiwo.snapshot.array_types import IntArray, read_only
from kaiwo.snapshot.node_table import NodeTable

RepelledMark: TypeAlias = tuple[str, str]  # a mark, and the level on which pods repel it
CountedKey: TypeAlias = str | RepelledMark


class AffinityCounts:
    """Counts by node name, so that they outlive a rebuilt node table."""

    def __init__(self) -> None:
        self.by_node: dict[CountedKey, dict[str, int]] = {}
        self.levels: dict[str, set[str]] = {}  # by mark: the levels on which it is repelled

    def add(self, node: str, neighbours: PodAffinity, sign: int) -> None:
        for key in counted_keys(neighbours):
            nodes = self.by_node.setdefault(key, {})
            left = nodes[node] = nodes.get(node, 0) + sign
            if not left:
                del nodes[node]
            if not nodes:
                del self.by_node[key]
            if isinstance(key, tuple):
                levels = self.levels.setdefault(key[0], set())
                (levels.add if nodes else levels.discard)(key[1])
                if not levels:
                    del self.levels[key[0]]

    def copy(self) -> "AffinityCounts":
        other = AffinityCounts()
        other.by_node = {key: dict(nodes) for key, nodes in self.by_node.items()}
        other.levels = {mark: set(levels) for mark, levels in self.levels.items()}
        return other


class WorkingAffinityCounts:
    """The counts of one cycle: those of the state plus the cycle's own placements and evictions."""

    def __init__(self, marks: AffinityCounts, nodes: NodeTable) -> None:
        self._counts, self._nodes = marks, nodes
        self._changes: dict[CountedKey, dict[int, int]] = {}  # by node row
        self._levels: dict[str, set[str]] = {}  # by mark: where the cycle's own placements repel it
        self._arrays: dict[CountedKey, IntArray] = {}  # of the keys that were asked for

    def change(self, row: int, neighbours: PodAffinity, pods: int) -> None:
        for key in counted_keys(neighbours):
            rows = self._changes.setdefault(key, {})
            rows[row] = rows.get(row, 0) + pods
            if isinstance(key, tuple):
                self._levels.setdefault(key[0], set()).add(key[1])
            if key in self._arrays:
                self._arrays[key][row] += pods

    def by_row(self, key: CountedKey) -> IntArray | None:
        """Pods by node; None: there are none."""
        if key not in self._counts.by_node and key not in self._changes:
            return None
        found = self._arrays.get(key)
        if found is None:
            found = self._arrays[key] = np.zeros(len(self._nodes.names), np.int64)
            for name, count in self._counts.by_node.get(key, {}).items():
                row = self._nodes.row.get(name)
                if row is not None:
                    found[row] = count
            for row, count in self._changes.get(key, {}).items():
                found[row] += count
        return read_only(found)

    def repelling_levels(self, mark: str) -> list[str]:
        return sorted(self._levels.get(mark, set()) | self._counts.levels.get(mark, set()))


@lru_cache(maxsize=4096)
def counted_keys(neighbours: PodAffinity) -> tuple[CountedKey, ...]:
    return (*dict.fromkeys(neighbours.marks), *dict.fromkeys((rule.mark, rule.level) for rule in neighbours.apart))
