"""What a workload, a sub-group or a role asks of the network: how near to each other its pods must run.

A level is named as in its topology, or by the node label that the level is read from. Without a topology, a level is a
node label.
"""

from typing import ClassVar

import msgspec

from kaiwo.model.request import Request

CONSOLIDATED, DISTRIBUTED, BALANCED, STATED = "consolidated", "distributed", "balanced", "stated"
STRATEGIES = (CONSOLIDATED, DISTRIBUTED, BALANCED, STATED)

PLUGIN_STRATEGY = "plugin:"  # followed by the name of a plugin


def plugin_strategy(strategy: str) -> str:
    """The plugin that a strategy names; empty: it is one of Kaiwo's own."""
    return strategy.removeprefix(PLUGIN_STRATEGY) if strategy.startswith(PLUGIN_STRATEGY) else ""


class Followers(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Pods that are made only once a leader has a node, and that must then run in the leader's domain."""

    leader: str  # the role with the one pod that they follow
    pods: int
    request: Request | None = None  # of each of them; None: as their leader's, without its rules between pods


class TopologyConstraint(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Levels that must or should hold for the pods of one part of a workload."""

    LATER_FIELDS: ClassVar[int] = 2  # see `model.digest`

    topology: str = ""  # empty: the first topology that has the level on some node
    required: str = ""  # all pods run in one domain of this level
    preferred: str = ""  # they do so if there is one with room; else in one of the next wider level, and so on
    strategy: str = ""  # see STRATEGIES; `plugin:NAME`; empty: as the policy says
    segment: int = 0  # this many pods in the order of their index share one domain of `segment_level`; 0: no segments
    segment_level: str = ""
    bandwidth_mb_s: int = 0  # what each pod must be able to send to the others; 0: whatever there is
    followers: Followers | None = None  # the domain must have room for them, too

    @property
    def of_segment(self) -> "TopologyConstraint":
        """What each segment asks for."""
        return TopologyConstraint(self.topology, required=self.segment_level, strategy=self.strategy)

    @property
    def has_segments(self) -> bool:
        return self.segment > 0 and bool(self.segment_level)
