"""Whose work a queue takes.

In:    the queues, a workload.   Out: who turns it away, and by which list; None when it may come in.
"""

from collections.abc import Mapping

from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload


def who_turns_away(
    queues: Mapping[str, Queue], workload: Workload, knows_user: bool = True
) -> tuple[Queue, str] | None:
    """Its queue and every queue above that must take work of its namespace and, where he is known, of its user."""
    namespace = workload.name.partition("/")[0]
    at, seen = workload.queue, set[str]()
    while (queue := queues.get(at)) is not None and at not in seen:
        seen.add(at)  # a cluster may hold a circle that nobody refused
        if queue.namespaces and namespace not in queue.namespaces:
            return queue, "namespaces"
        if knows_user and queue.users and workload.user not in queue.users:
            return queue, "users"
        at = queue.parent
    return None
