"""Find the earliest time at which one workload could start, and its place then.

First, sums over whole nodes give a lower bound of that time; then the requests are checked device by device; then the
workload is placed, by the same rules as work that starts now, where nodes stay idle for the shortest time until then.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.placement.node_fit import pods_that_fit
from kaiwo.decide.placement.place_pods import NodeCosts, Placer
from kaiwo.decide.placement.place_workload import Placement, place_workload
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.decide.planned_starts.future_capacity import GPUS, FutureCapacity, Moments, PlannedUsage
from kaiwo.model.planned_start import PlannedPod, PlannedStart, expected_run_s
from kaiwo.model.request import Request
from kaiwo.model.reservation import NEVER_S
from kaiwo.model.workload import Pod, Workload, role_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.node_table import SIZE
from kaiwo.snapshot.working_copy import WorkingCopy

TRIES = 3  # moments at which the sums would do, and a placement is tried
NODES_PER_STEP = 64
MAX_NAMED = 3


class StartSearch:
    def __init__(
        self,
        cycle: CycleInput,
        cycle_state: CycleState,
        capacity: FutureCapacity,
        workload: Workload,
        may_start: Callable[[int], bool],
    ) -> None:
        self._cycle, self._cycle_state, self._capacity, self._workload = cycle, cycle_state, capacity, workload
        self._needs = cycle.state.backlog.class_of(workload.name).needs
        self._may_start = may_start  # at a time, as far as its queue is concerned
        self._run_s = expected_run_s(workload)

    def earliest(self, usages: Sequence[PlannedUsage], before_s: int = NEVER_S) -> PlannedStart | None:
        """The earliest start alongside what others will use; None: there is none before `before_s`."""
        if self._by_sums(usages, before_s) >= before_s:
            return None
        self._cycle_state.budget.used += 5 + len(self._capacity.base) // NODES_PER_STEP
        moments = self._capacity.moments(usages, self._run_s)
        for at_s in islice(filter(self._may_start, self._when_all_fit(moments, before_s)), TRIES):
            placement = self._place(moments, at_s)
            if placement is not None:
                return self._planned_start(at_s, placement)
        return None

    def _by_sums(self, usages: Sequence[PlannedUsage], before_s: int) -> int:
        """A time before which it surely cannot start: by how many GPUs each node has left."""
        shape, _, needed = self._needs[0]
        want = self._want(shape)
        if len(self._needs) > 1 or not want.least_milli:
            return self._capacity.now_s
        times, left = self._capacity.moments(usages, self._run_s, GPUS)
        allowed = self._cycle_state.scores.state(shape).allowed
        slots = np.maximum(left[:, :, 0], 0) // want.least_milli * allowed[:, None]
        found = _first(times, [(slots, needed)], before_s)
        return found[0] if found else NEVER_S

    def _when_all_fit(self, moments: Moments, before_s: int) -> list[int]:
        """The times at which every role would find room, as if it were alone."""
        wanted = [(shape, needed) for shape, _, needed in self._needs if needed]
        return _first(moments.times, [(self._slots(moments, shape), needed) for shape, needed in wanted], before_s)

    def _slots(self, moments: Moments, shape: int) -> IntArray:
        """How many pods fit, by node and moment."""
        rows, count = moments.times.shape
        at = np.repeat(np.arange(rows), count)
        free, gpus = self._capacity.split(moments.amounts.reshape(rows * count, -1))
        fixed = self._cycle_state.working.gpus[:, SIZE:]
        view = self._cycle_state.working.as_of(self._capacity.now_s, free, gpus).view
        view = view.with_amounts(at, free, np.concatenate([gpus, fixed[at]], axis=1))
        slots = pods_that_fit(view, self._want(shape), at).reshape(rows, count)
        fitting: IntArray = slots * self._cycle_state.scores.state(shape).allowed[:, None]
        return fitting

    def _place(self, moments: Moments, at_s: int) -> Placement | None:
        cycle, now = self._cycle, self._cycle_state.working
        free, gpus, since_s = self._capacity.amounts_at(moments, at_s)
        then = now.as_of(at_s, free.copy(), np.concatenate([gpus, now.gpus[:, SIZE:]], axis=1))
        if self._workload.bandwidth_mb_s:
            self._take_off_links(then, at_s)
        scores = ShapeScores(cycle.state, then.view, then, cycle.plugins, keeps=False)
        placer = Placer(then, scores, cycle.plugins, cycle.policy, IdleTimeCosts(at_s, since_s))
        return place_workload(placer, cycle.state, self._workload, self._needs, limits=False, grows=False)

    def _take_off_links(self, then: WorkingCopy, at_s: int) -> None:
        """Gangs that have ended by then use no links any more."""
        workloads, pods = self._cycle.state.workloads, self._cycle.state.pods
        for name, rows in then.view.gang_rows().items():
            workload = workloads.get(name)
            run_s = expected_run_s(workload) if workload is not None else 0
            if run_s and all(pod.since_s + run_s <= at_s for pod in pods.get(name, {}).values()):
                then.move(name, rows, -1)

    def _planned_start(self, at_s: int, placement: Placement) -> PlannedStart:
        workload = self._workload
        places = tuple(
            PlannedPod(start.pod, start.node, start.devices, want.cpu_milli, want.memory_mib, want.extended)
            for start in sorted(placement.starts, key=lambda start: start.pod)
            for want in (role_of(workload, start.pod).request,)
        )
        after = self._last_to_leave(places, at_s)
        return PlannedStart(workload.name, at_s, places, self._run_s, self._capacity.now_s, after)

    def _last_to_leave(self, places: tuple[PlannedPod, ...], at_s: int) -> tuple[str, ...]:
        """The workloads whose end it waits for: the last ones to end on its nodes."""
        state, now_s = self._cycle.state, self._capacity.now_s
        leaving: dict[str, int] = {}
        for node in {place.node for place in places} if at_s > now_s else ():
            for held in state.allocations_on.get(node, {}).values():
                workload = state.workloads.get(held.workload)
                if isinstance(held, Pod) and workload is not None and (run_s := expected_run_s(workload)):
                    end_s = held.since_s + run_s
                    if end_s <= at_s:
                        leaving[held.workload] = max(end_s, leaving.get(held.workload, 0))
        last = sorted(leaving, key=lambda name: (-leaving[name], name))[:MAX_NAMED]
        return tuple(last)

    def _want(self, shape: int) -> Request:
        return self._cycle.state.backlog.shapes[shape]


class IdleTimeCosts(NodeCosts):
    """The cost of a place: the minutes for which it would stay idle, or be backfilled by short work only."""

    def __init__(self, at_s: int, since_s: IntArray) -> None:
        self._minutes: IntArray = (at_s - since_s) // 60

    def of_nodes(self, want: Request) -> IntArray:
        """Nodes that come free last are used first: those that are free now stay open to other work."""
        return self._minutes


def _first(times: IntArray, wanted: Sequence[tuple[IntArray, int]], before_s: int = NEVER_S) -> list[int]:
    """The times before `before_s` at which all have enough slots on all nodes together, in order."""
    flat = times.ravel()
    soon = (flat < before_s).nonzero()[0]
    order = soon[np.argsort(flat[soon], kind="stable")]
    when = flat[order]
    enough = np.ones(len(when), np.bool_)
    enough[:-1] = when[1:] != when[:-1]  # all changes of one moment together
    for slots, needed in wanted:
        change = slots.copy()
        change[:, 1:] -= slots[:, :-1]
        enough &= change.ravel()[order].cumsum() >= needed
    found: list[int] = when[enough].tolist()
    return found
