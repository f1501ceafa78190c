"""Built-in orders of queues (furthest below its share first) and of their workloads (by priority, then age)."""

import numpy as np

from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.queues.current_shares import current_shares, queue_demand_of
from kaiwo.queues.queue_order import QueueOrderKeys, entitlement, queue_keys
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.view import View

HOUR_S = 3600


class FairShare:
    """Serve first the queue that is furthest below its fair share, by its parent's policy: see `queue_keys`."""

    name, version = "fair-share", "1"

    def queue_order(self, view: View, queues: Rows, next_need: IntArray, next_since_s: IntArray) -> IntArray:
        return queue_keys(
            current_shares(view), queue_demand_of(view).totals, np.asarray(queues), next_need, next_since_s
        )

    def queue_order_of(self, view: View, queue: int, next_need: tuple[int, ...], next_since_s: int) -> tuple[int, ...]:
        return view.once(_order_keys).keys(queue, next_need, next_since_s)


def _order_keys(view: View) -> QueueOrderKeys:
    shares = current_shares(view)
    return QueueOrderKeys(shares, entitlement(shares, queue_demand_of(view).totals))


class PriorityThenAge:
    """Inside a queue: higher priority first, then the older workload.

    With the policy's boosts, priority counts as priority + age_boost x hours waited + size_boost x GPUs. All waiting
    workloads age at the same rate, so the order between two of them never changes, and it is computed once.
    """

    name, version = "priority-then-age", "2"

    def workload_order(self, workload: Workload, policy: Policy) -> tuple[int, ...]:
        """In thousandths of a point and seconds, so that it stays an integer."""
        if not policy.age_boost_milli and not policy.size_boost_milli:
            return (-workload.priority, workload.submitted_s)
        points = 1000 * workload.priority * HOUR_S - policy.age_boost_milli * workload.submitted_s
        gpus_milli = sum(role.request.least_milli * role.count for role in workload.roles)
        points += policy.size_boost_milli * gpus_milli * HOUR_S // 1000
        return (-points, workload.submitted_s)


PLUGINS = (FairShare, PriorityThenAge)
