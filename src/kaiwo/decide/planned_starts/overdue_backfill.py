"""Stop backfilled work that overruns its time when a planned start needs the place.

In:    the planned starts, what this cycle evicts already.   Out: evictions (cause: deadline), and when to look again.
Never: stops work before its own estimated end, or work that was there before the place was planned.
"""

from collections.abc import Iterable, Iterator

from kaiwo.decide.cycle_state import CycleInput, earliest_s
from kaiwo.decide.planned_starts.backfill import LEAD_S
from kaiwo.model.plan import Eviction, EvictionCause
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.workload import Phase, Pod, lost_gpu_s
from kaiwo.snapshot.capacity_timeline import OVERDUE_S
from kaiwo.snapshot.cluster_state import ClusterState

UP = (Phase.ASSUMED, Phase.RUNNING)


def stop_overdue(
    cycle: CycleInput, planned: Iterable[PlannedStart], evicted: Iterable[Eviction]
) -> tuple[list[Eviction], int]:
    """Backfilled work on the place of a start that is about to come, if its time is over, stops as a whole.

    Also: when the next of them is over.
    """
    gone = {(each.workload, each.pod) for each in evicted}
    evictions: list[Eviction] = []
    look_again_s = 0
    for each in planned:
        if each.start_s - LEAD_S > cycle.now_s:
            continue
        for pod in _backfilled(cycle.state, each):
            if pod.until_s > cycle.now_s:
                look_again_s = earliest_s(look_again_s, pod.until_s)
            elif (pod.workload, pod.name) not in gone:
                evictions += _stop(cycle, pod.workload, each.workload)
                gone.update((eviction.workload, eviction.pod) for eviction in evictions)
    return evictions, look_again_s


def next_planned_moment_s(planned: Iterable[PlannedStart], now_s: int) -> int:
    """When time alone changes something: a planned start comes, or the gap before one ends; 0: never."""
    found = 0
    for each in planned:
        moments = (each.start_s - LEAD_S, each.start_s, each.start_s + OVERDUE_S)
        found = earliest_s(found, next((at_s for at_s in moments if at_s > now_s), 0))
    return found


def _backfilled(state: ClusterState, planned: PlannedStart) -> Iterator[Pod]:
    """The pods that fill gaps on the devices of a planned start, or on its nodes where it uses no device."""
    for place in planned.places:
        gpus = {share.gpu for share in place.devices}
        for held in state.allocations_on.get(place.node, {}).values():
            if not isinstance(held, Pod) or not held.until_s or held.phase not in UP:
                continue
            if not gpus or not gpus.isdisjoint(share.gpu for share in held.devices):
                yield held


def _stop(cycle: CycleInput, name: str, beneficiary: str) -> Iterator[Eviction]:
    pods = [pod for pod in cycle.state.pods[name].values() if pod.phase in UP]
    lost = lost_gpu_s(cycle.state.workloads[name], pods, cycle.now_s)
    for pod in sorted(pods, key=lambda pod: pod.name):
        yield Eviction(name, pod.name, EvictionCause.DEADLINE, beneficiary, lost)
        lost = 0  # counted once a workload
