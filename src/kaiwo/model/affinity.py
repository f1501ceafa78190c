"""Rules about nodes and about other pods: node selectors, node affinity, pod affinity and topology spread.

A mark is a short text that identifies a set of pods, such as those that match one label selector: the cluster's adapter
makes the marks. A domain is a set of nodes that share the value of one label (the level), or a single node.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec

LARGEST_INT64 = (1 << 63) - 1
VENDOR_LABEL = "kaiwo.ai/gpu-vendor."  # only on nodes in our state, not in the cluster: the node has such a GPU
NODE_LEVEL = ""  # on this level each node is its own domain
HOST_PORT_PREFIX = "port:"  # begins the marks for host ports
NOMINATED_PREFIX = "kept:"  # begins the marks of nominated pods, which do not run yet
_is_number = re.compile(r"[+-]?[0-9]+", re.ASCII).fullmatch


class NodeRule(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    key: str
    operator: str = "In"  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
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
        have, bound = _number(value), _number(self.values[0] if self.values else None)
        if self.operator not in ("Gt", "Lt") or have is None or bound is None:
            return False
        return have > bound if self.operator == "Gt" else have < bound


NodeRules: TypeAlias = tuple[NodeRule, ...]  # all of them must hold
NodeAlternatives: TypeAlias = tuple[NodeRules, ...]  # one of these must hold; without any, no node matches


class NodePreference(msgspec.Struct, gc=False, frozen=True):
    weight: int  # 1..100
    rules: NodeRules


def matches_node_rules(labels: Mapping[str, str], rules: NodeRules, choices: tuple[NodeAlternatives, ...]) -> bool:
    return all(rule.holds(labels) for rule in rules) and all(
        any(all(rule.holds(labels) for rule in each) for each in choice) for choice in choices
    )


def _number(text: str | None) -> int | None:
    """A 64-bit integer in plain decimal digits; None for anything else, such as `1_000` or ` 5`."""
    if text is None or not _is_number(text):
        return None
    number = int(text)
    return number if -LARGEST_INT64 - 1 <= number <= LARGEST_INT64 else None


class RequiredPodAffinity(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """On each level a pod with this mark must be in the same domain; if no pod has it, one with the mark may start."""

    mark: str
    levels: tuple[str, ...]


class RequiredPodAntiAffinity(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """No pod with this mark may be in the same domain. It holds both ways: running pods' rules exclude new pods."""

    mark: str
    level: str = NODE_LEVEL


class TopologySpread(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """No domain has over `max_skew` more pods with this mark than the domain that has the fewest."""

    mark: str
    level: str
    max_skew: int = 1
    min_places: int = 1  # with fewer domains, the fewest counts as 0
    by_rules: bool = True  # domains consist only of nodes that the pod's own node rules allow
    by_taints: bool = False  # and only of nodes whose taints the pod tolerates


class PodAffinity(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Everything about one pod that matters to other pods, and what other pods matter to it."""

    marks: tuple[str, ...] = ()
    near: RequiredPodAffinity | None = None
    apart: tuple[RequiredPodAntiAffinity, ...] = ()
    spread: tuple[TopologySpread, ...] = ()
    own_rules: NodeRules = ()  # the pod's own rules, for `TopologySpread.by_rules`
    own_choices: tuple[NodeAlternatives, ...] = ()

    @property
    def awaited_marks(self) -> tuple[str, ...]:
        """Marks whose pods, when they start, open more nodes to this pod."""
        return (*((self.near.mark,) if self.near else ()), *(rule.mark for rule in self.spread))

    @property
    def self_exclusion_levels(self) -> tuple[str, ...]:
        """The levels on which two such pods exclude each other."""
        return tuple(rule.level for rule in self.apart if rule.mark in self.marks)


@lru_cache(maxsize=4096)
def affinity_of_nomination(neighbours: PodAffinity | None) -> PodAffinity | None:
    """The affinity of a nomination: it excludes others, but nothing can be near a pod that does not exist yet."""
    if neighbours is None:
        return None
    return PodAffinity(tuple(NOMINATED_PREFIX + mark for mark in neighbours.marks), apart=neighbours.apart)
