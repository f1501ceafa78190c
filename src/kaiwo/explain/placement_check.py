"""Check whether a workload would fit now, if it were its turn.

Free capacity is counted first: most answers need no placement. What is placed is undone.
"""

from copy import copy

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.obstacles.shortages import largest_device_mib
from kaiwo.decide.placement.node_fit import CapacityMask
from kaiwo.decide.placement.place_workload import place_workload
from kaiwo.decide.placement.queue_limits import QueueCharge, is_within, least_by_model, least_charge
from kaiwo.decide.planned_starts.keep_planned import keep_planned_starts
from kaiwo.decide.reservations import apply_reservations
from kaiwo.explain.verify_change import WhatIf
from kaiwo.gpus.device_fit import pods_per_device
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.snapshot.backlog import RoleNeeds
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import SIZE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.snapshot import Snapshot


class PlacementCheck:
    """A working copy on which placements are tried and undone."""

    def __init__(self, what_if: WhatIf) -> None:
        self._state = _with_own_shapes(what_if.state)
        cycle = CycleInput(self._state, what_if.policy, what_if.active, what_if.now_s)
        cycle_state = CycleState(Snapshot(self._state, what_if.now_s), cycle)
        reserved = apply_reservations(cycle, cycle_state)
        masks = keep_planned_starts(cycle, cycle_state, reserved.evictions).masks
        self.working, self._scores, self._placer = cycle_state.working, cycle_state.scores, cycle_state.placer
        self._masks = masks.without(what_if.name) if masks is not None else None
        self._least_masks = self._masks.certainly_binding() if self._masks is not None else None
        backlog = self._state.backlog
        is_hopeless = backlog.class_of(what_if.name).key in backlog.impossible  # its demand counts once it is changed
        self._share_inputs = None if is_hopeless else _share_inputs(what_if.workload)
        rows = np.arange(len(self.working.nodes.names))
        self._whole_devices = int(pods_per_device(self.working.view, Request(gpus=1), rows).sum())
        self._counts_are_exact = not what_if.active.free_filters  # such a filter may decide differently after each pod

    @property
    def is_lenient(self) -> bool:
        """It may accept too much: which planned starts bind is unknown until the demand changes."""
        return self._share_inputs is None and self._least_masks is not None

    def fits(self, workload: Workload, limits: bool = True) -> bool:
        """The workload would start now, if it were its turn."""
        row = self._queue(workload, limits)
        if row is None:
            return False
        could_fit, mask = self._might_fit(workload, row, limits)
        if not could_fit:
            return False
        needs = self._state.needs_of(workload)
        if workload.name not in self._state.nominations and not workload.groups:
            queues = self.working.queues
            is_bounded = queues.is_bounded[row] or not workload.preemptible
            if not queues.is_model_bounded[row] and self._is_counted(needs, limits and is_bounded):
                return True
            has_affinity = any(self._state.backlog.shapes[shape].neighbours is not None for shape, _, _ in needs)
            if not limits and not has_affinity and not any(needed for _, _, needed in needs):
                return True  # any one pod is enough
        savepoint = self.working.savepoint()
        workload = replace(workload, queue=self.working.queues.names[row])
        placed = place_workload(self._placer.under(mask), self._state, workload, needs, limits)
        self.working.rollback(savepoint)
        return placed is not None

    def might_fit(self, workload: Workload) -> bool:
        """Counted, not placed: what is ruled out here cannot start."""
        row = self._queue(workload, limits=True)
        return row is not None and self._might_fit(workload, row, limits=True)[0]

    def fits_on_nodes(self, workload: Workload) -> bool:
        return self.fits(workload, limits=False)

    def largest_mib(self, shape: int) -> int:
        return largest_device_mib(self.working.view, self._state.backlog.shapes[shape])

    def sizes_with_room(self, want: Request) -> list[int]:
        rows = np.arange(len(self.working.nodes.names))
        sizes = self.working.view.of(rows).gpus[:, SIZE][pods_per_device(self.working.view, want, rows) > 0]
        return [int(size) for size in np.unique(sizes)]

    def queue_left(self, row: int, is_non_preemptible: bool) -> ResourceVector:
        """What a queue and all above it may still use; non-preemptible work stays within their quotas."""
        queues = self.working.queues
        path = list(queues.path[row])
        left = (queues.limit[path] - self.working.view.queue_used[path]).min(axis=0)
        if is_non_preemptible:
            left = np.minimum(left, (queues.quota[path] - self.working.view.queue_non_preemptible[path]).min(axis=0))
        gpu, cpu, memory = left.tolist()
        return gpu, cpu, memory

    def _queue(self, workload: Workload, limits: bool) -> int | None:
        """The queue that is charged; any leaf if only nodes matter."""
        queues = self.working.queues
        row = queues.row.get(workload.queue)
        if row is not None and queues.is_leaf[row]:
            return row
        return None if limits else next((at for at, is_leaf in enumerate(queues.is_leaf) if is_leaf), None)

    def _might_fit(self, workload: Workload, row: int, limits: bool) -> tuple[bool, CapacityMask | None]:
        """Whether it could fit, and the capacity mask of planned starts for it."""
        needs, mask, leaves_charges = self._state.needs_of(workload), None, True
        if self._masks is not None and limits:
            mask, leaves_charges = self._mask_for(workload, row, needs)
        if workload.name in self._state.nominations or workload.groups:
            return True, mask  # nominated space is not free, and sub-groups have several ways: only placing decides
        if not leaves_charges or not self._has_room(needs, mask):
            return False, mask
        left = self.queue_left(row, not workload.preemptible)
        return not limits or is_within(least_charge(self._state, needs, self.largest_mib), left), mask

    def _mask_for(self, workload: Workload, row: int, needs: RoleNeeds) -> tuple[CapacityMask | None, bool]:
        """The capacity mask, and whether queues can still pay for planned starts of others."""
        masks = self._masks if _share_inputs(workload) == self._share_inputs else self._least_masks
        assert masks is not None
        if workload.name in self._state.nominations:
            return None, True
        charge = (*least_charge(self._state, needs, self.largest_mib), *least_by_model(self._state, needs))
        paid = QueueCharge(row, charge, not workload.preemptible)
        mask = masks.mask_for(workload, paid)
        return mask, mask is None or masks.leave_charges(workload, paid)

    def _has_room(self, needs: RoleNeeds, mask: CapacityMask | None) -> bool:
        """Each shape by itself, and whole devices for all together: necessary for any placement."""
        if not any(needed for _, _, needed in needs):
            return any(self._scores.state(shape, mask).room for shape, _, _ in needs)
        if not all(self._scores.state(shape, mask).room >= needed for shape, _, needed in needs if needed):
            return False
        shapes = self._state.backlog.shapes
        whole = sum(needed * shapes[shape].gpus for shape, _, needed in needs if shapes[shape].is_whole)
        return len(needs) == 1 or whole <= self._whole_devices

    def _is_counted(self, needs: RoleNeeds, is_bounded: bool) -> bool:
        """Counting decides: equal pods with a known charge that do not affect where other pods may run."""
        if len(needs) != 1 or not needs[0].needed or not self._counts_are_exact:
            return False
        want = self._state.backlog.shapes[needs[0].shape]
        if want.neighbours is not None:
            return False  # each pod may close nodes to the next, or open some
        return (want.is_exclusive or want.gpus <= 1) and not (want.charge_depends_on_device and is_bounded)


def _share_inputs(workload: Workload) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Its queue and its GPU models: what fair shares depend on, besides the amounts."""
    return workload.queue, tuple(role.request.gpu_models for role in workload.roles)


def _with_own_shapes(state: ClusterState) -> ClusterState:
    """The same state, but new shapes and what is computed for them leave no trace. Half the cost of a fork."""
    state.refresh_tables()
    other = copy(state)
    other.backlog = copy(state.backlog)
    other.backlog.shapes = state.backlog.shapes.copy()
    other.caches = {key: dict(kept) for key, kept in state.caches.items()}
    return other
