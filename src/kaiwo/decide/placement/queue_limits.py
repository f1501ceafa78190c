"""Queue limits: what queues are charged for work, and what their limits and those of all queues above leave."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kaiwo.decide.turn_order import Lane, NextNeed
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.queues.resource_division import MAX_AMOUNT
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import RoleNeeds, WaitingClass, needs_charged_first, needs_of_each_choice
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.gpu_model_usage import only_model
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.queue_table import GPU, INFINITE, RESOURCES, PathBound, QueueTable, ResourceVector
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy


def charge_of(want: Request, pods: int = 1, device_mib: int = 0) -> ResourceVector:
    """What a queue pays for such pods; the device size matters to memory requests only."""
    milli = want.charge_milli
    if want.is_memory and device_mib:
        milli = want.gpus * want.charge_on(device_mib)
    return milli * pods, want.cpu_milli * pods, want.memory_mib * pods


def least_charge(state: ClusterState, needs: RoleNeeds, largest_mib: Callable[[int], int]) -> ResourceVector:
    """The least a queue pays before such work has started; `largest_mib` is the largest device size for a shape."""
    must_start = any(needed for _, _, needed in needs)
    shapes = state.backlog.shapes
    each = [charge_of(shapes[shape], needed if must_start else 1, largest_mib(shape)) for shape, _, needed in needs]
    together = sum if must_start else min
    milli, cpu, memory = each[0] if len(each) == 1 else (together(column) for column in zip(*each, strict=True))
    return min(milli, MAX_AMOUNT), min(cpu, MAX_AMOUNT), min(memory, MAX_AMOUNT)


def is_within(charge: ResourceVector, left: Sequence[int]) -> bool:
    """Parts of zero always fit."""
    return all(amount <= most for amount, most in zip(charge, left, strict=True) if amount)


def within_limits(working: WorkingCopy, queue: int, charge: ResourceVector, is_non_preemptible: bool = False) -> bool:
    """The queue and all above it stay within their limits, and for non-preemptible work within their quotas."""
    if is_non_preemptible and _is_over(working.all_non_preemptible, working.queues.quotas[queue], charge):
        return False
    return not _is_over(working.all_used, working.queues.limits[queue], charge)


def _is_over(used: IntArray, bounds: tuple[PathBound, ...], charge: ResourceVector) -> bool:
    for above, column, most in bounds:
        if column < len(charge) and charge[column] and used[above, column] + charge[column] > most:
            return True
    return False


class UsageBound(NamedTuple):
    """A limit or quota of a queue, or of one above it."""

    queue: int
    column: int  # a resource, or after those a GPU model
    most: int
    left: int
    is_quota: bool  # it binds non-preemptible work only

    def model(self, queues: QueueTable) -> str:
        """The GPU model of which this is a bound; empty: it is of a resource."""
        return queues.models[self.column - len(RESOURCES)] if self.column >= len(RESOURCES) else ""


def bounds_on(view: View, queue: int, is_non_preemptible: bool) -> list[UsageBound]:
    """All bounds on the work of a queue: the limits first, then the quotas."""
    queues = view.queues
    kept = [(False, queues.limits[queue], view.all_used)]
    if is_non_preemptible:
        kept.append((True, queues.quotas[queue], view.all_non_preemptible))
    return [
        UsageBound(above, column, most, most - int(used[above, column]), is_quota)
        for is_quota, bounds, used in kept
        for above, column, most in bounds
    ]


def models_with_room(working: WorkingCopy, queue: int, is_non_preemptible: bool, milli: int) -> list[str]:
    bounds = bounds_on(working.view, queue, is_non_preemptible)
    short = {bound.model(working.queues) for bound in bounds if bound.left < milli}
    return [model for model in sorted(working.nodes.models) if model not in short]


def least_by_model(state: ClusterState, needs: RoleNeeds) -> tuple[int, ...]:
    """What it needs of each bounded GPU model, where it can use no other."""
    wants = [(state.backlog.shapes[shape], needed) for shape, _, needed in needs]
    return tuple(
        sum(want.charge_milli * needed for want, needed in wants if only_model(want, state.nodes.models) == model)
        for model in state.queues.models
    )


def times_within_limits(
    working: WorkingCopy, queue: int, charge: ResourceVector, most: int, is_non_preemptible: bool = False
) -> int:
    for resource, each in enumerate(charge):
        if each:
            most = min(most, max(0, headroom(working, queue, resource)) // each)
    if is_non_preemptible:
        path = list(working.queues.path[queue])
        left = (working.queues.quota[path] - working.view.queue_non_preemptible[path]).min(axis=0)
        most = min([most, *(max(0, int(left[resource])) // each for resource, each in enumerate(charge) if each)])
    return most


def headroom(working: WorkingCopy, queue: int, resource: int = GPU) -> int:
    """What the queue and all above it may still use; negative when one is over its limit."""
    if not working.queues.is_bounded[queue]:
        return INFINITE
    path = list(working.queues.path[queue])
    left = working.queues.limit[path, resource] - working.view.queue_used[path, resource]
    return int(left.min())


class Payer(NamedTuple):
    """The queue that pays for pods, and by which rules."""

    queue: int
    is_non_preemptible: bool  # its work may not be preempted
    has_limits: bool = True  # False: only the nodes are checked

    def try_charge(self, working: WorkingCopy, charge: ResourceVector) -> bool:
        if self.has_limits and not within_limits(working, self.queue, charge, self.is_non_preemptible):
            return False
        working.charge(self.queue, charge, self.is_non_preemptible)
        return True


class QueueCharge(NamedTuple):
    """What one workload's queue pays for it, and by which rules."""

    queue: int
    charge: ResourceVector
    is_non_preemptible: bool  # it may not be preempted: quotas bind it, too
    start_s: int = 0
    end_s: int = 0


