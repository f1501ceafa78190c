"""Let smaller work fill the gaps before planned starts, and never delay one.

In:    the promises of a cycle and the space to come.   Out: how nodes look to one who would not be gone in time.
A *shade* is what a promise leaves of its nodes once it begins. Whoever is gone before that sees the nodes as they are;
everybody else sees them in the shade. A promise does not bind more important work of the same queue. Nor does one that
takes its queue over its share bind work of others that stay within theirs.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.decide.planned_starts.future_capacity import PlannedUsage, Space, on_rows
from kaiwo.decide.planned_starts.future_quota import Dues, QueueCharge
from kaiwo.model.obstacle import Obstacle, Reason, RunTime, RunTimeSource
from kaiwo.model.planned_start import PlannedStart, bounded_run_s
from kaiwo.model.workload import Workload
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import MIB
from kaiwo.snapshot.working_copy import WorkingCopy

HasRight = Callable[[QueueCharge, QueueCharge], bool]  # of whoever would start, and the promised one
LEAD_S = 30  # so long before a planned start the gap ends: whoever has to be stopped is gone in time


class CapacityMask(NamedTuple):
    """What is not there, on some nodes, for whoever stays too long."""

    key: tuple[int, ...]  # which promises bind
    rows: Rows  # in order
    free: IntArray  # by row: 0 or less
    gpus: IntArray  # by row, (MILLI, MIB) and device: 0 or less

    def over(self, view: WorkingCopy, nodes: Rows) -> WorkingCopy:
        """The view with these nodes in the shade."""
        at = np.minimum(np.searchsorted(self.rows, nodes), len(self.rows) - 1)
        is_shaded = self.rows[at] == nodes
        free, gpus = view.free[nodes], view.gpus[nodes]
        free[is_shaded] += self.free[at[is_shaded]]
        gpus[is_shaded, : MIB + 1] += self.gpus[at[is_shaded]]
        return view.with_amounts(nodes, free, gpus)


class Bound(NamedTuple):
    """A promise that others have to mind."""

    promise: PlannedStart
    workload: Workload
    take: PlannedUsage
    due: QueueCharge

    def binds(self, other: Workload, now_s: int) -> bool:
        """The other would not be gone in time, and is not more important."""
        if other.name == self.workload.name or outranks(other, self.workload):
            return False
        run_s = bounded_run_s(other)
        return not run_s or now_s + run_s > self.take.start_s - LEAD_S


class BackfillMasks:
    """All shades of one cycle; each is worked out when somebody first stands in it."""

    def __init__(
        self,
        space: Space,
        dues: Dues,
        bounds: Sequence[Bound],
        begun: Sequence[PlannedUsage],
        has_right: HasRight | None = None,
    ) -> None:
        self._space, self._dues, self.bounds, self._begun = space, dues, bounds, begun
        self._has_right = has_right or dues.has_right
        self._left: dict[int, IntArray] = {}
        self._on: dict[str, list[tuple[set[str], Workload]]] = {}  # by node: which devices are promised to whom
        self._known: dict[tuple[int, ...], CapacityMask] = {}
        self.by_right: set[str] = set()  # those who did not have to mind a promise that is in their way

    def of(self, workload: Workload, due: QueueCharge) -> CapacityMask | None:
        """The shade in which a workload sees the nodes; None: it has to mind no planned start."""
        key = tuple(self._binding(workload, due))
        if not key:
            return None
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._shade(key)
        return found

    def without(self, name: str) -> "BackfillMasks | None":
        """As it would be if nothing were promised to this one; None: nothing is promised to anybody else."""
        others = [bound for bound in self.bounds if bound.promise.workload != name]
        return BackfillMasks(self._space, self._dues, others, self._begun) if others else None

    def at_their_least(self) -> "BackfillMasks":
        """For one who wishes something else than it did: only what it has to mind however shares change by that."""
        return BackfillMasks(self._space, self._dues, self.bounds, self._begun, self._dues.could_have_right)

    def leave_dues(self, workload: Workload, due: QueueCharge) -> bool:
        """The queues can still pay for all planned starts that it has to mind, if it starts."""
        binding = (self.bounds[at] for at in self._binding(workload, due))
        return all(self._dues.leave(bound.due, due) for bound in binding if self._dues.is_bounded(bound.due))

    def obstacle(self, workload: Workload, due: QueueCharge) -> Obstacle:
        """What is in the way of one who would fit if it did not stay so long."""
        now_s = self._space.now_s
        bound = min((self.bounds[at] for at in self._binding(workload, due)), key=lambda each: each.take.start_s)
        gap_s = max(0, bound.take.start_s - LEAD_S - now_s)
        run_s = bounded_run_s(workload)
        facts = None
        if not workload.preemptible:
            facts = RunTime(RunTimeSource.TIME_LIMIT)
        elif run_s == workload.learned_s > 0 and not workload.estimate_s:
            facts = RunTime(RunTimeSource.EARLIER_RUNS)
        return Obstacle(Reason.PROMISED, run_s, gap_s, "s", bound.promise.workload, facts)

    def on_place_of(self, node: str, gpus: set[str]) -> list[Workload]:
        """Those to whom one of these devices is promised."""
        if not self._on:
            for bound in self.bounds:
                for place in bound.promise.places:
                    devices = {share.gpu for share in place.devices}
                    self._on.setdefault(place.node, []).append((devices, bound.workload))
        return [workload for devices, workload in self._on.get(node, ()) if not gpus.isdisjoint(devices)]

    def _binding(self, workload: Workload, due: QueueCharge) -> list[int]:
        """The promises that it has to mind."""
        found = [at for at, bound in enumerate(self.bounds) if bound.binds(workload, self._space.now_s)]
        has_right = {at for at in found if self._has_right(due, self.bounds[at].due)}
        if has_right:
            self.by_right.add(workload.name)
        return [at for at in found if at not in has_right]

    def _shade(self, key: tuple[int, ...]) -> CapacityMask:
        rows = np.unique(np.concatenate([self.bounds[at].take.rows for at in key]))
        amounts = np.zeros((len(rows), self._space.base.shape[1]), np.int64)
        for at in key:
            where = np.searchsorted(rows, self.bounds[at].take.rows)
            amounts[where] = np.minimum(amounts[where], self._left_by(at))
        free, gpus = self._space.split(amounts)
        return CapacityMask(key, rows, free, gpus)

    def _left_by(self, at: int) -> IntArray:
        """On the nodes of one promise: how much more or less is there when it begins than now."""
        found = self._left.get(at)
        if found is None:
            take = self.bounds[at].take
            # Whoever keeps space that is being left counts it as free: then it must not come free a second time.
            found = self._space.released_by(take.rows, take.start_s) - self._space.still_held(take.rows)
            for other in self.bounds:
                if other.take.start_s <= take.start_s < other.take.end_s:
                    found -= on_rows(other.take, take.rows)
            for begun in self._begun:
                if begun.end_s <= take.start_s:
                    found += on_rows(begun, take.rows)
            self._left[at] = found
        return found


def outranks(one: Workload, other: Workload) -> bool:
    """More important work of the same queue goes before a promise; other queues' priorities say nothing here."""
    return one.queue == other.queue and one.priority > other.priority
