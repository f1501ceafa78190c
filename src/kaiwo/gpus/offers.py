"""What one node would have to change for one more pod, and what that would cost.

In:    a node's GPUs, a need, who may change.   Out: an Offer, or None when this node cannot serve it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kaiwo.gpus.fleet import Need
from kaiwo.gpus.sites import GpuSite, suits
from kaiwo.model.partitions import Mode, legal_modes, next_modes, partition_count

Allowed = Callable[[GpuSite, Need], bool]


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs of one node, and the mode they would take."""

    sites: Sequence[GpuSite]
    changing: Sequence[GpuSite]
    mode: Mode
    cost: tuple[int, int, int, str]  # GPU-seconds idle and waited for, idle GPUs broken into, seconds, name

    def __lt__(self, other: "Offer") -> bool:
        return self.cost < other.cost

    def accept(self) -> None:
        """Plan it so."""
        for site in self.changing:
            site.move(self.mode)


def offer_of(sites: Sequence[GpuSite], need: Need, may_change: Allowed, may_change_memory: bool = True) -> Offer | None:
    """By a change of compute modes when that is enough, else of the node's memory mode."""
    node, memory = sites[0].node, sites[0].to.memory
    modes = [mode for mode in legal_modes(node.model, node.platform) if suits(mode, need)]
    for mode in modes:
        if mode.memory == memory:
            return _by_compute(sites, need, mode, may_change)
    for mode in modes if may_change_memory else ():
        if all(_can_be(site, mode) and may_change(site, need) for site in sites):
            return _made(sites, list(sites), mode, need)
    return None


def _can_be(site: GpuSite, mode: Mode) -> bool:
    return mode in next_modes(site.node.model, site.now.mode, site.node.platform)


def _by_compute(sites: Sequence[GpuSite], need: Need, mode: Mode, may_change: Allowed) -> Offer | None:
    """The GPUs that are idle soonest, as many as are missing."""
    have = sum(site.free for site in sites if site.serves(need))
    each = partition_count(sites[0].node.model, mode.compute)
    wanted = -(-(need.devices - have) // each)
    able = [site for site in sites if not suits(site.to, need) and _can_be(site, mode) and may_change(site, need)]
    if len(able) < wanted:
        return None
    able.sort(key=lambda site: (site.waits_s, site.now.idle_gpu_s, site.now.id))
    return _made(sites, able[:wanted], mode, need)


def _made(sites: Sequence[GpuSite], changing: list[GpuSite], mode: Mode, need: Need) -> Offer | None:
    each = partition_count(sites[0].node.model, mode.compute)
    if len(changing) * each + sum(site.free for site in sites if site.serves(need)) < need.devices:
        return None
    ready_s = max(site.waits_s for site in changing)
    idle = sum(site.now.idle_gpu_s + ready_s - site.waits_s for site in changing)
    beside = [site for site in sites if site.serves(need) and site not in changing]
    idle += ready_s * -(-sum(site.free for site in beside) // each)  # they wait for the others
    waiting = ready_s * -(-need.devices // each)  # as long as nobody's GPUs, but somebody's time
    broken = sum(1 for site in sites if not site.now.used and not site.is_moving and not suits(site.to, need))
    return Offer(sites, changing, mode, (idle + waiting, broken, ready_s, sites[0].node.name))
