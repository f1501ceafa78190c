"""Let smaller work fill the gaps before planned starts, and never delay one.

In:    the planned starts of a cycle, the capacity to come.   Out: capacity masks for work that would not end in time.
Work that ends before a planned start sees its nodes as they are. All other work sees them under a mask: without what
the planned start will use. A planned start does not bind more important work of the same queue. Nor does one that
takes its queue over its fair share bind work of other queues that stay within theirs.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.decide.placement.capacity_mask import CapacityMask
from kaiwo.decide.placement.class_charges import QueueCharge
from kaiwo.decide.planned_starts.future_capacity import FutureCapacity, PlannedUsage, on_rows
from kaiwo.decide.planned_starts.future_quota import FutureQuota
from kaiwo.model.obstacle import Obstacle, Reason, RunTime, RunTimeSource
from kaiwo.model.planned_start import PlannedStart, bounded_run_s
from kaiwo.model.workload import Workload
from kaiwo.snapshot.array_types import IntArray

HasRight = Callable[[QueueCharge, QueueCharge], bool]  # of the work that would start, and of the planned start
LEAD_S = 30  # the gap ends this long before a planned start: what has to be stopped is gone in time


class ProtectedStart(NamedTuple):
    """A planned start that other work must not delay."""

    planned: PlannedStart
    workload: Workload
    usage: PlannedUsage
    charge: QueueCharge

    def binds(self, other: Workload, now_s: int) -> bool:
        """The other would not end in time, and is not more important."""
        if other.name == self.workload.name or outranks(other, self.workload):
            return False
        run_s = bounded_run_s(other)
        return not run_s or now_s + run_s > self.usage.start_s - LEAD_S


class BackfillMasks:
    """All capacity masks of one cycle; each is worked out when it is first needed."""

    def __init__(
        self,
        capacity: FutureCapacity,
        quota: FutureQuota,
        protected: Sequence[ProtectedStart],
        started: Sequence[PlannedUsage],
        has_right: HasRight | None = None,
    ) -> None:
        self._capacity, self._quota, self._protected, self._started = capacity, quota, protected, started
        self._has_right = has_right or quota.has_right
        self._left: dict[int, IntArray] = {}
        self._on: dict[str, list[tuple[set[str], Workload]]] = {}  # by node: which devices are planned for whom
        self._known: dict[tuple[int, ...], CapacityMask] = {}
        self.by_right: set[str] = set()  # workloads that a planned start in their way did not bind

    def of(self, workload: Workload, charge: QueueCharge) -> CapacityMask | None:
        """The mask for one workload; None: no planned start binds it."""
        key = tuple(self._binding(workload, charge))
        if not key:
            return None
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._mask(key)
        return found

    def without(self, name: str) -> "BackfillMasks | None":
        """As if this workload had no planned start; None: no other has one."""
        others = [each for each in self._protected if each.planned.workload != name]
        return BackfillMasks(self._capacity, self._quota, others, self._started) if others else None

    def at_their_least(self) -> "BackfillMasks":
        """For a workload whose request is changed: only the planned starts that bind it however shares change."""
        has_right = self._quota.could_have_right
        return BackfillMasks(self._capacity, self._quota, self._protected, self._started, has_right)

    def leave_charges(self, workload: Workload, charge: QueueCharge) -> bool:
        """If it starts, the queues can still pay for all planned starts that bind it."""
        binding = (self._protected[at].charge for at in self._binding(workload, charge))
        return all(self._quota.leaves(planned, charge) for planned in binding if self._quota.is_bounded(planned))

    def obstacle(self, workload: Workload, charge: QueueCharge) -> Obstacle:
        """What is in the way of work that would fit if it did not run so long."""
        now_s = self._capacity.now_s
        binding = (self._protected[at] for at in self._binding(workload, charge))
        first = min(binding, key=lambda each: each.usage.start_s)
        gap_s = max(0, first.usage.start_s - LEAD_S - now_s)
        run_s = bounded_run_s(workload)
        facts = None
        if not workload.preemptible:
            facts = RunTime(RunTimeSource.TIME_LIMIT)
        elif run_s == workload.learned_s > 0 and not workload.estimate_s:
            facts = RunTime(RunTimeSource.EARLIER_RUNS)
        return Obstacle(Reason.PROMISED, run_s, gap_s, "s", first.planned.workload, facts)

    def planned_on(self, node: str, gpus: set[str]) -> list[Workload]:
        """The workloads whose planned starts use one of these devices."""
        if not self._on:
            for each in self._protected:
                for place in each.planned.places:
                    devices = {share.gpu for share in place.devices}
                    self._on.setdefault(place.node, []).append((devices, each.workload))
        return [workload for devices, workload in self._on.get(node, ()) if not gpus.isdisjoint(devices)]

    def _binding(self, workload: Workload, charge: QueueCharge) -> list[int]:
        """The planned starts that bind it."""
        found = [at for at, each in enumerate(self._protected) if each.binds(workload, self._capacity.now_s)]
        has_right = {at for at in found if self._has_right(charge, self._protected[at].charge)}
        if has_right:
            self.by_right.add(workload.name)
        return [at for at in found if at not in has_right]

    def _mask(self, key: tuple[int, ...]) -> CapacityMask:
        rows = np.unique(np.concatenate([self._protected[at].usage.rows for at in key]))
        amounts = np.zeros((len(rows), self._capacity.base.shape[1]), np.int64)
        for at in key:
            where = np.searchsorted(rows, self._protected[at].usage.rows)
            amounts[where] = np.minimum(amounts[where], self._left_by(at))
        free, gpus = self._capacity.split(amounts)
        return CapacityMask(key, rows, free, gpus)

    def _left_by(self, at: int) -> IntArray:
        """On the nodes of one planned start: how much more or less is there when it begins than now."""
        found = self._left.get(at)
        if found is None:
            usage = self._protected[at].usage
            # A nomination counts space that is being released as free: that must not come free a second time.
            found = self._capacity.released_by(usage.rows, usage.start_s) - self._capacity.still_held(usage.rows)
            for other in self._protected:
                if other.usage.start_s <= usage.start_s < other.usage.end_s:
                    found -= on_rows(other.usage, usage.rows)
            for started in self._started:
                if started.end_s <= usage.start_s:
                    found += on_rows(started, usage.rows)
            self._left[at] = found
        return found


def outranks(one: Workload, other: Workload) -> bool:
    """More important work of the same queue comes before a planned start; priorities do not count across queues."""
    return one.queue == other.queue and one.priority > other.priority
