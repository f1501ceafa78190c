"""Prove that no set of victims can help, before any search: sums over queues, with the numbers that prove it.

In:    queue shares, a reclaim request, all that is reclaimable.   Out: an obstacle with the numbers; None: no proof.
What queues give is bounded by their excess. Work that is moved gives nothing to a sum over all nodes, unless it is a
smaller part of a larger device; to a sum over some of the nodes or devices it may give all that it holds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.reclaimable import Amounts, Reclaimable
from kaiwo.gpus.device_fit import eligible_devices
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.obstacle import (
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
from kaiwo.queues.reclaim_rules import QueueShares, ReclaimRequest, entitled
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.node_table import CPU, EXTENDED, FREE_GPU, MEMORY, MILLI, SIZE
from kaiwo.snapshot.queue_table import GPU

MOST_NAMED = 6
_UNITS = ("milli-gpu", "milli-cpu", "mib")  # of resources
_COLUMNS = (FREE_GPU, CPU, MEMORY)  # the same resources on nodes


class NeededPods(NamedTuple):
    """Pods of one shape that must start."""

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
    models: tuple[str, ...] = ()  # of these GPU models alone
    resource: str = ""  # an extended resource

    @property
    def have(self) -> int:
        """All together."""
        return self.free + sum(self.taken.values()) + self.moved


class ReclaimBounds:
    """What one preemptor could get at most, by resource, by device and by node."""

    def __init__(
        self,
        free: CycleState,
        now: QueueShares,
        request: ReclaimRequest,
        wants: list[NeededPods],
        reclaimable: Reclaimable,
    ) -> None:
        self._free, self._working, self._now, self._request = free, free.working, now, request
        self._reclaimable, self.wants = reclaimable, wants
        self._excess = Excess(now, request, any(want.gpus for _, want, _ in self.wants))

    def short(self) -> Obstacle | None:
        """The first thing of which there is too little, whatever is stopped."""
        for most in self._all():
            if most.have < most.need:
                return self._obstacle(most)
        return None

    @cached_property
    def first(self) -> UpperBound:
        """Of the first resource that it needs; GPUs, if it needs any."""
        needed: list[int] = np.flatnonzero(self._request.need[: len(_UNITS)] > 0).tolist()
        return self._everywhere((needed or [GPU])[0])

    def undecided(self, looked_at: int) -> Obstacle:
        """The sums would be enough, and a search found no way."""
        most, queue = self.first, self._now.queues.names[self._request.queue]
        return Obstacle(Reason.NO_WAY_TO_RECLAIM, most.need, most.have, most.unit, queue, SearchGaveUp(looked_at))

    def _all(self) -> Iterator[UpperBound]:
        """Those that cost least first."""
        for resource in range(len(_UNITS)):
            if self._request.need[resource] > 0:
                yield self._everywhere(resource)
        together = [self.wants] if len(self.wants) > 1 else []
        for group in [*([each] for each in self.wants), *together]:
            yield from self._on_devices([each for each in group if each.want.gpus])
            yield from self._on_nodes(group)

    def _obstacle(self, most: UpperBound) -> Obstacle:
        names = self._now.queues.names
        taken = sorted((names[row], amount) for row, amount in most.taken.items())
        queues = tuple(QueueAmount(name, amount) for name, amount in taken[: MOST_NAMED - 1 - bool(most.moved)])
        facts = ReclaimBound(most.free, most.moved, queues, most.scope, most.models, most.resource)
        subject = names[self._request.queue]
        return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, most.need, most.have, most.unit, subject, facts)

    def _everywhere(self, resource: int) -> UpperBound:
        """The most that the rules allow of a resource."""
        free = np.maximum(self._working.free[:, _COLUMNS[resource]], 0)
        most = UpperBound(_UNITS[resource], int(self._request.need[resource]), int(free.sum()), self._given(resource))
        is_short = resource == GPU and most.have < most.need
        return most._replace(moved=self._reclaimable.moves_milli) if is_short else most

    def _given(self, resource: int) -> dict[int, int]:
        return self._excess.given(resource, self._reclaimable.amounts(resource))

    def _on_devices(self, group: list[NeededPods]) -> Iterator[UpperBound]:
        """The same of the devices that would serve it, if they are not all that there are."""
        if not group:
            return
        view, rows = self._working.view, np.arange(len(self._working.nodes.names))
        devices = np.zeros(view.nodes.gpu_model.shape, np.bool_)
        for shape, want, _ in group:
            devices |= eligible_devices(view, want, rows) & self._free.scores.state(shape).allowed[:, None]
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
        is_named = all(want.gpu_models for _, want, _ in group)
        named = tuple(models) if is_named else ()
        yield UpperBound("milli-gpu", need, free, taken, moved, ReclaimScope.ALLOWED_DEVICES, named)

    def _on_nodes(self, group: list[NeededPods]) -> Iterator[UpperBound]:
        """The same of what the nodes have that it may use; queues do not pay for extended resources."""
        nodes = np.logical_or.reduce([self._free.scores.state(shape).allowed for shape, _, _ in group])
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
                yield UpperBound(
                    unit, need, free, self._reclaimable.on_nodes(nodes, column), scope=scope, resource=resource
                )


def with_protections(verdict: Obstacle, protections: Sequence[Protection]) -> Obstacle:
    """The same with what disruption budgets, minimum run times and eviction budgets protect."""
    assert isinstance(verdict.facts, ReclaimBound | NodeBound | SearchGaveUp)
    return replace(verdict, facts=replace(verdict.facts, protections=tuple(protections)))


def _least_milli(want: Request, sizes: IntArray, parts: IntArray) -> int:
    """What one pod takes at least of devices of these sizes and parts."""
    if want.is_memory:
        return want.gpus * (want.gpu_mib * WHOLE_MILLI // max(1, int(sizes.max())))
    return want.gpus * int(parts.min()) if want.is_partition else want.charge_milli


class Excess:
    """The most that queues give of one resource, whatever units are chosen: what they use above what is protected."""

    def __init__(self, now: QueueShares, request: ReclaimRequest, has_gpus: bool) -> None:
        self._now, self._request = now, request
        self._matters: BoolArray = np.greater(request.need, 0)
        self._matters[GPU] |= has_gpus  # for memory and partitions the device decides; the least may be nothing

    def given(self, resource: int, amounts: Mapping[int, Amounts]) -> dict[int, int]:
        """By queue: what it gives of a resource, of the amounts that are there."""
        now, request = self._now, self._request
        ours, theirs = now.queues.tree.diverging_queues(request.queue)
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
        """The least excess of any queue on the way up, and no more than there is."""
        now, most = self._now, amounts.total
        for above in now.queues.path[row]:
            if above == theirs:
                break
            excess = self._excess(resource, now.used[[above]], now.quota[[above]])
            most = min(most, _rounded_up(int(excess[0]), amounts))
        return most

    def _excess_where_paths_diverge(self, resource: int, ours: Rows, theirs: Rows) -> IntArray:
        """A side keeps its quota; and its share, too, from a preemptor whose own side is over its quota."""
        now = self._now
        is_owed: BoolArray = np.all(now.used[ours] + self._request.need <= now.quota[ours], axis=1)
        share = np.maximum(now.quota[theirs], entitled(now, theirs))
        return self._excess(resource, now.used[theirs], np.where(is_owed[:, None], now.quota[theirs], share))

    def _excess(self, resource: int, used: IntArray, protected: IntArray) -> IntArray:
        """What is above what is protected. Too much of anything else that the request needs opens all of it."""
        matters = self._matters.copy()
        matters[resource] = False
        is_over: BoolArray = (used > protected) & matters
        own = used[:, resource]
        excess: IntArray = np.where(is_over.any(axis=1), own, own - protected[:, resource])
        return excess


def _rounded_up(excess: int, amounts: Amounts) -> int:
    """What units give while the queue is above its bound."""
    _, smallest, largest = amounts
    if excess <= 0 or largest == 0:
        return 0
    if smallest == largest:
        return -(-excess // largest) * largest
    return excess + largest - 1
