"""Stop gangs that have run below their minimum for too long: what is left of them only holds space.

In:    the desk.   Out: evictions on the desk.
"""

from kaiwo.decide.cycle_state import CycleState
from kaiwo.model.plan import Cause, Eviction
from kaiwo.model.workload import Phase, is_enough


def stop_stale_gangs(desk: CycleState) -> None:
    """Every gang whose grace is over, whole."""
    for name in sorted(desk.state.below_minimum):
        workload = desk.state.workloads[name]
        pods = desk.state.pods.get(name, {})
        begun = {start.pod for start in desk.starts if start.workload == name}
        running = {pod for pod in pods if pods[pod].phase in (Phase.RUNNING, Phase.ASSUMED)}
        if not running or is_enough(workload, running | begun):
            continue
        grace_s = desk.policy.stale_gang_grace_s if workload.stale_grace_s is None else workload.stale_grace_s
        if grace_s < 0:
            continue
        until_s = workload.broken_since_s + grace_s
        if until_s > desk.working.now_s:
            desk.look_again(until_s)
            continue
        for pod in sorted(running):
            desk.evict(Eviction(name, pod, Cause.STALE_GANG))