class ClassCharges:
    """The charges of one cycle; equal needs are computed once."""

    def __init__(self, state: ClusterState, working: WorkingCopy) -> None:
        self._state, self._working = state, working
        self._least: dict[RoleNeeds, ResourceVector] = {}
        sizes = working.gpus[:, SIZE][working.gpus[:, USABLE] > 0]
        self.largest_mib = int(sizes.max(initial=0))
        self._equal_mib = self.largest_mib if (sizes == self.largest_mib).all() else 0

    def takes_work(self, queue: str) -> bool:
        """The queue exists and is a leaf."""
        row = self._working.queues.row.get(queue)
        return row is not None and self._working.queues.is_leaf[row]

    def may_start(self, waiting_class: WaitingClass) -> bool:
        """Its queue takes work, and the limits leave the least that it would pay."""
        queues = self._working.queues
        row = queues.row.get(waiting_class.queue)
        if row is None or not queues.is_leaf[row]:
            return False
        is_preemptible = waiting_class.signature.is_preemptible
        if waiting_class.signature.nominated_for or (is_preemptible and not queues.is_bounded[row]):
            return True  # nominations are charged already; and without limits everything is allowed
        if waiting_class.choices is not None:  # one alternative may exceed a limit where another does not
            ways = needs_of_each_choice(waiting_class)
            charges = (least_charge(self._state, way, lambda _: self.largest_mib) for way in ways)
            return any(within_limits(self._working, row, charge, not is_preemptible) for charge in charges)
        return within_limits(self._working, row, self.least(waiting_class), not is_preemptible)

    def least(self, waiting_class: WaitingClass) -> ResourceVector:
        """The least that its queue pays before a workload of this class has started."""
        if waiting_class.least_charge is None or waiting_class.least_charge[0] != self.largest_mib:
            needs = needs_charged_first(waiting_class)
            charge = self._least.get(needs)
            if charge is None:
                charge = self._least[needs] = least_charge(self._state, needs, lambda _: self.largest_mib)
            waiting_class.least_charge = (self.largest_mib, charge)
        return waiting_class.least_charge[1]

    def least_with_models(self, waiting_class: WaitingClass) -> ResourceVector:
        if not self._working.queues.models:
            return self.least(waiting_class)
        return (*self.least(waiting_class), *least_by_model(self._state, needs_charged_first(waiting_class)))

    def queue_charge(self, waiting_class: WaitingClass) -> QueueCharge:
        payer = self.payer(waiting_class)
        return QueueCharge(payer.queue, self.least_with_models(waiting_class), payer.is_non_preemptible)

    def payer(self, waiting_class: WaitingClass) -> Payer:
        return Payer(self._working.queues.row[waiting_class.queue], not waiting_class.signature.is_preemptible)

    def known_charge(self, want: Request) -> ResourceVector | None:
        """What the queue will pay for such a pod; None where that depends on the device."""
        if want.is_partition or (want.is_memory and not self._equal_mib):
            return None
        return charge_of(want, 1, self._equal_mib)

    def next_of(self, lane: Lane) -> NextNeed:
        """What the first workload of a lane needs to start, and since when it has waited."""
        (_, name), _, found = lane.first
        return NextNeed(self.least(found), self._state.workloads[name].submitted_s)

    def one_pod_of(self, waiting_class: WaitingClass, workload: Workload) -> NextNeed:
        """The same for one more pod of a workload."""
        want = self._state.backlog.shapes[waiting_class.needs[0].shape]
        return NextNeed(charge_of(want, 1, self.largest_mib), workload.submitted_s)
