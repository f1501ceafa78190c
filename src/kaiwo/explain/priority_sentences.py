"""A sentence about a priority that counts for less than was asked for."""

from kaiwo.model.priority_cap import priority_cap
from kaiwo.snapshot.cluster_state import ClusterState


def capped_priority(state: ClusterState, name: str) -> str:
    """`its priority counts as 1000, the maximum of queue lab; it asks for 5000`; empty: it has what it asks for."""
    workload = state.workloads.get(name)
    asked = state.priorities.as_asked(workload).priority if workload is not None else 0
    if workload is None or asked == workload.priority:
        return ""
    cap = priority_cap(state.queue_objects, workload.queue)
    by = f"the maximum of queue {cap.queue}" if cap.queue else "the maximum of queues that do not have their own"
    return f"its priority counts as {workload.priority}, {by}; it asks for {asked}"
