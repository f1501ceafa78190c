"""Plan which GPUs should change their partition mode.

In:    nodes with their modes and what runs there, the waiting needs, the terms.   Out: one PartitionPlan.
Never: names an illegal mode, or a change that is due under a running pod; a memory mode changes on whole nodes only.

A need is first served from what is free or on its way; only what is missing then makes GPUs change. Devices serve as
many pods as find CPUs, memory and slots beside them. A mode that others wait for is not drained, unless somebody has
waited too long. Ties fall to names.

Also: What one node would have to change for one more pod, and what that would cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from kaiwo.gpus.partitioning.planner_state import PlannedGpu, PlannedNode, UnservedDemand, could_hold, is_for, suits
from kaiwo.gpus.partitioning.planner_types import (
    GpuKey,
    ModeChangeStep,
    ModeDemand,
    NodeState,
    PartitionPlan,
    PlannerSettings,
)
from kaiwo.model.partition_modes import Mode, ModeChange, legal_modes, next_modes, partition_count

Allowed = Callable[[PlannedGpu, ModeDemand], bool]


@dataclass(frozen=True, slots=True)
class ChangeOffer:
    """GPUs of one node, and the mode they would take."""

    node: PlannedNode
    changing: Sequence[PlannedGpu]
    mode: Mode
    cost: tuple[int, int, int, str]  # GPU-seconds idle and waited for, idle GPUs broken into, seconds, name

    def __lt__(self, other: "ChangeOffer") -> bool:
        return self.cost < other.cost

    def accept(self) -> None:
        self.node.move(self.changing, self.mode)


def offer_of(
    node: PlannedNode, asked: UnservedDemand, may_change: Allowed, may_change_memory: bool = True
) -> ChangeOffer | None:
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


def _can_be(site: PlannedGpu, mode: Mode) -> bool:
    return mode in next_modes(site.node.model, site.now.mode, site.node.platform)


def _by_compute(node: PlannedNode, asked: UnservedDemand, mode: Mode, may_change: Allowed) -> ChangeOffer | None:
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


def _made(node: PlannedNode, changing: Sequence[PlannedGpu], mode: Mode, need: ModeDemand) -> ChangeOffer | None:
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
    return ChangeOffer(node, changing, mode, (idle + waiting, broken, ready_s, node.now.name))


DEFAULT_TERMS = PlannerSettings()


def plan_partitions(
    now_s: int, nodes: Sequence[NodeState], needs: Sequence[ModeDemand], terms: PlannerSettings = DEFAULT_TERMS
) -> PartitionPlan:
    """The modes that the waiting work needs, the cheapest change first."""
    oldest_first = sorted(needs, key=lambda need: (-need.waited_s, need.compute, need.memory, need.devices))
    return _Planning(now_s, nodes, terms).plan(oldest_first)


def could_serve(nodes: Sequence[NodeState], need: ModeDemand) -> bool:
    """Some node could hold such a pod if its GPUs were in another mode, whatever runs there now."""
    return any(
        is_for(node, need) and _most_devices(node, need) >= need.devices and could_hold(node, need) for node in nodes
    )


def _most_devices(node: NodeState, need: ModeDemand) -> int:
    open_gpus = (gpu for gpu in node.gpus if (node.name, gpu.id) not in need.barred)
    able = (any(suits(mode, need) for mode in next_modes(node.model, gpu.mode, node.platform)) for gpu in open_gpus)
    return sum(able) * partition_count(node.model, need.compute)


class _Planning:
    def __init__(self, now_s: int, nodes: Sequence[NodeState], terms: PlannerSettings) -> None:
        self._now_s, self._terms = now_s, terms
        self._nodes = [PlannedNode(node) for node in sorted(nodes, key=lambda node: node.name) if node.gpus]
        # By compute mode, then by what they are barred from: the age of the oldest who waits for it in vain.
        self._waiting: dict[str, dict[frozenset[GpuKey], int]] = {}

    def plan(self, needs: Sequence[ModeDemand]) -> PartitionPlan:
        asked = [UnservedDemand(need) for need in needs]
        for each in asked:
            self._serve(each)
        for node in self._nodes:
            _take_back(node)
        for each in asked:
            self._serve(each)
        for each in asked:
            if each.count:
                need, ages = each.need, self._waiting.setdefault(each.need.compute, {})
                ages[need.barred] = max(need.waited_s, ages.get(need.barred, 0))
        for each in asked:
            self._change_for(each)
        steps = tuple(step for node in self._nodes for step in self._steps(node.gpus))
        return PartitionPlan(steps, tuple(each.left() for each in asked if each.count))

    def _serve(self, asked: UnservedDemand) -> None:
        """Take what is free or on its way, the fullest node first."""
        need = asked.need
        here = [(free, node) for node in self._nodes if asked.count and (free := _free_for(node, need)) >= need.devices]
        for _, node in sorted(here, key=lambda each: each[0]):
            if not asked.count:
                return
            asked.fill(node)

    def _change_for(self, asked: UnservedDemand) -> None:
        """Change GPUs until the need is met or nothing more may change."""
        self._serve(asked)  # those before may have left something over
        offers = [offer for node in self._nodes if asked.count and (offer := self._offer(node, asked)) is not None]
        heapify(offers)
        while asked.count and offers:
            best = offers[0]
            best.accept()
            asked.fill(best.node)
            again = self._offer(best.node, asked) if asked.count else None  # only this node has changed
            if again is None:
                heappop(offers)
            else:
                heapreplace(offers, again)

    def _offer(self, node: PlannedNode, asked: UnservedDemand) -> ChangeOffer | None:
        if not is_for(node.now, asked.need):
            return None
        return offer_of(node, asked, self._may_change, self._terms.may_change_memory)

    def _may_change(self, site: PlannedGpu, need: ModeDemand) -> bool:
        terms, now = self._terms, site.now
        if site.is_promised or now.is_changing or self._now_s - now.since_s < terms.settle_s:
            return False
        if not site.is_open_to(need):
            return False
        if not now.used:
            return True
        others_s = self._longest_wait_s(site)
        is_theirs = others_s is not None and not others_s < need.waited_s >= terms.starve_s
        return terms.may_drain and not is_theirs

    def _longest_wait_s(self, site: PlannedGpu) -> int | None:
        """Of those who wait for the mode that a GPU is in and may use it; None: nobody does."""
        key = (site.node.name, site.now.id)
        ages = self._waiting.get(site.now.mode.compute, {})
        return max((age_s for barred, age_s in ages.items() if key not in barred), default=None)

    def _steps(self, sites: Sequence[PlannedGpu]) -> list[ModeChangeStep]:
        moving = [site for site in sites if site.is_moving and not site.now.is_changing]
        is_memory = any(site.to.memory != site.now.mode.memory for site in moving)
        # With the memory mode the whole node waits for its last GPU.
        latest_s = max((self._waits_s(site) for site in sites), default=0) if is_memory else 0
        is_idle = not any(site.now.used for site in sites)
        takes_s = self._terms.memory_s if is_memory else self._terms.compute_s
        return [
            ModeChangeStep(
                node=site.node.name,
                change=ModeChange(site.now.id, site.now.mode, site.to),
                is_due=is_idle if is_memory else not site.now.used,
                waits_s=max(latest_s, self._waits_s(site)),
                takes_s=takes_s,
                idle_gpu_s=takes_s + self._idle_gpu_s(site, latest_s),
                evicts=self._evicts(site),
                evicted_gpu_s=site.now.lost_gpu_s if self._evicts(site) else 0,
            )
            for site in moving
        ]

    def _evicts(self, site: PlannedGpu) -> bool:
        """Its work is ended: that loses less than waiting for it."""
        return self._terms.may_evict and site.now.used > 0 and site.now.lost_gpu_s < site.now.free_in_s

    def _waits_s(self, site: PlannedGpu) -> int:
        return 0 if self._evicts(site) else site.waits_s

    def _idle_gpu_s(self, site: PlannedGpu, latest_s: int) -> int:
        """Until the change begins: while its own work ends, then until the last of the node is idle."""
        own_s = self._waits_s(site)
        return (site.now.idle_gpu_s if own_s else 0) + max(0, latest_s - own_s)


def _free_for(node: PlannedNode, need: ModeDemand) -> int:
    """Devices that serve it now, or will when their GPU has changed."""
    return sum(site.free for site in node.gpus if site.serves(need)) if is_for(node.now, need) else 0


def _take_back(node: PlannedNode) -> None:
    """Nobody needs these changes any more: the GPUs stay as they are. A node's memory mode is one decision."""
    sites = node.gpus
    is_memory = any(site.to.memory != site.now.mode.memory for site in sites)
    if is_memory and any(site.is_promised or site.now.is_changing for site in sites):
        return
    for site in sites:
        if site.is_moving and not site.is_promised and not site.now.is_changing:
            node.move([site], site.now.mode)
