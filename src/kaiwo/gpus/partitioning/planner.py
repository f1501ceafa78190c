"""Plan which GPUs should change their partition mode: for waiting pods, or because a PartitioningPlan requests it.

Never: plans an illegal mode, or a change under a running pod; a memory mode changes on whole nodes only.

A demand is first served from devices that are free, or will be after a change that has begun; only the rest makes
GPUs change. Devices serve as many pods as there are CPUs, memory and pod slots for. A mode that other pods wait for is
not drained unless a pod has waited too long. Ties are broken by name.
"""

from collections.abc import Callable, Mapping, Sequence
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
    """Change compute modes if that is enough, otherwise the node's memory mode."""
    need, memory = asked.need, node.gpus[0].to.memory
    modes = [mode for mode in legal_modes(node.now.model, node.now.platform) if suits(mode, need)]
    for mode in modes:
        if mode.memory == memory:
            return _by_compute(node, asked, mode, may_change)
    for mode in modes if may_change_memory else ():
        if all(_can_reach(site, mode) and may_change(site, need) for site in node.gpus):
            return _make_offer(node, node.gpus, mode, need) if asked.find_room(node, node.gpus) else None
    return None


def _can_reach(site: PlannedGpu, mode: Mode) -> bool:
    return mode in next_modes(site.node.model, site.now.mode, site.node.platform)


