"""Assume that a step of moves was made: on a fork of the cluster state, to plan what comes after it."""

from msgspec.structs import replace

from kaiwo.model.defragmentation import KeptPlace, Move, MoveStep
from kaiwo.model.events import Event, PodChanged, PodGone
from kaiwo.model.plan import Start
from kaiwo.model.workload import Phase, Pod, role_of
from kaiwo.snapshot.assumed_events import assumed_pod
from kaiwo.snapshot.cluster_state import ClusterState


def assume_step(state: ClusterState, step: MoveStep, now_s: int) -> None:
    gone: list[Event] = [PodGone(move.workload, move.pod) for move in step.moves]
    places: list[Move | KeptPlace] = [*step.moves, *step.starts]
    state.patch([*gone, *(PodChanged(_pod_at(state, place, now_s)) for place in places)])


def _pod_at(state: ClusterState, place: Move | KeptPlace, now_s: int) -> Pod:
    request = role_of(state.workloads[place.workload], place.pod).request
    start = Start(place.workload, place.pod, place.node, place.devices)
    return replace(assumed_pod(start, request, now_s), phase=Phase.RUNNING)
