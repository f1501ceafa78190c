"""Prove that no set of victims can help, before any search: sums over queues, with the numbers that prove it.

In:    how the queues stand, a claim, all that may be taken for it.   Out: an obstacle with the numbers; None: no proof.
What queues give is bounded by their excess. Work that is moved gives nothing to a sum over all nodes, unless it is a
smaller part of a larger device; to a sum over some of the nodes or devices it may give all that it holds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.desk import Desk
from kaiwo.decide.excess import Excess
from kaiwo.decide.takeable import Amounts, Takeable
from kaiwo.gpus.fit import eligible
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.queues.reclaim_rules import Claim, Standing
from kaiwo.snapshot.arrays import IntArray
from kaiwo.snapshot.backlog import Needs
from kaiwo.snapshot.nodes import CPU, EXTENDED, GPU_LEFT, MEMORY, MILLI, SIZE
from kaiwo.snapshot.queues import GPU

MOST_NAMED = 6
NONE_TRIED = "undecided: nothing was tried, since no work that goes first stands where it would help"
SOME_NODES = " on the nodes that it may use"
_UNITS = (("milli-gpu", "milli-GPU"), ("milli-cpu", "milli-CPU"), ("mib", "MiB"))  # of resources, and in words
_COLUMNS = (GPU_LEFT, CPU, MEMORY)  # the same resources on nodes


Pods = tuple[int, Request, int]  # a shape, what one pod of it asks for, and how many must start


class Most(NamedTuple):
    """An upper bound on what a claim could ever have of something, and what it needs of it."""

    what: str  # in words, with its unit
    unit: str
    need: int
    free: int  # free on nodes, or being released
    taken: Mapping[int, int]  # by row of a queue, the most that may be taken from it
    moved: int = 0  # the most that moving work brings

    @property
    def have(self) -> int:
        """All together."""
        return self.free + sum(self.taken.values()) + self.moved


class Sums:
    """What one claim could have at most, by resource, by device and by node."""

    def __init__(self, desk: Desk, now: Standing, claim: Claim, needs: Needs, takes: Takeable) -> None:
        self._desk, self._now, self._claim, self._takes = desk, now, claim, takes
        shapes = desk.picture.backlog.shapes
        self.wants: list[Pods] = [(shape, shapes[shape], needed) for shape, _, needed in needs if needed]
        self._excess = Excess(now, claim, any(want.gpus for _, want, _ in self.wants))

    def short(self) -> Obstacle | None:
        """The first thing of which there is too little, whatever went."""
        for most in self._all():
            if most.have < most.need:
                return self._told(most)
        return None

    @cached_property
    def first(self) -> Most:
        """Of the first resource that it needs; GPUs, if it needs any."""
        needed: list[int] = np.flatnonzero(self._claim.need[: len(_UNITS)] > 0).tolist()
        return self._everywhere((needed or [GPU])[0])

    def undecided(self, looked_at: int) -> Obstacle:
        """The sums would do, and a search found no way."""
        searched = (
            f"undecided: {looked_at} pieces of running work were tried in their order" if looked_at else NONE_TRIED
        )
        most, queue = self.first, self._now.queues.names[self._claim.queue]
        return Obstacle(Reason.NO_WAY_TO_RECLAIM, most.need, most.have, most.unit, queue, searched)

    def _all(self) -> Iterator[Most]:
        """Those that cost least first."""
        for resource in range(len(_UNITS)):
            if self._claim.need[resource] > 0:
                yield self._everywhere(resource)
        together = [self.wants] if len(self.wants) > 1 else []
        for group in [*([each] for each in self.wants), *together]:
            yield from self._on_devices([each for each in group if each[1].gpus])
            yield from self._on_nodes(group)

    def _told(self, most: Most) -> Obstacle:
        names = self._now.queues.names
        parts = [f"{most.free} free"] + ([f"{most.moved} by moving work"] if most.moved else [])
        parts += [f"{amount} in {name}" for name, amount in sorted((names[row], most.taken[row]) for row in most.taken)]
        detail = f"{most.what}: {', '.join(parts[:MOST_NAMED])}"
        subject = names[self._claim.queue]
        return Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, most.need, most.have, most.unit, subject, detail)

    def _everywhere(self, resource: int) -> Most:
        """Nothing that the rules allow gives more of a resource than this."""
        free = np.maximum(self._desk.working.free[:, _COLUMNS[resource]], 0)
        unit, what = _UNITS[resource]
        most = Most(what, unit, int(self._claim.need[resource]), int(free.sum()), self._given(resource))
        is_short = resource == GPU and most.have < most.need
        return most._replace(moved=self._takes.moves_milli) if is_short else most

    def _given(self, resource: int) -> dict[int, int]:
        return self._excess.given(resource, self._takes.amounts(resource))

    def _on_devices(self, group: list[Pods]) -> Iterator[Most]:
        """The same of the devices that would serve it, if they are not all that there are."""
        if not group:
            return
        view, rows = self._desk.working, np.arange(len(self._desk.working.nodes.names))
        devices = np.zeros(view.nodes.gpu_model.shape, np.bool_)
        for shape, want, _ in group:
            devices |= eligible(view, want, rows) & self._desk.book.state(shape).allowed[:, None]
        if not devices.any() or (devices | (view.nodes.gpu_part == 0)).all():
            return
        sizes, parts = view.gpus[:, SIZE][devices], view.nodes.gpu_part[devices]
        need = sum(needed * _least_milli(want, sizes, parts) for _, want, needed in group)
        free = int(np.maximum(view.gpus[:, MILLI] * devices, 0).sum() + self._takes.own.milli_on(devices).sum())
        if free >= need:
            return
        held, units = self._takes.on_devices(devices), self._takes.amounts(GPU)
        there = {row: units.get(row, Amounts())._replace(total=milli) for row, milli in held.items()}
        taken = self._excess.given(GPU, there)
        moved = sum(held.values()) - sum(taken.values())
        if free + sum(taken.values()) < need:
            moved = min(moved, self._takes.could_leave(devices))
        models = sorted({model for _, want, _ in group for model in want.gpu_models})
        is_named = all(want.gpu_models for _, want, _ in group)
        what = f"milli-GPU of {' or '.join(models)}" if is_named else "milli-GPU of the devices that it may use"
        yield Most(what, "milli-gpu", need, free, taken, moved)

    def _on_nodes(self, group: list[Pods]) -> Iterator[Most]:
        """The same of what the nodes have that it may use; nobody pays for extended resources."""
        nodes = np.logical_or.reduce([self._desk.book.state(shape).allowed for shape, _, _ in group])
        names = self._desk.working.nodes.extended_names
        needs: dict[tuple[str, str, int], int] = defaultdict(int)
        for _, want, needed in group:
            if nodes.any() and not nodes.all():
                needs[f"milli-CPU{SOME_NODES}", "milli-cpu", CPU] += needed * want.cpu_milli
                needs[f"MiB{SOME_NODES}", "mib", MEMORY] += needed * want.memory_mib
            for name, amount in want.extended:
                if name in names:
                    needs[name, "", EXTENDED + names.index(name)] += needed * amount
        for (what, unit, column), need in needs.items():
            own = self._takes.own.amounts[:, column].sum()
            free = int(np.maximum(self._desk.working.free[nodes, column], 0).sum() + own)
            if need > free:
                yield Most(what, unit, need, free, self._takes.on_nodes(nodes, column))


def and_kept(verdict: Obstacle, kept: list[str]) -> Obstacle:
    """The same with what disruption budgets, minimum run times and eviction budgets keep."""
    return replace(verdict, detail="; ".join([verdict.detail, *kept]))


def _least_milli(want: Request, sizes: IntArray, parts: IntArray) -> int:
    """What one pod takes at least of devices of these sizes and parts."""
    if want.is_memory:
        return want.gpus * (want.gpu_mib * WHOLE_MILLI // max(1, int(sizes.max())))
    return want.gpus * int(parts.min()) if want.is_partition else want.charge_milli
