"""Stop gangs that have run below their minimum for too long: what is left of them only holds space."""

from kaiwo.decide.make_room.room_state import RoomState
from kaiwo.model.plan import Eviction, EvictionCause
from kaiwo.model.workload import Phase, has_required_pods


def stop_stale_gangs(room: RoomState) -> None:
    """Stop every gang whose grace period is over, whole."""
    cycle = room.cycle
    for name in sorted(cycle.state.below_minimum):
        workload = cycle.state.workloads[name]
        pods = cycle.state.pods.get(name, {})
        started = {start.pod for start in room.starts if start.workload == name}
        running = {pod for pod in pods if pods[pod].phase in (Phase.RUNNING, Phase.ASSUMED)}
        if not running or has_required_pods(workload, running | started):
            continue
        grace_s = cycle.policy.stale_gang_grace_s if workload.stale_grace_s is None else workload.stale_grace_s
        if grace_s < 0:
            continue
        until_s = workload.broken_since_s + grace_s
        if until_s > cycle.now_s:
            room.look_again(until_s)
            continue
        for pod in sorted(running):
            room.evict(Eviction(name, pod, EvictionCause.STALE_GANG))
