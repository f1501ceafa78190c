"""Rules between pods: what others may know a pod by, and whom it must be near to, apart from, or spread among.

A mark is a short text that some pods carry; whoever makes the picture says which. A place is a set of nodes with the
same value of a label (the level), or one node alone.

Also: Requirements on a node's labels.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec

LARGEST = (1 << 63) - 1
VENDOR_LABEL = "kaiwo.ai/gpu-vendor."  # put on nodes in our picture only: a GPU of this vendor is there
_is_number = re.compile(r"[+-]?[0-9]+", re.ASCII).fullmatch


class NodeRule(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One requirement on a node's labels."""

    key: str
    operator: str = "In"  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """A node with these labels obeys it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        have, bound = _number(value), _number(self.values[0] if self.values else None)
        if have is None or bound is None:
            return False
        return have > bound if self.operator == "Gt" else have < bound


NodeRules: TypeAlias = tuple[NodeRule, ...]  # all of them must hold
NodeAlternatives: TypeAlias = tuple[NodeRules, ...]  # one of these must hold; of no alternatives none does


class NodePreference(msgspec.Struct, gc=False, frozen=True):
    """Nodes that are better than others, if all of these hold."""

    weight: int  # 1..100
    rules: NodeRules


def matches_node_rules(labels: Mapping[str, str], rules: NodeRules, choices: tuple[NodeAlternatives, ...]) -> bool:
    """All rules hold, and of each choice one alternative."""
    return all(rule.holds(labels) for rule in rules) and all(
        any(all(rule.holds(labels) for rule in each) for each in choice) for choice in choices
    )


def _number(text: str | None) -> int | None:
    """Whole numbers of 64 bits, written plainly: `1_000` and ` 5` are none."""
    if text is None or not _is_number(text):
        return None
    number = int(text)
    return number if -LARGEST - 1 <= number <= LARGEST else None


NODE_LEVEL = ""  # the level on which every node is a place of its own
HOST_PORT_PREFIX = "port:"  # begins the marks that stand for a port of the node
NOMINATED_PREFIX = "kept:"  # begins the marks of pods for which space is kept, and which are not there yet


class RequiredPodAffinity(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """On each level a pod with this mark in the same place. Who carries it, and finds nobody, may begin anywhere."""

    mark: str
    levels: tuple[str, ...]


class RequiredPodAntiAffinity(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """No pod with this mark in the same place. It holds both ways: the others' rules keep newcomers out."""

    mark: str
    level: str = NODE_LEVEL


class TopologySpread(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """No place has more than `max_skew` pods with this mark above the place that has the fewest."""

    mark: str
    level: str
    max_skew: int = 1
    min_places: int = 1  # with fewer places, the fewest is 0
    by_rules: bool = True  # only nodes that its own node rules allow make up places
    by_taints: bool = False  # only nodes whose taints it tolerates do


class PodAffinity(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Everything about one pod that matters to others, or that others matter to."""

    marks: tuple[str, ...] = ()
    near: RequiredPodAffinity | None = None
    apart: tuple[RequiredPodAntiAffinity, ...] = ()
    spread: tuple[TopologySpread, ...] = ()
    own_rules: NodeRules = ()  # for `TopologySpread.by_rules`: the rules that the pod itself names
    own_choices: tuple[NodeAlternatives, ...] = ()

    @property
    def awaited_marks(self) -> tuple[str, ...]:
        """Marks that make more possible, not less, when another pod with one of them starts."""
        return (*((self.near.mark,) if self.near else ()), *(rule.mark for rule in self.spread))

    @property
    def self_exclusion_levels(self) -> tuple[str, ...]:
        """The levels on which such pods stay apart from each other."""
        return tuple(rule.level for rule in self.apart if rule.mark in self.marks)


def affinity_of_nomination(neighbours: PodAffinity | None) -> PodAffinity | None:
    """The same for space that is kept: it keeps others away, but nobody is near to a pod that is not there yet."""
    return None if neighbours is None else _affinity_of_nomination(neighbours)


@lru_cache(maxsize=4096)
def _affinity_of_nomination(neighbours: PodAffinity) -> PodAffinity:
    return PodAffinity(tuple(NOMINATED_PREFIX + mark for mark in neighbours.marks), apart=neighbours.apart)
