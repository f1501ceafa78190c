"""Future quota: whether the limits and quotas of queues will leave planned starts what they need."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kaiwo.decide.placement.queue_limits import QueueCharge
from kaiwo.model.planned_start import expected_run_s
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Workload
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import ReclaimRequest, entitled, refusal_to_reclaim
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.queue_table import PathBound, ResourceVector
from kaiwo.snapshot.working_copy import WorkingCopy


class FutureQuota:
    """Bounds of queues in the time to come; computed when first needed."""

    def __init__(self, state: ClusterState, working: WorkingCopy) -> None:
        self._state, self._working = state, working
        self._returned: dict[tuple[int, bool], IntArray] = {}

    def is_bounded(self, charge: QueueCharge) -> bool:
        queues = self._working.queues
        return bool(queues.limits[charge.queue]) or (charge.is_non_preemptible and bool(queues.quotas[charge.queue]))

    def has_precedence(self, charge: QueueCharge, planned: QueueCharge) -> bool:
        """Its queue stays within its fair share, and the planned start takes another queue over its own: a planned
        start does not bind work that other queues are owed."""
        if charge.queue == planned.queue:
            return False
        shares = current_shares(self._working.view)
        request = ReclaimRequest(charge.queue, np.array(charge.charge, np.int64), not charge.is_non_preemptible)
        if refusal_to_reclaim(shares, request) is not None:
            return False
        side, used = self._side_of(planned, charge.queue)
        return bool(((used > entitled(shares, side)) & (request.need > 0)).any())

    def could_have_precedence(self, charge: QueueCharge, planned: QueueCharge) -> bool:
        """It may gain that right once shares follow a changed request: only quotas are certain."""
        if charge.queue == planned.queue:
            return False
        side, used = self._side_of(planned, charge.queue)
        return bool(((used > current_shares(self._working.view).quota[side]) & (np.array(charge.charge) > 0)).any())

    def takes_what_others_are_owed(self, charge: QueueCharge, owed: Rows | None = None) -> bool:
        """It takes its queue over its fair share while work waits in a queue that has less than its own.

        `owed`: those queues, for a caller that asks about many workloads before anything is placed.
        """
        shares = current_shares(self._working.view)
        path = np.array(shares.queues.path[charge.queue], np.intp)
        if not (shares.used[path] + charge.charge > entitled(shares, path)).any():
            return False
        return bool(((self.owed_queues() if owed is None else owed) != charge.queue).any())

    def owed_queues(self) -> Rows:
        """The queues with waiting work that have less than their fair share."""
        shares, demand = current_shares(self._working.view), self._working.view.queue_demand
        rows = [
            row for queue, asked in demand.items() if any(asked) and (row := shares.queues.row.get(queue)) is not None
        ]
        waiting = np.array(rows, np.intp)
        found: Rows = waiting[(shares.used[waiting] < shares.fair[waiting]).any(axis=1)]
        return found

    def may_start(self, charge: QueueCharge, at_s: int, others: Sequence[QueueCharge]) -> bool:
        """At that time the bounds of its queues leave room for its charge, alongside these others."""
        if not self.is_bounded(charge):
            return True
        active = [each for each in others if each.start_s <= at_s < each.end_s]
        bounds = self._bounds(charge)
        return all(self._is_within(bound, charge.charge, at_s, active, is_quota) for bound, is_quota in bounds)

    def leaves(self, planned: QueueCharge, other: QueueCharge) -> bool:
        """The other workload, which still runs when the planned start begins, leaves what that must pay."""
        if not self.is_bounded(planned):
            return True
        path = self._working.queues.path[other.queue]
        for bound, is_quota in self._bounds(planned):
            above, column, _ = bound
            is_shared = above in path and _at(other.charge, column) and (other.is_non_preemptible or not is_quota)
            if is_shared and not self._is_within(bound, planned.charge, planned.start_s, [other], is_quota):
                return False
        return True

    def _side_of(self, planned: QueueCharge, other: int) -> tuple[int, IntArray]:
        """The queue where its path diverges from the other's, and what is used there once it has started."""
        shares = current_shares(self._working.view)
        _, (side,) = shares.queues.tree.diverging_queues(other, np.array([planned.queue]))
        return int(side), shares.used[side] - self._returned_by(planned.start_s, False)[side] + planned.charge

    def _bounds(self, charge: QueueCharge) -> list[tuple[PathBound, bool]]:
        """The limits, and for non-preemptible work the quotas (True)."""
        queues = self._working.queues
        found = [(bound, False) for bound in queues.limits[charge.queue]]
        return found + [(bound, True) for bound in queues.quotas[charge.queue] if charge.is_non_preemptible]

    def _is_within(
        self, bound: PathBound, charge: ResourceVector, at_s: int, others: Sequence[QueueCharge], is_quota: bool
    ) -> bool:
        above, column, most = bound
        if not _at(charge, column):
            return True
        used = self._working.all_non_preemptible if is_quota else self._working.all_used
        paid = int(used[above, column] - self._returned_by(at_s, is_quota)[above, column]) + _at(charge, column)
        for each in others:
            if above in self._working.queues.path[each.queue] and (each.is_non_preemptible or not is_quota):
                paid += _at(each.charge, column)
        return paid <= most

    def _returned_by(self, at_s: int, of_non_preemptible: bool) -> IntArray:
        """What running work pays now, and no longer then."""
        found = self._returned.get((at_s, of_non_preemptible))
        if found is None:
            found = self._returned[at_s, of_non_preemptible] = np.zeros_like(self._working.all_used)
            for paid in self._paid:
                if paid.end_s <= at_s and (paid.is_non_preemptible or not of_non_preemptible):
                    for above in self._working.queues.path[paid.queue]:
                        found[above, : len(paid.charge)] += paid.charge
        return found

    @cached_property
    def _paid(self) -> list[QueueCharge]:
        """What is paid for running pods, each until its expected end."""
        found: list[QueueCharge] = []
        for name, pods in self._state.pods.items():
            workload = self._state.workloads.get(name)
            if workload is not None and (run_s := expected_run_s(workload)):
                found += [each for pod in pods.values() if (each := self._paid_for(workload, pod, run_s))]
        return found

    def _paid_for(self, workload: Workload, pod: Pod, run_s: int) -> QueueCharge | None:
        end_s = pod.since_s + run_s
        row = self._working.queues.row.get(workload.queue)
        if row is None or pod.phase not in ACTIVE_PHASES or (end_s <= self._working.now_s and not pod.until_s):
            return None  # the end of overdue work is unknown
        charge = (sum(share.charge_milli for share in pod.devices), pod.cpu_milli, pod.memory_mib)
        models = self._working.view.milli_by_model(pod.node, pod.devices) if self._working.queues.models else ()
        return QueueCharge(row, (*charge, *models), not workload.preemptible, end_s=end_s)


def _at(charge: ResourceVector, column: int) -> int:
    return charge[column] if column < len(charge) else 0
