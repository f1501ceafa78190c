"""Plan moves that leave nodes without work, so that they may go.

In:    how many nodes are to be free.   Out: a step for each node that becomes free, the fewest moves first.
The pods of a freed node never go to a node that has no work, nor to one that was freed before. Nodes with
reservations or planned starts stay as they are. Nothing keeps new work off a freed node: cordon it before it goes.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.defragment.movable_work import MovableWork
from kaiwo.decide.defragment.smallest_room import PlacedMove
from kaiwo.decide.make_room.room_state import RoomState
from kaiwo.decide.placement.place_again import DisplacedPods, place_again
from kaiwo.decide.placement.place_pods import NodeCosts
from kaiwo.decide.placement.pod_affinity import still_holds
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload, role_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import FREE_GPU
from kaiwo.snapshot.working_copy import WorkingCopy

MOST_TRIED = 200  # nodes
SHARE_MILLI = 100  # smaller differences do not count


class FullestFirst(NodeCosts):
    """The fewer GPUs are free on a node, the less a place there costs."""

    def __init__(self, working: WorkingCopy) -> None:
        self._working = working

    def of_nodes(self, want: Request) -> IntArray:
        free: IntArray = np.maximum(self._working.free[:, FREE_GPU], 0)
        return free // SHARE_MILLI


class NodesToFree:
    def __init__(self, room: RoomState, movable: MovableWork) -> None:
        self._room, self._movable = room, movable
        self._state, self._working = room.cycle.state, room.cycle_state.working
        self._pods = _pods_by_node(self._state)
        self.free = tuple(name for name in sorted(self._working.nodes.names) if self._has_no_work(name))
        self._closed = set(self.free)
        self._targets: set[str] = set()  # nodes that have got pods of others
        self._placer = room.cycle_state.placer.with_costs(FullestFirst(self._working))

    def find(self, nodes: int, most_moves: int) -> list[tuple[str, tuple[PlacedMove, ...]]]:
        """Nodes that become free, with the moves of each. Every node is tried on top of those before it."""
        found: list[tuple[str, tuple[PlacedMove, ...]]] = []
        left, pinned = most_moves, self._pinned()
        for name in self._by_moves()[:MOST_TRIED]:
            if len(self.free) + len(found) >= nodes:
                break
            pods = self._pods.get(name, [])
            if name in pinned or name in self._targets or len(pods) > left:
                continue
            moves = self._empty(name, pods)
            if moves is not None:
                self._closed.add(name)
                self._targets |= {move.place.node for move in moves}
                left -= len(moves)
                found.append((name, moves))
        return found

    def _by_moves(self) -> list[str]:
        """The nodes whose pods may all move: few pods first, then little work that is lost."""
        found = []
        for name, pods in self._pods.items():
            workloads = [self._state.workloads.get(pod.workload) for pod in pods]
            is_movable = all(each is not None and self._movable.reason(each) is None for each in workloads)
            if is_movable and all(pod.phase is Phase.RUNNING for pod in pods) and name in self._working.nodes.row:
                pairs = zip(workloads, pods, strict=True)
                lost = sum(self._movable.lost_gpu_s(each, pod) for each, pod in pairs if each is not None)
                found.append((len(pods), lost, name))
        return [name for _, _, name in sorted(found)]

    def _empty(self, name: str, pods: Sequence[Pod]) -> tuple[PlacedMove, ...] | None:
        by_workload: dict[str, list[Pod]] = {}
        for pod in sorted(pods, key=lambda each: (-len(each.devices), each.workload, each.name)):
            by_workload.setdefault(pod.workload, []).append(pod)
        moves: list[PlacedMove] = []
        with self._working.trial() as attempt:
            for pod in pods:
                workload = self._state.workloads[pod.workload]
                self._working.release(pod, self._working.queues.row[workload.queue], not workload.preemptible)
            for workload_name, own in by_workload.items():
                workload = self._state.workloads[workload_name]
                avoided = frozenset({*self._closed, name})
                request_of = partial(_elsewhere, self._state, avoided, workload)
                displaced = DisplacedPods(workload, [pod.name for pod in own], request_of)
                placed = place_again(self._placer, self._state, displaced)
                if placed is None:
                    return None
                moves += [PlacedMove(pod, placed.places[pod.name]) for pod in own]
            wants = [(role_of(self._state.workloads[each.pod.workload], each.pod.name).request, each) for each in moves]
            if not all(
                still_holds(self._working, want, self._working.nodes.row[each.place.node]) for want, each in wants
            ):
                return None
            attempt.keep()
        return tuple(moves)

    def _has_no_work(self, name: str) -> bool:
        return not self._pods.get(name) and name not in self._pinned()

    def _pinned(self) -> set[str]:
        """Nodes for which something is planned, or kept."""
        state = self._state
        found = {node for start in state.planned_starts.values() for node in start.nodes}
        found |= {kept.node for nominations in state.nominations.values() for kept in nominations.values()}
        for each in state.reservations.objects.values():
            found |= {*each.nodes, *(device.node for device in (*each.devices, *each.picked))}
        return found


def _pods_by_node(state: ClusterState) -> dict[str, list[Pod]]:
    """Pods of workloads that we know, and those of others that hold GPUs. Daemons without GPUs go with their node."""
    found: dict[str, list[Pod]] = {}
    for name, pods in sorted(state.pods.items()):
        for pod in pods.values():
            if pod.phase is not Phase.DONE and (name in state.workloads or pod.devices):
                found.setdefault(pod.node, []).append(pod)
    return found


def _elsewhere(state: ClusterState, avoided: frozenset[str], workload: Workload, role: Role) -> Request:
    request = state.request_of(workload, role)
    return replace(request, avoid_nodes=tuple(sorted({*request.avoid_nodes, *avoided})))
