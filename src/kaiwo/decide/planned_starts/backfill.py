"""Backfill: let smaller work fill the gaps before planned starts without delaying them, and stop it when it overruns.

Work that ends before a planned start sees its nodes as they are. All other work sees them under a mask: without what
the planned start will use. A planned start does not bind more important work of the same queue. Nor does one that
takes its queue over its fair share bind work of other queues that stay within theirs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kaiwo.decide.cycle_state import CycleInput, earliest_s
from kaiwo.decide.placement.node_fit import CapacityMask
from kaiwo.decide.placement.queue_limits import QueueCharge
from kaiwo.decide.planned_starts.future_capacity import FutureCapacity, PlannedUsage, on_rows
from kaiwo.decide.planned_starts.future_quota import FutureQuota
from kaiwo.model.obstacle import Obstacle, Reason, RunTime, RunTimeSource
from kaiwo.model.plan import Eviction, EvictionCause
from kaiwo.model.planned_start import PlannedStart, bounded_run_s
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Workload, lost_gpu_s
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.capacity_timeline import OVERDUE_S
from kaiwo.snapshot.cluster_state import ClusterState

HasPrecedence = Callable[[QueueCharge, QueueCharge], bool]  # of the work that would start, and of the planned start
LEAD_S = 30  # the gap ends this long before a planned start: what has to be stopped is gone in time


class ProtectedStart(NamedTuple):
    planned: PlannedStart
    workload: Workload
    usage: PlannedUsage
    charge: QueueCharge
    is_lost_place: bool = False  # of a running gang: it binds all other work, however important
    drained: IntArray | None = None  # by row: what work on its place holds that it waits for, however long that runs

    def binds(self, other: Workload, now_s: int) -> bool:
        """The other workload would not end in time, and is not more important."""
        if other.name == self.workload.name or self.gives_way_to(other):
            return False
        run_s = bounded_run_s(other)
        return not run_s or now_s + run_s > self.usage.start_s - LEAD_S

    def gives_way_to(self, other: Workload) -> bool:
        return not self.binds_all and outranks(other, self.workload)

    @property
    def binds_all(self) -> bool:
        """Neither the priority nor the share of other work counts against it."""
        return self.is_lost_place or self.planned.is_overdue


class BackfillMasks:
    """The capacity masks of one cycle; each is computed when first needed."""

    def __init__(
        self,
        capacity: FutureCapacity,
        quota: FutureQuota,
        protected: Sequence[ProtectedStart],
        started: Sequence[PlannedUsage],
        has_precedence: HasPrecedence | None = None,
    ) -> None:
        self._capacity, self._quota, self._protected, self._started = capacity, quota, protected, started
        self._has_precedence = has_precedence or quota.has_precedence
        self._left: dict[int, IntArray] = {}
        self._known: dict[tuple[int, ...], CapacityMask] = {}
        self.by_precedence: set[str] = set()  # workloads that a planned start in their way did not bind

    def mask_for(self, workload: Workload, charge: QueueCharge) -> CapacityMask | None:
        """The mask for one workload; None: no planned start binds it."""
        key = tuple(self._binding(workload, charge))
        if not key:
            return None
        if key not in self._known:
            self._known[key] = self._mask(key)
        return self._known[key]

    def without(self, name: str) -> "BackfillMasks | None":
        """As if this workload had no planned start; None: no other has one."""
        others = [each for each in self._protected if each.planned.workload != name]
        return BackfillMasks(self._capacity, self._quota, others, self._started) if others else None

    def certainly_binding(self) -> "BackfillMasks":
        """For a workload whose request changes: only the planned starts that bind it whatever the shares become."""
        has_precedence = self._quota.could_have_precedence
        return BackfillMasks(self._capacity, self._quota, self._protected, self._started, has_precedence)

    def leave_charges(self, workload: Workload, charge: QueueCharge) -> bool:
        """If it starts, queues can still pay for all planned starts that bind it."""
        binding = (self._protected[at].charge for at in self._binding(workload, charge))
        return all(self._quota.leaves(planned, charge) for planned in binding if self._quota.is_bounded(planned))

    def obstacle(self, workload: Workload, charge: QueueCharge) -> Obstacle:
        """The obstacle of work that would fit if it ran for less time."""
        binding = (self._protected[at] for at in self._binding(workload, charge))
        first = min(binding, key=lambda each: each.usage.start_s)
        gap_s = max(0, first.usage.start_s - LEAD_S - self._capacity.now_s)
        run_s = bounded_run_s(workload)
        facts = None
        if not workload.preemptible:
            facts = RunTime(RunTimeSource.TIME_LIMIT)
        elif run_s == workload.learned_s > 0 and not workload.estimate_s:
            facts = RunTime(RunTimeSource.EARLIER_RUNS)
        return Obstacle(Reason.PROMISED, run_s, gap_s, "s", first.planned.workload, facts)

    def planned_on(self, node: str, gpus: set[str]) -> list[ProtectedStart]:
        return [start for devices, start in self._planned_by_node.get(node, ()) if not gpus.isdisjoint(devices)]

    @cached_property
    def _planned_by_node(self) -> dict[str, list[tuple[set[str], ProtectedStart]]]:
        """By node: which devices are planned for which workload."""
        found: dict[str, list[tuple[set[str], ProtectedStart]]] = {}
        for each in self._protected:
            for place in each.planned.places:
                found.setdefault(place.node, []).append(({share.gpu for share in place.devices}, each))
        return found

    def _binding(self, workload: Workload, charge: QueueCharge) -> list[int]:
        found = [at for at, each in enumerate(self._protected) if each.binds(workload, self._capacity.now_s)]
        by_rank = [at for at in found if not self._protected[at].binds_all]
        has_precedence = {at for at in by_rank if self._has_precedence(charge, self._protected[at].charge)}
        if has_precedence:
            self.by_precedence.add(workload.name)
        return [at for at in found if at not in has_precedence]

    def _mask(self, key: tuple[int, ...]) -> CapacityMask:
        rows = np.unique(np.concatenate([self._protected[at].usage.rows for at in key]))
        amounts = np.zeros((len(rows), self._capacity.base.shape[1]), np.int64)
        for at in key:
            where = np.searchsorted(rows, self._protected[at].usage.rows)
            amounts[where] = np.minimum(amounts[where], self._left_by(at))
        free, gpus = self._capacity.split(amounts)
        return CapacityMask(key, rows, free, gpus)

    def _left_by(self, at: int) -> IntArray:
        """On the nodes of one planned start: how much more or less they have when it begins than now."""
        found = self._left.get(at)
        if found is None:
            usage = self._protected[at].usage
            drained = self._protected[at].drained
            found = drained.copy() if drained is not None else self._released_by(usage)
            for other in self._protected:
                if other.usage.start_s <= usage.start_s < other.usage.end_s:
                    found -= on_rows(other.usage, usage.rows)
            for started in self._started:
                if started.end_s <= usage.start_s:
                    found += on_rows(started, usage.rows)
            self._left[at] = found
        return found

    def _released_by(self, usage: PlannedUsage) -> IntArray:
        # A nomination counts space that is being released as free: that must not come free a second time.
        return self._capacity.released_by(usage.rows, usage.start_s) - self._capacity.still_held(usage.rows)


def outranks(one: Workload, other: Workload) -> bool:
    """More important work of the same queue precedes a planned start; priorities do not count across queues."""
    return one.queue == other.queue and one.priority > other.priority


def stop_overdue(
    cycle: CycleInput, planned: Iterable[PlannedStart], evicted: Iterable[Eviction]
) -> tuple[list[Eviction], int]:
    """Stop backfilled work whose time is over where a planned start is about to come; and when to look again."""
    gone = {(each.workload, each.pod) for each in evicted}
    evictions: list[Eviction] = []
    look_again_s = 0
    for each in planned:
        if each.start_s - LEAD_S > cycle.now_s:
            continue
        for pod in _backfilled(cycle.state, each):
            if pod.until_s > cycle.now_s:
                look_again_s = earliest_s(look_again_s, pod.until_s)
            elif (pod.workload, pod.name) not in gone:
                evictions += _stop(cycle, pod.workload, each.workload)
                gone.update((eviction.workload, eviction.pod) for eviction in evictions)
    return evictions, look_again_s


def next_planned_moment_s(planned: Iterable[PlannedStart], now_s: int) -> int:
    """The next moment at which time alone changes something: a planned start, or the end of a gap; 0: never."""
    found = 0
    for each in planned:
        moments = (each.start_s - LEAD_S, each.start_s, each.start_s + OVERDUE_S)
        found = earliest_s(found, next((at_s for at_s in moments if at_s > now_s), 0))
    return found


def _backfilled(state: ClusterState, planned: PlannedStart) -> Iterator[Pod]:
    """The pods that fill gaps on the devices of a planned start, or on its nodes if it uses no devices."""
    for place in planned.places:
        gpus = {share.gpu for share in place.devices}
        for held in state.allocations_on.get(place.node, {}).values():
            if not isinstance(held, Pod) or not held.until_s or held.phase not in ACTIVE_PHASES:
                continue
            if not gpus or not gpus.isdisjoint(share.gpu for share in held.devices):
                yield held


def _stop(cycle: CycleInput, name: str, beneficiary: str) -> Iterator[Eviction]:
    pods = [pod for pod in cycle.state.pods[name].values() if pod.phase in ACTIVE_PHASES]
    lost = lost_gpu_s(cycle.state.workloads[name], pods, cycle.now_s, cycle.policy.max_restart_cost_s)
    for pod in sorted(pods, key=lambda pod: pod.name):
        yield Eviction(name, pod.name, EvictionCause.DEADLINE, beneficiary, lost)
        lost = 0  # counted once a workload
