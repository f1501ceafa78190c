"""Which partition profile each node should have, and how fast to change them: upstream Kaiwo's PartitioningPlan."""

import msgspec

from kaiwo.model.affinity import NodeRule


class Rollout(msgspec.Struct, frozen=True):
    max_parallel: int = 1
    max_unavailable: int = 1
    excludes_control_plane: bool = True


class PlanRule(msgspec.Struct, frozen=True):
    description: str
    nodes: tuple[NodeRule, ...]
    profile: str  # a name in the Device Config Manager's configuration
    is_reference: bool = False  # `profile` is the name of a PartitioningProfile instead


class PartitioningPlan(msgspec.Struct, frozen=True):
    name: str
    rules: tuple[PlanRule, ...]
    rollout: Rollout = Rollout()
    is_dry: bool = False
    is_paused: bool = False
