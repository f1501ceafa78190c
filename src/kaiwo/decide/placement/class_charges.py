"""What a queue pays for a workload of a waiting class, and whether its limits allow that.

In:    the working copy, a waiting class.   Out: charges; yes or no.
"""

from typing import NamedTuple

from kaiwo.decide.placement.place_pods import Payer
from kaiwo.decide.placement.queue_limits import charge_of, least_by_model, least_charge, within_limits
from kaiwo.decide.turn_order import Lane, NextNeed
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.snapshot.backlog import RoleNeeds, WaitingClass, needs_charged_first, needs_of_each_choice
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.working_copy import WorkingCopy


class QueueCharge(NamedTuple):
    """What one workload's queue pays for it, and by which rules."""

    queue: int
    charge: ResourceVector
    is_non_preemptible: bool  # it may not be preempted: quotas bind it, too
    start_s: int = 0
    end_s: int = 0


class ClassCharges:
    """The charges of one cycle; equal needs are worked out once."""

    def __init__(self, state: ClusterState, working: WorkingCopy) -> None:
        self._state, self._working = state, working
        self._least: dict[RoleNeeds, ResourceVector] = {}
        sizes = working.gpus[:, SIZE][working.gpus[:, USABLE] > 0]
        self.largest_mib = int(sizes.max(initial=0))
        self._equal_mib = self.largest_mib if (sizes == self.largest_mib).all() else 0

    def takes_work(self, queue: str) -> bool:
        """The queue exists and has none below it."""
        row = self._working.queues.row.get(queue)
        return row is not None and self._working.queues.is_leaf[row]

    def may_start(self, found: WaitingClass) -> bool:
        """Its queue takes work, and its limits leave room for the least that it would pay."""
        queues = self._working.queues
        row = queues.row.get(found.queue)
        if row is None or not queues.is_leaf[row]:
            return False
        is_preemptible = found.signature.is_preemptible
        if found.signature.nominated_for or (is_preemptible and not queues.is_bounded[row]):
            return True  # nominations are paid for; and without limits everything is allowed
        if found.choices is not None:  # what one way needs too much of, another may need less of
            charges = (
                least_charge(self._state, way, lambda _: self.largest_mib) for way in needs_of_each_choice(found)
            )
            return any(within_limits(self._working, row, charge, not is_preemptible) for charge in charges)
        return within_limits(self._working, row, self.least(found), not is_preemptible)

    def least(self, found: WaitingClass) -> ResourceVector:
        """The least that its queue pays before a workload of this class has started."""
        if found.least_charge is None or found.least_charge[0] != self.largest_mib:
            needs = needs_charged_first(found)
            charge = self._least.get(needs)
            if charge is None:
                charge = self._least[needs] = least_charge(self._state, needs, lambda _: self.largest_mib)
            found.least_charge = (self.largest_mib, charge)
        return found.least_charge[1]

    def least_with_models(self, found: WaitingClass) -> ResourceVector:
        """The same, with what it needs of bounded GPU models."""
        if not self._working.queues.models:
            return self.least(found)
        return (*self.least(found), *least_by_model(self._state, needs_charged_first(found)))

    def queue_charge(self, found: WaitingClass) -> QueueCharge:
        """What the queue pays for a workload of this class, and by which rules."""
        payer = self.payer(found)
        return QueueCharge(payer.queue, self.least_with_models(found), payer.is_non_preemptible)

    def payer(self, found: WaitingClass) -> Payer:
        """The queue that pays for a workload of this class."""
        return Payer(self._working.queues.row[found.queue], not found.signature.is_preemptible)

    def known_charge(self, want: Request) -> ResourceVector | None:
        """What the queue will pay for such a pod; None where that depends on the devices it gets."""
        if want.is_partition or (want.is_memory and not self._equal_mib):
            return None
        return charge_of(want, 1, self._equal_mib)

    def next_of(self, lane: Lane) -> NextNeed:
        """What the first workload of a lane needs to start, and since when it waits."""
        name, _, found = lane.first
        return self.least(found), self._state.workloads[name].submitted_s

    def one_pod_of(self, found: WaitingClass, workload: Workload) -> NextNeed:
        """What one more pod of a workload needs, and since when it waits."""
        want = self._state.backlog.shapes[found.needs[0].shape]
        return charge_of(want, 1, self.largest_mib), workload.submitted_s
