"""A GPU while the planner plans: the mode it will be in, and what of it is still to be had."""

from kaiwo.gpus.fleet import GpuNow, Need, NodeNow
from kaiwo.model.partitions import Mode, partition_count


class GpuSite:
    """One physical GPU in the planner's hands."""

    __slots__ = ("free", "is_spoken", "node", "now", "to")

    def __init__(self, node: NodeNow, now: GpuNow) -> None:
        self.node, self.now = node, now
        self.is_spoken = False  # somebody of this plan counts on it
        self.move(now.goal or now.mode)

    def move(self, to: Mode) -> None:
        """Let it be in that mode, with nothing of it given away yet."""
        self.to = to
        self.free = partition_count(self.node.model, to.compute) - (0 if self.is_moving else self.now.used)

    @property
    def is_moving(self) -> bool:
        """It will change."""
        return self.to != self.now.mode

    def is_open_to(self, need: Need) -> bool:
        """No reservation keeps it for others."""
        return not need.barred or (self.node.name, self.now.id) not in need.barred

    def serves(self, need: Need) -> bool:
        """It will be in a mode that the need is about, and the need may use it."""
        return suits(self.to, need) and self.is_open_to(need)

    @property
    def waits_s(self) -> int:
        """Until its work has ended."""
        return self.now.free_in_s if self.now.used else 0


def sites_of(node: NodeNow) -> list[GpuSite]:
    """The GPUs of a node."""
    return [GpuSite(node, gpu) for gpu in node.gpus]


def suits(mode: Mode, need: Need) -> bool:
    """A GPU in this mode has the devices that the need is about."""
    return mode.compute == need.compute and need.memory in ("", mode.memory)


def is_for(node: NodeNow, need: Need) -> bool:
    """The need allows this node, and its GPUs are of a model that it allows."""
    return (not need.models or node.model in need.models) and (need.nodes is None or node.name in need.nodes)
