"""Rules between pods: what others may know a pod by, and whom it must be near to, apart from, or spread among.

A mark is a short text that some pods carry; whoever makes the picture says which. A place is a set of nodes with the
same value of a label (the level), or one node alone.
"""

from functools import lru_cache

import msgspec

from kaiwo.model.node_rules import Choice, Rules

NODE = ""  # the level on which every node is a place of its own
PORT = "port:"  # begins the marks that stand for a port of the node
KEPT = "kept:"  # begins the marks of pods for which space is kept, and which are not there yet


class Near(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """On each level a pod with this mark in the same place. Who carries it, and finds nobody, may begin anywhere."""

    mark: str
    levels: tuple[str, ...]


class Apart(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """No pod with this mark in the same place. It holds both ways: the others' rules keep newcomers out."""

    mark: str
    level: str = NODE


class Spread(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """No place has more than `max_skew` pods with this mark above the place that has the fewest."""

    mark: str
    level: str
    max_skew: int = 1
    min_places: int = 1  # with fewer places, the fewest is 0
    by_rules: bool = True  # only nodes that its own node rules allow make up places
    by_taints: bool = False  # only nodes whose taints it tolerates do


class Neighbours(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Everything about one pod that matters to others, or that others matter to."""

    marks: tuple[str, ...] = ()
    near: Near | None = None
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    own_rules: Rules = ()  # for `Spread.by_rules`: what the pod itself says, without what its volumes or GPUs ask for
    own_choices: tuple[Choice, ...] = ()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Marks that make more possible, not less, when another pod with one of them starts."""
        return (*((self.near.mark,) if self.near else ()), *(rule.mark for rule in self.spread))

    @property
    def own_levels(self) -> tuple[str, ...]:
        """The levels on which such pods stay apart from each other."""
        return tuple(rule.level for rule in self.apart if rule.mark in self.marks)


def kept(neighbours: Neighbours | None) -> Neighbours | None:
    """The same for space that is kept: it keeps others away, but nobody is near to a pod that is not there yet."""
    return None if neighbours is None else _kept(neighbours)


@lru_cache(maxsize=4096)
def _kept(neighbours: Neighbours) -> Neighbours:
    return Neighbours(tuple(KEPT + mark for mark in neighbours.marks), apart=neighbours.apart)
