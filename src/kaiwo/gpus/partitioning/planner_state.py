"""The planner's working state: nodes and GPUs with planned modes and free capacity, and unserved demands."""

from collections.abc import Collection, Sequence
from operator import add, sub

from msgspec.structs import replace

from kaiwo.gpus.partitioning.planner_types import GpuState, ModeDemand, NodeResources, NodeState, PodSize
from kaiwo.model.gpus.partition_modes import Mode, partition_count


class PlannedGpu:
    __slots__ = ("free", "is_assigned", "node", "now", "to")

    def __init__(self, node: NodeState, now: GpuState) -> None:
        self.node, self.now = node, now
        self.is_assigned = False  # this plan uses it for a demand
        self.move(now.goal or now.mode)

    def move(self, to: Mode) -> None:
        """Plan this mode, with all its devices free."""
        self.to = to
        self.free = partition_count(self.node.model, to.compute) - (0 if self.is_moving else self.now.used)

    @property
    def is_moving(self) -> bool:
        return self.to != self.now.mode

    def is_open_to(self, demand: ModeDemand) -> bool:
        """True if no reservation bars the demand from it."""
        return not demand.barred or (self.node.name, self.now.id) not in demand.barred

    def serves(self, demand: ModeDemand) -> bool:
        """True if its planned mode suits the demand, and the demand may use it."""
        return suits(self.to, demand) and self.is_open_to(demand)


class PlannedNode:
    """A node with its planned changes.

    CPUs, memory and pod slots are counted twice: for pods that start now, and for pods that wait until a GPU has
    changed, when the resources of the work on that GPU are free too.
    """

    __slots__ = ("_later", "_now", "_taken", "gpus", "now")

    def __init__(self, now: NodeState) -> None:
        self.now, self.gpus = now, [PlannedGpu(now, gpu) for gpu in now.gpus]
        self._now: NodeResources = now.free or ()
        self._taken: NodeResources = (0,) * len(self._now)
        self._later: NodeResources | None = None  # computed on demand

    def move(self, gpus: Collection[PlannedGpu], to: Mode) -> None:
        for gpu in gpus:
            gpu.move(to)
        self._later = None

    def times(self, amounts: NodeResources, most: int = 1) -> int:
        """How many such pods fit after the changes, at most `most`."""
        return most if self.now.free is None else times_in(self.room_later(), amounts, most)

    def times_now(self, amounts: NodeResources, most: int) -> int:
        """How many such pods fit without waiting for the changes, at most `most`."""
        return most if self.now.free is None else times_in(self._now, amounts, most)

    def take(self, amounts: NodeResources, times: int, is_later: bool) -> None:
        if self.now.free is None or not amounts:
            return
        amounts = tuple(times * each for each in amounts)
        self._taken = tuple(map(add, self._taken, amounts))
        self._later = None if self._later is None else tuple(map(sub, self._later, amounts))
        if not is_later:
            self._now = tuple(map(sub, self._now, amounts))

    def room_later(self, changing: Collection[PlannedGpu] = ()) -> NodeResources:
        """The free resources once the changing GPUs, and these too, have drained."""
        if not changing and self._later is not None:
            return self._later
        leaving = {gpu.now.id for gpu in self.gpus if gpu.is_moving}.union(gpu.now.id for gpu in changing)
        room: NodeResources = tuple(map(sub, self.now.free or (), self._taken))
        for tenant in self.now.tenants if leaving else ():
            if not leaving.isdisjoint(tenant.gpus):
                room = tuple(map(add, room, tenant.amounts))
        if not changing:
            self._later = room
        return room


def times_in(room: NodeResources, amounts: NodeResources, most: int) -> int:
    """How many such pods fit, at most `most`. A resource that they don't ask for may be overcommitted."""
    for have, each in zip(room, amounts, strict=False):
        if each and each * most > have:
            most = max(0, have // each)
    return most


def could_hold(now: NodeState, demand: ModeDemand) -> bool:
    """True if CPUs, memory and a pod slot would suffice for some pod of the demand if no GPU were in use."""
    if now.free is None or not demand.sizes:
        return True
    room = now.free
    for tenant in now.tenants:
        room = tuple(map(add, room, tenant.amounts))
    return any(times_in(room, size.amounts, 1) for size in demand.sizes)


def suits(mode: Mode, demand: ModeDemand) -> bool:
    """True if a GPU in this mode has devices as the demand asks."""
    return mode.compute == demand.compute and demand.memory in ("", mode.memory)


def is_for(node: NodeState, demand: ModeDemand) -> bool:
    """True if the demand allows this node and its model."""
    return (not demand.models or node.model in demand.models) and (demand.nodes is None or node.name in demand.nodes)


class UnservedDemand:
    """The unserved pods of one demand, largest first: those fit in the fewest places."""

    __slots__ = ("_least", "_left", "_sizes", "count", "demand")

    def __init__(self, demand: ModeDemand) -> None:
        self.demand, self.count = demand, demand.count
        sizes = demand.sizes or (PodSize((), demand.count),)
        self._sizes = sorted(sizes, key=lambda size: (size.amounts, size.sharers), reverse=True)
        self._left = [size.count for size in self._sizes]
        self._least: NodeResources = tuple(map(min, zip(*(size.amounts for size in sizes), strict=True)))

    def left(self) -> ModeDemand:
        """The unserved part of the demand."""
        sizes = (replace(size, count=left) for size, left in zip(self._sizes, self._left, strict=True) if left)
        return replace(self.demand, count=self.count, sizes=tuple(sizes) if self.demand.sizes else ())

    def find_room(self, node: PlannedNode, changing: Collection[PlannedGpu]) -> bool:
        """True if at least one pod gets CPUs, memory and a pod slot once the work on these GPUs has ended."""
        if node.now.free is None or not self._least:
            return True
        room = node.room_later(changing)
        if not times_in(room, self._least, 1):
            return False
        sizes = zip(self._sizes, self._left, strict=True)
        return any(left and times_in(room, size.amounts, 1) for size, left in sizes)

    def fill(self, node: PlannedNode) -> None:
        """Give devices of this node to as many pods as fit."""
        demand = self.demand
        suitable = [gpu for gpu in node.gpus if gpu.free and gpu.serves(demand)]
        devices = sum(gpu.free for gpu in suitable)
        if devices < demand.devices or not node.times(self._least):
            return
        for at, size in enumerate(self._sizes):
            while self._left[at] and devices >= demand.devices and _take(node, suitable, demand.devices, size):
                self._left[at] -= 1
                self.count -= 1
                devices -= demand.devices
            if devices < demand.devices:
                return


def _take(node: PlannedNode, suitable: Sequence[PlannedGpu], devices: int, size: PodSize) -> bool:
    """Take the devices of one pod, preferably of GPUs that are partly used or planned for already."""
    times = node.times(size.amounts, size.sharers)
    if not times:
        return False
    now = node.times_now(size.amounts, times)
    must_wait = not now  # until the work on a changing GPU ends; then the pod must use that GPU
    if must_wait and not any(gpu.free and gpu.is_moving for gpu in suitable):
        return False
    times = now or times
    is_later = False
    begun_first = sorted(
        (gpu for gpu in suitable if gpu.free),
        key=lambda gpu: (must_wait and not gpu.is_moving, not gpu.is_assigned, gpu.is_moving, gpu.free),
    )
    for gpu in begun_first:
        taken = min(devices, gpu.free)
        gpu.free -= taken
        gpu.is_assigned = True
        is_later |= gpu.is_moving
        devices -= taken
        if not devices:
            break
    node.take(size.amounts, times, is_later)
    return True
