"""Stop work that filled a gap and outlives its time, when a planned start needs the place.

In:    the desk with its promises.   Out: evictions (cause: deadline), and when to look again.
Never: stops work before its own estimated end, or work that was there before the place was promised.
"""

from collections.abc import Iterator

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.planned_starts.backfill import LEAD_S
from kaiwo.model.plan import Cause, Eviction
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.workload import Phase, Pod, lost_gpu_s
from kaiwo.snapshot.capacity_timeline import OVERDUE_S

UP = (Phase.ASSUMED, Phase.RUNNING)


def stop_overdue(desk: CycleState) -> None:
    """Whoever fills the place of a start that is about to come, and should have gone, goes with its whole workload."""
    now_s = desk.working.now_s
    for promise in desk.promised.values():
        if promise.start_s - LEAD_S > now_s:
            continue
        for pod in _fillers(desk, promise):
            if pod.until_s > now_s:
                desk.look_again(pod.until_s)
            elif (pod.workload, pod.name) not in desk.roster.gone:
                _stop(desk, pod.workload, promise.workload)


def wake_for(desk: CycleState) -> None:
    """Planned starts are moments at which time alone changes something, and so is the end of the gap before them."""
    now_s = desk.working.now_s
    for promise in desk.promised.values():
        for at_s in (promise.start_s - LEAD_S, promise.start_s, promise.start_s + OVERDUE_S):
            if at_s > now_s:
                desk.look_again(at_s)
                break


def _fillers(desk: CycleState, promise: PlannedStart) -> Iterator[Pod]:
    """The pods that fill gaps on the devices of a promise, or on its nodes where it takes no device."""
    for place in promise.places:
        gpus = {share.gpu for share in place.devices}
        for held in desk.state.allocations_on.get(place.node, {}).values():
            if not isinstance(held, Pod) or not held.until_s or held.phase not in UP:
                continue
            if not gpus or not gpus.isdisjoint(share.gpu for share in held.devices):
                yield held


def _stop(desk: CycleState, name: str, beneficiary: str) -> None:
    pods = [pod for pod in desk.state.pods[name].values() if pod.phase in UP]
    lost = lost_gpu_s(desk.state.workloads[name], pods, desk.working.now_s)
    for pod in sorted(pods, key=lambda pod: pod.name):
        desk.evict(Eviction(name, pod.name, Cause.DEADLINE, beneficiary, lost))
        lost = 0  # told once a workload
