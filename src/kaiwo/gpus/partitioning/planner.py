"""Plan which GPUs should change their partition mode: for waiting pods, or because a PartitioningPlan requests it.

Never: plans an illegal mode, or a change under a running pod; a memory mode changes on whole nodes only.

A demand is first served from devices that are free, or will be after a change that has begun; only the rest makes
GPUs change. Devices serve as many pods as there are CPUs, memory and pod slots for. A mode that other pods wait for is
not drained unless a pod has waited too long. Ties are broken by name.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

import msgspec

from kaiwo.gpus.partitioning.planner_state import PlannedGpu, PlannedNode, UnservedDemand, could_hold, is_for, suits
from kaiwo.gpus.partitioning.planner_types import (
    GpuKey,
    ModeChangeStep,
    ModeDemand,
    NodeState,
    PartitionPlan,
    PlannerSettings,
)
from kaiwo.model.gpus.partition_modes import Mode, ModeChange, legal_modes, next_modes, partition_count

Allowed = Callable[[PlannedGpu, ModeDemand], bool]


class ChangeOffer(msgspec.Struct, frozen=True):
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
    node: PlannedNode, unserved: UnservedDemand, may_change: Allowed, may_change_memory: bool = True
) -> ChangeOffer | None:
    """Change compute modes if that is enough, otherwise the node's memory mode."""
    demand, memory = unserved.demand, node.gpus[0].to.memory
    modes = [mode for mode in legal_modes(node.now.model, node.now.platform) if suits(mode, demand)]
    for mode in modes:
        if mode.memory == memory:
            return _compute_mode_offer(node, unserved, mode, may_change)
    for mode in modes if may_change_memory else ():
        if all(_can_reach(gpu, mode) and may_change(gpu, demand) for gpu in node.gpus):
            return _make_offer(node, node.gpus, mode, demand) if unserved.find_room(node, node.gpus) else None
    return None


def _can_reach(gpu: PlannedGpu, mode: Mode) -> bool:
    return mode in next_modes(gpu.node.model, gpu.now.mode, gpu.node.platform)


