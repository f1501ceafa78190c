"""What somebody wants the nodes to be cut into, and how fast: upstream Kaiwo's PartitioningPlan in our words."""

import msgspec

from kaiwo.model.affinity import NodeRule


class Rollout(msgspec.Struct, frozen=True):
    """How many nodes change at a time."""

    max_parallel: int = 1
    max_unavailable: int = 1
    excludes_control_plane: bool = True


class PlanRule(msgspec.Struct, frozen=True):
    """These nodes, this profile."""

    description: str
    nodes: tuple[NodeRule, ...]
    profile: str  # a name in the Device Config Manager's configuration, or of a PartitioningProfile
    is_reference: bool = False  # the latter


class PartitioningPlan(msgspec.Struct, frozen=True):
    """What somebody wants the nodes to be."""

    name: str
    rules: tuple[PlanRule, ...]
    rollout: Rollout = Rollout()
    is_dry: bool = False
    is_paused: bool = False
