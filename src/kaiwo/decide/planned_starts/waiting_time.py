"""Since when a workload waits, from when on it is overdue, and until when it is protected once it has started."""

from kaiwo.model.policy import Policy
from kaiwo.model.workload import ACTIVE_PHASES, Workload
from kaiwo.snapshot.cluster_state import ClusterState


def waiting_since_s(state: ClusterState, workload: Workload) -> int:
    """Since it was submitted, since it was stopped for other work, or since the time before which it may not start."""
    stopped = state.last_stop.get(workload.name)
    return max(workload.submitted_s, workload.not_before_s, stopped.at_s if stopped is not None else 0)


def overdue_from_s(state: ClusterState, workload: Workload, policy: Policy) -> int:
    return waiting_since_s(state, workload) + policy.max_wait_s


def protected_until_s(state: ClusterState, name: str, policy: Policy) -> int:
    """Until when a running workload is not stopped for others, because a place was kept for it; 0: none was."""
    if name not in state.started_overdue:
        return 0
    running = [pod.since_s for pod in state.pods.get(name, {}).values() if pod.phase in ACTIVE_PHASES]
    return min(running) + policy.overdue_run_s if running else 0
