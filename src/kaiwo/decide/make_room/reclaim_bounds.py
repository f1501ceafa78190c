"""Bounds that prove reclaim impossible: by sums over queues before any search, and by single nodes after it.

A queue gives at most its excess. Moving work frees nothing in a sum over all nodes, unless it becomes a smaller part of
a larger device; in a sum over some of the nodes or devices, it may free all that it holds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.make_room.reclaimable import Amounts, Reclaimable
from kaiwo.decide.obstacles.availability import availability_in
from kaiwo.decide.obstacles.shortages import short_of
from kaiwo.decide.placement.level_room import level_obstacle, rows_by_part, tightest_room, wanted_by_role
from kaiwo.decide.placement.node_fit import pods_that_fit
from kaiwo.gpus.device_fit import eligible_devices
from kaiwo.model.obstacle import (
    LevelShort,
    NodeBound,
    Obstacle,
    Protection,
    QueueAmount,
    Reason,
    ReclaimBound,
    ReclaimScope,
    SearchGaveUp,
)
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.queues.reclaim_rules import QueueShares, ReclaimRequest, entitled
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.backlog import WaitingClass, needs_to_make_room_for
from kaiwo.snapshot.node_table import CPU, EXTENDED, FREE_GPU, MEMORY, MILLI, SIZE
from kaiwo.snapshot.queue_table import GPU
from kaiwo.snapshot.view import NO_TENANTS

MAX_NAMED = 6
_UNITS = ("milli-gpu", "milli-cpu", "mib")  # of resources
_COLUMNS = (FREE_GPU, CPU, MEMORY)  # the same resources on nodes


class NeededPods(NamedTuple):
    shape: int
    want: Request
    needed: int


class UpperBound(NamedTuple):
    """An upper bound on what a preemptor could ever get of something, and what it needs of it."""

    unit: str  # empty: an extended resource
    need: int
    free: int  # free on nodes, or being released
    taken: Mapping[int, int]  # by row of a queue, the most that may be taken from it
    moved: int = 0  # the most that moving work brings
    scope: ReclaimScope = ReclaimScope.CLUSTER
    models: tuple[str, ...] = ()  # of these GPU models only
    resource: str = ""  # an extended resource

    @property
    def have(self) -> int:
        return self.free + sum(self.taken.values()) + self.moved


class ReclaimBounds:
    """What one preemptor could get at most: in the whole cluster, on devices, and on nodes."""

    def __init__(
        self,
        cycle_state: CycleState,
        shares: QueueShares,
        request: ReclaimRequest,
        wants: list[NeededPods],
        reclaimable: Reclaimable,
    ) -> None:
        self._cycle_state, self._working = cycle_state, cycle_state.working
        self._shares, self._request = shares, request
        self._reclaimable, self.wants = reclaimable, wants
        self._excess = Excess(shares, request, any(want.gpus for _, want, _ in self.wants))

    def short(self) -> Obstacle | None:
        """The first resource of which there is too little, whatever is stopped."""
        for most in self._all():
            if most.have < most.need:
                return self._obstacle(most)
        return None

    def undecided(self, tried: int) -> Obstacle:
        """The sums would be enough, but the search found no way. It names the first resource that is needed."""
        needed: list[int] = np.flatnonzero(self._request.need[: len(_UNITS)] > 0).tolist()
        most, queue = self._everywhere((needed or [GPU])[0]), self._shares.queues.names[self._request.queue]
        return Obstacle(Reason.NO_WAY_TO_RECLAIM, most.need, most.have, most.unit, queue, SearchGaveUp(tried))

    def _all(self) -> Iterator[UpperBound]:
        """The cheapest bounds first."""
        for resource in range(len(_UNITS)):
            if self._request.need[resource] > 0:
                yield self._everywhere(resource)
        together = [self.wants] if len(self.wants) > 1 else []
        for group in [*([each] for each in self.wants), *together]:
            yield from self._on_devices([each for each in group if each.want.gpus])
            yield from self._on_nodes(group)

    def _obstacle(self, most: UpperBound) -> Obstacle:
        names = self._shares.queues.names
        taken = sorted((names[row], amount) for row, amount in most.taken.items())
        queues = tuple(QueueAmount(name, amount) for name, amount in taken[: MAX_NAMED - 1 - bool(most.moved)])
        facts = ReclaimBound(most.free, most.moved, queues, most.scope, most.models, most.resource)
        subject = names[self._request.queue]
        return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, most.need, most.have, most.unit, subject, facts)

    def _everywhere(self, resource: int) -> UpperBound:
        free = np.maximum(self._working.free[:, _COLUMNS[resource]], 0)
        taken = self._excess.given(resource, self._reclaimable.amounts(resource))
        need = int(self._request.need[resource]) - (self._rounded_milli if resource == GPU else 0)
        most = UpperBound(_UNITS[resource], need, int(free.sum()), taken)
        is_short = resource == GPU and most.have < most.need
        return most._replace(moved=self._reclaimable.moves_milli) if is_short else most

    @property
    def _rounded_milli(self) -> int:
        """What its queue is charged for memory beyond the milli that devices must have free."""
        largest_mib = self._cycle_state.charges.largest_mib
        by_memory = [(want, needed) for _, want, needed in self.wants if want.is_memory]
        each = (want.charge_on(largest_mib) - want.milli_on(largest_mib) for want, _ in by_memory)
        return sum(needed * want.gpus * milli for (want, needed), milli in zip(by_memory, each, strict=True))

    def _on_devices(self, group: list[NeededPods]) -> Iterator[UpperBound]:
        """The bound of the devices that it may use, if those are not all."""
        if not group:
            return
        view, rows = self._working.view, np.arange(len(self._working.nodes.names))
        devices = np.zeros(view.nodes.gpu_model.shape, np.bool_)
        for shape, want, _ in group:
            devices |= eligible_devices(view, want, rows) & self._cycle_state.scores.state(shape).allowed[:, None]
        if not devices.any() or (devices | (view.nodes.device_milli == 0)).all():
            return
        sizes, parts = view.gpus[:, SIZE][devices], view.nodes.device_milli[devices]
        need = sum(needed * _least_milli(want, sizes, parts) for _, want, needed in group)
        free = int(np.maximum(view.gpus[:, MILLI] * devices, 0).sum() + self._reclaimable.own.milli_on(devices).sum())
        if free >= need:
            return
        held, units = self._reclaimable.on_devices(devices), self._reclaimable.amounts(GPU)
        there = {row: units.get(row, Amounts())._replace(total=milli) for row, milli in held.items()}
        taken = self._excess.given(GPU, there)
        moved = sum(held.values()) - sum(taken.values())
        if free + sum(taken.values()) < need:
            moved = min(moved, self._reclaimable.could_leave(devices))
        models = sorted({model for _, want, _ in group for model in want.gpu_models})
        named = tuple(models) if all(want.gpu_models for _, want, _ in group) else ()
        yield UpperBound("milli-gpu", need, free, taken, moved, ReclaimScope.ALLOWED_DEVICES, named)

    def _on_nodes(self, group: list[NeededPods]) -> Iterator[UpperBound]:
        """The bounds of the nodes that it may use; queues do not pay for extended resources."""
        nodes = np.logical_or.reduce([self._cycle_state.scores.state(shape).allowed for shape, _, _ in group])
        names = self._working.nodes.extended_names
        needs: dict[tuple[str, str, int], int] = defaultdict(int)  # by extended resource, unit and column
        for _, want, needed in group:
            if nodes.any() and not nodes.all():
                needs["", "milli-cpu", CPU] += needed * want.cpu_milli
                needs["", "mib", MEMORY] += needed * want.memory_mib
            for name, amount in want.extended:
                if name in names:
                    needs[name, "", EXTENDED + names.index(name)] += needed * amount
        for (resource, unit, column), need in needs.items():
            own = self._reclaimable.own.amounts[:, column].sum()
            free = int(np.maximum(self._working.free[nodes, column], 0).sum() + own)
            if need > free:
                scope = ReclaimScope.CLUSTER if resource else ReclaimScope.ALLOWED_NODES
                taken = self._reclaimable.on_nodes(nodes, column)
                yield UpperBound(unit, need, free, taken, scope=scope, resource=resource)


def with_protections(verdict: Obstacle, protections: Sequence[Protection]) -> Obstacle:
    """The same with what disruption budgets, minimum run times and eviction budgets protect."""
    assert isinstance(verdict.facts, ReclaimBound | NodeBound | SearchGaveUp)
    return replace(verdict, facts=replace(verdict.facts, protections=tuple(protections)))


def _least_milli(want: Request, sizes: IntArray, parts: IntArray) -> int:
    if want.is_memory:
        return want.gpus * want.milli_on(int(sizes.max()))
    return want.gpus * int(parts.min()) if want.is_partition else want.least_milli


class Excess:
    """The most that queues give of one resource, whatever units are chosen: their usage above what is protected."""

    def __init__(self, shares: QueueShares, request: ReclaimRequest, has_gpus: bool) -> None:
        self._shares, self._request = shares, request
        self._matters: BoolArray = np.greater(request.need, 0)
        self._matters[GPU] |= has_gpus  # for memory and partitions the device decides; the least may be 0

    def given(self, resource: int, amounts: Mapping[int, Amounts]) -> dict[int, int]:
        """By queue: what it gives of a resource, at most the amounts that its units hold."""
        shares, request = self._shares, self._request
        ours, theirs = shares.queues.tree.diverging_queues(request.queue)
        leaves = np.array(sorted(amounts), np.intp)
        excess = self._excess_where_paths_diverge(resource, ours[leaves], theirs[leaves]).tolist()
        by_side: dict[int, list[int]] = defaultdict(list)
        for at, side in enumerate(theirs[leaves].tolist()):
            if excess[at] > 0:
                by_side[side].append(at)
        taken: dict[int, int] = {}
        for side, places in by_side.items():
            each = [amounts[int(leaves[at])] for at in places]
            together = Amounts(0, min(one.smallest for one in each), max(one.largest for one in each))
            left = _rounded_up(excess[places[0]], together)
            for at, one in zip(places, each, strict=True):
                row = int(leaves[at])
                amount = taken[row] = min(self._from_queue(resource, side, row, one), left)
                left -= amount
        return {row: amount for row, amount in taken.items() if amount}

    def _from_queue(self, resource: int, theirs: int, row: int, amounts: Amounts) -> int:
        """The least excess of any queue up the tree, and no more than its units hold."""
        shares, most = self._shares, amounts.total
        for above in shares.queues.path[row]:
            if above == theirs:
                break
            excess = self._excess(resource, shares.used[[above]], shares.quota[[above]])
            most = min(most, _rounded_up(int(excess[0]), amounts))
        return most

    def _excess_where_paths_diverge(self, resource: int, ours: Rows, theirs: Rows) -> IntArray:
        """A side keeps its quota. From a preemptor whose side is over its quota, it also keeps its fair share."""
        shares = self._shares
        is_owed: BoolArray = np.all(shares.used[ours] + self._request.need <= shares.quota[ours], axis=1)
        share = np.maximum(shares.quota[theirs], entitled(shares, theirs))
        return self._excess(resource, shares.used[theirs], np.where(is_owed[:, None], shares.quota[theirs], share))

    def _excess(self, resource: int, used: IntArray, protected: IntArray) -> IntArray:
        """The usage above what is protected; all of it where the queue is over in another resource that matters."""
        matters = self._matters.copy()
        matters[resource] = False
        is_over: BoolArray = (used > protected) & matters
        own = used[:, resource]
        excess: IntArray = np.where(is_over.any(axis=1), own, own - protected[:, resource])
        return excess


def _rounded_up(excess: int, amounts: Amounts) -> int:
    """The most that stopping units can free: the last one may take the queue below its bound."""
    _, smallest, largest = amounts
    if excess <= 0 or largest == 0:
        return 0
    if smallest == largest:
        return -(-excess // largest) * largest
    return excess + largest - 1


_COUNTED = (
    Reason.NOT_ENOUGH_MEMORY, Reason.NOT_ENOUGH_FREE_GPU_MEMORY, Reason.NOT_ENOUGH_FREE_GPU_SHARE,
    Reason.NOT_ENOUGH_FREE_GPUS, Reason.NOT_ENOUGH_CPU, Reason.NOT_ENOUGH_PODS, Reason.NOT_ENOUGH_EXTENDED,
)  # fmt: skip


def node_bounds(
    cycle_state: CycleState, reclaimable: Reclaimable, wants: list[NeededPods], queue: str
) -> Obstacle | None:
    """Prove that no node would have room even if everything on it stopped, though the sums are enough."""
    free, gpus = reclaimable.amounts_if_all_stopped
    for shape, want, needed in wants:
        rows = np.flatnonzero(cycle_state.scores.state(shape).allowed)
        # A tenant that excludes others from its device may be gone by then.
        after = cycle_state.working.view.with_amounts(rows, free[rows], gpus[rows], NO_TENANTS)
        room = int(pods_that_fit(after, want, rows).sum())
        if len(rows) and room < needed:
            for each in short_of(after, want, rows, availability_in(after, want, rows)) if not room else ():
                if each.reason in _COUNTED and each.have < each.need:
                    facts = NodeBound(each.reason, each.subject if each.reason is Reason.NOT_ENOUGH_EXTENDED else "")
                    return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, each.need, each.have, each.unit, queue, facts)
            return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, needed, room, "pods", queue, NodeBound())
    return None


def level_bounds(
    cycle: CycleInput,
    cycle_state: CycleState,
    reclaimable: Reclaimable,
    workload: Workload,
    waiting_class: WaitingClass,
) -> Obstacle | None:
    """Prove that no domain of a required level would have room even if everything stopped that may."""
    levels = waiting_class.signature.levels
    if levels is None or not levels.requires:
        return None
    free, gpus = reclaimable.amounts_if_all_stopped
    nodes, every = cycle_state.working.nodes, np.arange(len(free))
    after = cycle_state.working.view.with_amounts(every, free, gpus, NO_TENANTS)

    def slots_of(shape: int) -> IntArray:
        fitting: IntArray = pods_that_fit(after, cycle.state.backlog.shapes[shape], every)
        return fitting * cycle_state.scores.state(shape).allowed

    wanted = wanted_by_role(cycle.state, workload, needs_to_make_room_for(waiting_class))
    homes = rows_by_part(cycle.state, nodes, workload, levels)
    found = tightest_room(nodes, levels, wanted, slots_of, homes)
    if found is None or not isinstance(facts := level_obstacle(levels, found).facts, LevelShort):
        return None
    bound = NodeBound(level=facts.level, domain=facts.domain)
    return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, found.need, found.have, "pods", waiting_class.queue, bound)
