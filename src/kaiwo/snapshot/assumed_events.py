"""The events that a plan implies: the next cycle assumes them until the cluster reports what happened."""

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kaiwo.model.events import (
    DefragmentationChanged,
    DefragmentationStepChanged,
    Event,
    NominationChanged,
    NominationGone,
    PlannedStartChanged,
    PlannedStartGone,
    PodChanged,
    RecoveryChanged,
    RecoveryGone,
    ReservationChanged,
)
from kaiwo.model.plan import Plan, Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, role_of
from kaiwo.snapshot.evictions.eviction_history import queue_path_of, stops_of_plan

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


def assume(state: "ClusterState", plan: Plan, now_s: int) -> tuple[Event, ...]:
    events: list[Event] = []
    for start in plan.starts:
        request = role_of(state.workloads[start.workload], start.pod).request
        events.append(PodChanged(assumed_pod(start, request, now_s)))
        if start.pod in state.nominations.get(start.workload, {}):
            events.append(NominationGone(start.workload, start.pod))
    events.extend(NominationGone(workload, pod) for workload, pod in plan.given_up)
    for eviction in plan.evictions:
        leaving = state.pods.get(eviction.workload, {}).get(eviction.pod)
        if leaving is not None:
            events.append(PodChanged(replace(leaving, phase=Phase.RELEASING)))
    events.extend(stops_of_plan(plan, now_s, partial(queue_path_of, state)))
    events.extend(NominationChanged(nomination) for nomination in plan.nominations)
    for picked in plan.reserved:
        kept = state.reservations.objects[picked.reservation]
        events.append(ReservationChanged(replace(kept, picked=picked.devices)))
    events.extend(PlannedStartGone(name) for name in plan.unpromised)
    events.extend(PlannedStartChanged(planned) for planned in plan.promises)
    events.extend(RecoveryGone(name) for name in plan.recovered)
    events.extend(RecoveryChanged(recovery) for recovery in plan.recoveries)
    events.extend(map(DefragmentationStepChanged, plan.move_steps))
    run = state.defragmentation.run
    if run is not None and run.name == plan.moves_over:
        events.append(DefragmentationChanged(run.ended(now_s)))
    return tuple(events)


def assumed_pod(start: Start, request: Request, now_s: int) -> Pod:
    return Pod(
        start.workload, start.pod, start.node, Phase.ASSUMED, start.devices,
        request.cpu_milli, request.memory_mib, request.extended, now_s,
        request.neighbours, start.until_s, request.beside, request.share_with, start.annotations, rank=start.rank,
    )  # fmt: skip
