"""Swap: where a gang that lost pods to a failure finds no room for them, move as few pods as possible.

It comes after reclaim and preemption. Every new place is free when it decides, or freed by the same swap: nothing stops
for a place that is not there. A gang that finds no swap keeps waiting, and its obstacle names the level.
"""

from msgspec.structs import replace

from kaiwo.decide.make_room.room_state import RoomState
from kaiwo.decide.make_room.smallest_swap import SwapSearch
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.plan import EvictionCause
from kaiwo.model.recovery import Recovery, RecoveryWay
from kaiwo.model.workload import ACTIVE_PHASES, RELEASING_PHASES, Workload, has_required_pods, ordered_pods
from kaiwo.snapshot.cluster_state import ClusterState


def swap_for_recovery(room: RoomState) -> tuple[Recovery, ...]:
    """The recoveries that go on in another way."""
    state, found = room.cycle.state, list[Recovery]()
    for name, recovery in sorted(state.failures.recoveries.items()):
        workload = state.workloads.get(name)
        if workload is None or room.cycle_state.budget.is_spent or not _lacks_pods(room, workload):
            continue
        missing = [pod for pod, _ in ordered_pods(workload) if pod not in state.pods.get(name, {})]
        waiting_class = state.backlog.class_of(name) if state.backlog.is_queued(name) else None
        if waiting_class is None:
            continue
        search = SwapSearch(room, room.placer_for(workload, waiting_class), workload, missing)
        swap = search.find()
        room.cycle_state.budget.used += search.tries + room.cycle_state.placer.take_retries()
        if swap is None:
            continue
        room.carry_out(workload, swap.room, EvictionCause.RECOVERY)
        room.refusals.pop(waiting_class.key, None)
        way = RecoveryWay.MOVE if swap.is_whole else RecoveryWay.SWAP if swap.moved or swap.others else recovery.way
        found.append(replace(recovery, way=way, moved=swap.moved, others=swap.others))
    return tuple(found)


def is_left_to_swap(state: ClusterState, workload: Workload) -> bool:
    """It lost pods to a failure: only the search for the smallest swap moves others for it."""
    levels = levels_of(workload) if workload.name in state.failures.recoveries else None
    return levels is not None and levels.requires and workload.name in state.pods


def with_swaps(
    waiting: tuple[Recovery, ...], lost: tuple[Recovery, ...], swapped: tuple[Recovery, ...]
) -> tuple[Recovery, ...]:
    """One for each workload, sorted by name: the last one counts."""
    by_name = {each.workload: each for each in (*waiting, *lost, *swapped)}
    return tuple(by_name[name] for name in sorted(by_name))


def _lacks_pods(room: RoomState, workload: Workload) -> bool:
    """It runs without pods that it needs, has no place for them, and none of its pods is leaving."""
    state, name = room.cycle.state, workload.name
    pods = state.pods.get(name, {})
    levels = levels_of(workload)
    if levels is None or not levels.requires or name in room.served or not pods:
        return False
    if any(pod.phase in RELEASING_PHASES for pod in pods.values()):
        return False
    if any((name, pod) in room.victims.evicted for pod in pods):
        return False
    up = {pod for pod in pods if pods[pod].phase in ACTIVE_PHASES}
    kept = {pod for pod in state.nominations.get(name, {}) if (name, pod) not in room.given_up}
    return bool(up) and not has_required_pods(workload, up | kept)
