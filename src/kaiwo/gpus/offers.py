"""What one node would have to change for one more pod, and what that would cost.

In:    a node, a need, who may change.   Out: an Offer, or None when this node cannot serve it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kaiwo.gpus.fleet import Need
from kaiwo.gpus.sites import GpuSite, NodeSite, suits
from kaiwo.gpus.unserved import Unserved
from kaiwo.model.partitions import Mode, legal_modes, next_modes, partition_count

Allowed = Callable[[GpuSite, Need], bool]


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs of one node, and the mode they would take."""

    node: NodeSite
    changing: Sequence[GpuSite]
    mode: Mode
    cost: tuple[int, int, int, str]  # GPU-seconds idle and waited for, idle GPUs broken into, seconds, name

    def __lt__(self, other: "Offer") -> bool:
        return self.cost < other.cost

    def accept(self) -> None:
        """Plan it so."""
        self.node.move(self.changing, self.mode)


def offer_of(node: NodeSite, asked: Unserved, may_change: Allowed, may_change_memory: bool = True) -> Offer | None:
    """By a change of compute modes when that is enough, else of the node's memory mode."""
    need, memory = asked.need, node.gpus[0].to.memory
    modes = [mode for mode in legal_modes(node.now.model, node.now.platform) if suits(mode, need)]
    for mode in modes:
        if mode.memory == memory:
            return _by_compute(node, asked, mode, may_change)
    for mode in modes if may_change_memory else ():
        if all(_can_be(site, mode) and may_change(site, need) for site in node.gpus):
            return _made(node, node.gpus, mode, need) if asked.find_room(node, node.gpus) else None
    return None


def _can_be(site: GpuSite, mode: Mode) -> bool:
    return mode in next_modes(site.node.model, site.now.mode, site.node.platform)


def _by_compute(node: NodeSite, asked: Unserved, mode: Mode, may_change: Allowed) -> Offer | None:
    """The GPUs that are idle soonest, as many as are missing, of those whose work leaves enough behind when it ends."""
    need, sites = asked.need, node.gpus
    have = sum(site.free for site in sites if site.serves(need))
    each = partition_count(node.now.model, mode.compute)
    wanted = -(-(need.devices - have) // each)
    if wanted <= 0:  # devices are there: it is CPUs, memory or a slot that is missing
        return None
    able = [site for site in sites if not suits(site.to, need) and _can_be(site, mode) and may_change(site, need)]
    if len(able) < wanted or not asked.find_room(node, able):
        return None
    able.sort(key=lambda site: (site.waits_s, site.now.idle_gpu_s, site.now.id))
    windows = (able[first : first + wanted] for first in range(len(able) - wanted + 1))
    changing = next((some for some in windows if asked.find_room(node, some)), None)
    return _made(node, changing, mode, need) if changing is not None else None


def _made(node: NodeSite, changing: Sequence[GpuSite], mode: Mode, need: Need) -> Offer | None:
    sites = node.gpus
    each = partition_count(node.now.model, mode.compute)
    if len(changing) * each + sum(site.free for site in sites if site.serves(need)) < need.devices:
        return None
    ready_s = max(site.waits_s for site in changing)
    idle = sum(site.now.idle_gpu_s + ready_s - site.waits_s for site in changing)
    beside = [site for site in sites if site.serves(need) and site not in changing]
    idle += ready_s * -(-sum(site.free for site in beside) // each)  # they wait for the others
    waiting = ready_s * -(-need.devices // each)  # as long as nobody's GPUs, but somebody's time
    broken = sum(1 for site in sites if not site.now.used and not site.is_moving and not suits(site.to, need))
    return Offer(node, changing, mode, (idle + waiting, broken, ready_s, node.now.name))