def _by_compute(node: PlannedNode, asked: UnservedDemand, mode: Mode, may_change: Allowed) -> ChangeOffer | None:
    """As many GPUs as are missing: those that are idle soonest and free enough CPUs and memory."""
    need, sites = asked.need, node.gpus
    have = sum(site.free for site in sites if site.serves(need))
    each = partition_count(node.now.model, mode.compute)
    wanted = -(-(need.devices - have) // each)
    if wanted <= 0:  # there are devices, but CPUs, memory or pod slots are missing
        return None
    able = [site for site in sites if not suits(site.to, need) and _can_reach(site, mode) and may_change(site, need)]
    if len(able) < wanted or not asked.find_room(node, able):
        return None
    able.sort(key=lambda site: (site.now.waits_s, site.now.idle_gpu_s, site.now.id))
    windows = (able[first : first + wanted] for first in range(len(able) - wanted + 1))
    changing = next((some for some in windows if asked.find_room(node, some)), None)
    return _make_offer(node, changing, mode, need) if changing is not None else None


def _make_offer(node: PlannedNode, changing: Sequence[PlannedGpu], mode: Mode, need: ModeDemand) -> ChangeOffer | None:
    sites = node.gpus
    each = partition_count(node.now.model, mode.compute)
    if len(changing) * each + sum(site.free for site in sites if site.serves(need)) < need.devices:
        return None
    ready_s = max(site.now.waits_s for site in changing)
    idle = sum(site.now.idle_gpu_s + ready_s - site.now.waits_s for site in changing)
    beside = [site for site in sites if site.serves(need) and site not in changing]
    idle += ready_s * -(-sum(site.free for site in beside) // each)  # free devices wait for the others
    waiting = ready_s * -(-need.devices // each)  # no GPU is idle, but the pod waits
    broken = sum(1 for site in sites if not site.now.used and not site.is_moving and not suits(site.to, need))
    return ChangeOffer(node, changing, mode, (idle + waiting, broken, ready_s, node.now.name))


DEFAULT_TERMS = PlannerSettings()


def plan_partitions(
    now_s: int, nodes: Sequence[NodeState], needs: Sequence[ModeDemand], terms: PlannerSettings = DEFAULT_TERMS
) -> PartitionPlan:
    """Plan the modes that the waiting pods need, the cheapest change first."""
    oldest_first = sorted(needs, key=lambda need: (-need.waited_s, need.compute, need.memory, need.devices))
    return _Planning(now_s, nodes, terms).plan(oldest_first)


def could_serve(nodes: Sequence[NodeState], need: ModeDemand) -> bool:
    """Some node could hold such a pod with its GPUs in another mode, ignoring what runs there now."""
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
        # By compute mode, then by GPUs barred for them: how long the oldest unserved demand has waited.
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
        """Take devices that are free, or will be after a change, on the fullest node first."""
        need = asked.need
        here = [(free, node) for node in self._nodes if asked.count and (free := _free_for(node, need)) >= need.devices]
        for _, node in sorted(here, key=lambda each: each[0]):
            if not asked.count:
                return
            asked.fill(node)

    def _change_for(self, asked: UnservedDemand) -> None:
        """Change GPUs until the demand is met or nothing more may change."""
        self._serve(asked)  # demands before it may have left some devices
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
        """The longest wait for the mode that this GPU is in, of demands that may use it; None: there are none."""
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
        """Evict its workloads: that loses less than waiting for them."""
        return self._terms.may_evict and site.now.used > 0 and site.now.lost_gpu_s < site.now.free_in_s

    def _waits_s(self, site: PlannedGpu) -> int:
        return 0 if self._evicts(site) else site.now.waits_s

    def _idle_gpu_s(self, site: PlannedGpu, latest_s: int) -> int:
        """Idle time until the change begins: while its own work ends, then until the whole node is idle."""
        own_s = self._waits_s(site)
        return (site.now.idle_gpu_s if own_s else 0) + max(0, latest_s - own_s)


def _free_for(node: PlannedNode, need: ModeDemand) -> int:
    """Devices that serve the demand now, or will after a change."""
    return sum(site.free for site in node.gpus if site.serves(need)) if is_for(node.now, need) else 0


def _take_back(node: PlannedNode) -> None:
    """Cancel changes that no demand needs any more; a change of the memory mode only for the whole node."""
    sites = node.gpus
    is_memory = any(site.to.memory != site.now.mode.memory for site in sites)
    if is_memory and any(site.is_promised or site.now.is_changing for site in sites):
        return
    for site in sites:
        if site.is_moving and not site.is_promised and not site.now.is_changing:
            node.move([site], site.now.mode)


def steps_to_modes(
    nodes: Sequence[NodeState], modes: Mapping[str, Mode], most_nodes: int, terms: PlannerSettings
) -> list[ModeChangeStep]:
    """The changes to these modes: nodes that have begun continue, others begin while fewer than `most_nodes` change."""
    mine = sorted((node for node in nodes if node.name in modes), key=lambda node: (not _has_begun(node), node.name))
    steps: list[ModeChangeStep] = []
    busy = 0
    for node in mine:
        found = node_steps(node, modes[node.name], terms)
        is_changing = any(gpu.is_changing for gpu in node.gpus)
        if (found or is_changing) and busy < most_nodes:
            busy += 1
            steps += found
    return steps


def node_steps(node: NodeState, mode: Mode, terms: PlannerSettings) -> list[ModeChangeStep]:
    """A step for every GPU in another mode. For a memory mode the whole node waits for its last GPU."""
    if why_unreachable(node, mode):
        return []
    moving = [gpu for gpu in node.gpus if gpu.mode != mode and not gpu.is_changing]
    is_memory = any(gpu.mode.memory != mode.memory for gpu in moving)
    latest_s = max((gpu.waits_s for gpu in node.gpus), default=0) if is_memory else 0
    is_idle = not any(gpu.used or gpu.is_changing for gpu in node.gpus)
    takes_s = terms.memory_s if is_memory else terms.compute_s
    return [
        ModeChangeStep(
            node=node.name,
            change=ModeChange(gpu.id, gpu.mode, mode),
            is_due=is_idle if is_memory else not gpu.used,
            waits_s=max(latest_s, gpu.waits_s),
            takes_s=takes_s,
            idle_gpu_s=takes_s + gpu.idle_gpu_s + max(0, latest_s - gpu.waits_s),
        )
        for gpu in moving
    ]


def why_unreachable(node: NodeState, mode: Mode) -> str:
    """Why a node can't reach the mode; empty if it can."""
    for gpu in node.gpus:
        if mode not in next_modes(node.model, gpu.mode, node.platform):
            return f"{node.model} ({node.platform}) cannot go from {'+'.join(gpu.mode)} to {'+'.join(mode)}"
    return ""


def _has_begun(node: NodeState) -> bool:
    return any(gpu.is_changing or gpu.goal is not None for gpu in node.gpus)