def _compute_mode_offer(
    node: PlannedNode, unserved: UnservedDemand, mode: Mode, may_change: Allowed
) -> ChangeOffer | None:
    """Offer as many GPUs as are missing: those that are idle soonest and free enough CPUs and memory."""
    demand, gpus = unserved.demand, node.gpus
    have = sum(gpu.free for gpu in gpus if gpu.serves(demand))
    each = partition_count(node.now.model, mode.compute)
    wanted = -(-(demand.devices - have) // each)
    if wanted <= 0:  # there are devices, but CPUs, memory or pod slots are missing
        return None
    able = [gpu for gpu in gpus if not suits(gpu.to, demand) and _can_reach(gpu, mode) and may_change(gpu, demand)]
    if len(able) < wanted or not unserved.find_room(node, able):
        return None
    able.sort(key=lambda gpu: (gpu.now.waits_s, gpu.now.idle_gpu_s, gpu.now.id))
    windows = (able[first : first + wanted] for first in range(len(able) - wanted + 1))
    changing = next((some for some in windows if unserved.find_room(node, some)), None)
    return _make_offer(node, changing, mode, demand) if changing is not None else None


def _make_offer(
    node: PlannedNode, changing: Sequence[PlannedGpu], mode: Mode, demand: ModeDemand
) -> ChangeOffer | None:
    gpus = node.gpus
    each = partition_count(node.now.model, mode.compute)
    if len(changing) * each + sum(gpu.free for gpu in gpus if gpu.serves(demand)) < demand.devices:
        return None
    ready_s = max(gpu.now.waits_s for gpu in changing)
    idle = sum(gpu.now.idle_gpu_s + ready_s - gpu.now.waits_s for gpu in changing)
    beside = [gpu for gpu in gpus if gpu.serves(demand) and gpu not in changing]
    idle += ready_s * -(-sum(gpu.free for gpu in beside) // each)  # free devices wait for the others
    waiting = ready_s * -(-demand.devices // each)  # no GPU is idle, but the pod waits
    broken = sum(1 for gpu in gpus if not gpu.now.used and not gpu.is_moving and not suits(gpu.to, demand))
    return ChangeOffer(node, changing, mode, (idle + waiting, broken, ready_s, node.now.name))


DEFAULT_SETTINGS = PlannerSettings()


def plan_partitions(
    now_s: int, nodes: Sequence[NodeState], demands: Sequence[ModeDemand], settings: PlannerSettings = DEFAULT_SETTINGS
) -> PartitionPlan:
    """Plan the modes that the waiting pods need, the cheapest change first."""
    oldest_first = sorted(demands, key=lambda demand: (-demand.waited_s, demand.compute, demand.memory, demand.devices))
    return _Planning(now_s, nodes, settings).plan(oldest_first)


def could_serve(nodes: Sequence[NodeState], demand: ModeDemand) -> bool:
    """True if some node could hold such a pod with its GPUs in another mode, ignoring what runs there now."""
    return any(
        is_for(node, demand) and _most_devices(node, demand) >= demand.devices and could_hold(node, demand)
        for node in nodes
    )


def _most_devices(node: NodeState, demand: ModeDemand) -> int:
    open_gpus = (gpu for gpu in node.gpus if (node.name, gpu.id) not in demand.barred)
    able = (any(suits(mode, demand) for mode in next_modes(node.model, gpu.mode, node.platform)) for gpu in open_gpus)
    return sum(able) * partition_count(node.model, demand.compute)


class _Planning:
    def __init__(self, now_s: int, nodes: Sequence[NodeState], settings: PlannerSettings) -> None:
        self._now_s, self._settings = now_s, settings
        self._nodes = [PlannedNode(node) for node in sorted(nodes, key=lambda node: node.name) if node.gpus]
        # By compute mode, then by GPUs barred for them: how long the oldest unserved demand has waited.
        self._waiting: dict[str, dict[frozenset[GpuKey], int]] = {}

    def plan(self, demands: Sequence[ModeDemand]) -> PartitionPlan:
        unserved = [UnservedDemand(demand) for demand in demands]
        for each in unserved:
            self._serve(each)
        for node in self._nodes:
            _cancel_unneeded_changes(node)
        for each in unserved:
            self._serve(each)
        for each in unserved:
            if each.count:
                demand, ages = each.demand, self._waiting.setdefault(each.demand.compute, {})
                ages[demand.barred] = max(demand.waited_s, ages.get(demand.barred, 0))
        for each in unserved:
            self._change_for(each)
        steps = tuple(step for node in self._nodes for step in self._steps(node.gpus))
        return PartitionPlan(steps, tuple(each.left() for each in unserved if each.count))

    def _serve(self, unserved: UnservedDemand) -> None:
        """Take devices that are free, or will be after a change, on the fullest node first."""
        demand = unserved.demand
        here = [
            (free, node)
            for node in self._nodes
            if unserved.count and (free := _free_for(node, demand)) >= demand.devices
        ]
        for _, node in sorted(here, key=lambda each: each[0]):
            if not unserved.count:
                return
            unserved.fill(node)

    def _change_for(self, unserved: UnservedDemand) -> None:
        """Change GPUs until the demand is met or nothing more may change."""
        self._serve(unserved)  # demands before it may have left some devices
        offers = [
            offer for node in self._nodes if unserved.count and (offer := self._offer(node, unserved)) is not None
        ]
        heapify(offers)
        while unserved.count and offers:
            best = offers[0]
            best.accept()
            unserved.fill(best.node)
            again = self._offer(best.node, unserved) if unserved.count else None  # only this node has changed
            if again is None:
                heappop(offers)
            else:
                heapreplace(offers, again)

    def _offer(self, node: PlannedNode, unserved: UnservedDemand) -> ChangeOffer | None:
        if not is_for(node.now, unserved.demand):
            return None
        return offer_of(node, unserved, self._may_change, self._settings.may_change_memory)

    def _may_change(self, gpu: PlannedGpu, demand: ModeDemand) -> bool:
        settings, now = self._settings, gpu.now
        if gpu.is_assigned or now.is_changing or self._now_s - now.since_s < settings.settle_s:
            return False
        if not gpu.is_open_to(demand):
            return False
        if not now.used:
            return True
        others_s = self._longest_wait_s(gpu)
        is_theirs = others_s is not None and not others_s < demand.waited_s >= settings.starve_s
        return settings.may_drain and not is_theirs

    def _longest_wait_s(self, gpu: PlannedGpu) -> int | None:
        """The longest wait for the mode that this GPU is in, of demands that may use it; None: there are none."""
        key = (gpu.node.name, gpu.now.id)
        ages = self._waiting.get(gpu.now.mode.compute, {})
        return max((age_s for barred, age_s in ages.items() if key not in barred), default=None)

    def _steps(self, gpus: Sequence[PlannedGpu]) -> list[ModeChangeStep]:
        moving = [gpu for gpu in gpus if gpu.is_moving and not gpu.now.is_changing]
        is_memory = any(gpu.to.memory != gpu.now.mode.memory for gpu in moving)
        # With the memory mode the whole node waits for its last GPU.
        latest_s = max((gpu.now.waits_s for gpu in gpus), default=0) if is_memory else 0
        is_idle = not any(gpu.now.used for gpu in gpus)
        takes_s = self._settings.memory_s if is_memory else self._settings.compute_s
        return [
            ModeChangeStep(
                node=gpu.node.name,
                change=ModeChange(gpu.now.id, gpu.now.mode, gpu.to),
                is_due=is_idle if is_memory else not gpu.now.used,
                waits_s=max(latest_s, gpu.now.waits_s),
                takes_s=takes_s,
                idle_gpu_s=takes_s + self._idle_gpu_s(gpu, latest_s),
            )
            for gpu in moving
        ]

    def _idle_gpu_s(self, gpu: PlannedGpu, latest_s: int) -> int:
        """Idle time until the change begins: while its own work ends, then until the whole node is idle."""
        own_s = gpu.now.waits_s
        return (gpu.now.idle_gpu_s if own_s else 0) + max(0, latest_s - own_s)


def _free_for(node: PlannedNode, demand: ModeDemand) -> int:
    """Devices that serve the demand now, or will after a change."""
    return sum(gpu.free for gpu in node.gpus if gpu.serves(demand)) if is_for(node.now, demand) else 0


def _cancel_unneeded_changes(node: PlannedNode) -> None:
    """Cancel changes that no demand needs any more; a change of the memory mode only for the whole node."""
    gpus = node.gpus
    is_memory = any(gpu.to.memory != gpu.now.mode.memory for gpu in gpus)
    if is_memory and any(gpu.is_assigned or gpu.now.is_changing for gpu in gpus):
        return
    for gpu in gpus:
        if gpu.is_moving and not gpu.is_assigned and not gpu.now.is_changing:
            node.move([gpu], gpu.now.mode)


def steps_to_modes(
    nodes: Sequence[NodeState], modes: Mapping[str, Mode], most_nodes: int, settings: PlannerSettings
) -> list[ModeChangeStep]:
    """The changes to these modes: nodes that have begun continue, others begin while fewer than `most_nodes` change."""
    mine = sorted((node for node in nodes if node.name in modes), key=lambda node: (not _has_begun(node), node.name))
    steps: list[ModeChangeStep] = []
    busy = 0
    for node in mine:
        found = node_steps(node, modes[node.name], settings)
        is_changing = any(gpu.is_changing for gpu in node.gpus)
        if (found or is_changing) and busy < most_nodes:
            busy += 1
            steps += found
    return steps


def node_steps(node: NodeState, mode: Mode, settings: PlannerSettings) -> list[ModeChangeStep]:
    """A step for every GPU in another mode. For a memory mode the whole node waits for its last GPU."""
    if why_unreachable(node, mode):
        return []
    moving = [gpu for gpu in node.gpus if gpu.mode != mode and not gpu.is_changing]
    is_memory = any(gpu.mode.memory != mode.memory for gpu in moving)
    latest_s = max((gpu.waits_s for gpu in node.gpus), default=0) if is_memory else 0
    is_idle = not any(gpu.used or gpu.is_changing for gpu in node.gpus)
    takes_s = settings.memory_s if is_memory else settings.compute_s
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
