"""What an exhaustive search says about a small cluster: stranded GPUs, and the fewest moves that make room.

It works from nodes and pods alone, and counts by trying every place; nothing of it is shipped.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Workload, request_of
from kaiwo.snapshot.cluster_state import ClusterState


class Room(NamedTuple):
    """What is free on one node."""

    milli: tuple[int, ...]  # of each device
    cpu_milli: int

    def places(self, request: Request) -> Iterator["Room"]:
        """What is left after one pod, for every choice of devices."""
        if request.cpu_milli > self.cpu_milli:
            return
        for chosen in combinations(range(len(self.milli)), request.gpus):
            left = list(self.milli)
            for device in chosen:
                left[device] -= request.gpu_milli
            if min(left, default=0) >= 0:
                yield Room(tuple(left), self.cpu_milli - request.cpu_milli)

    def most_pods(self, request: Request) -> int:
        # Devices with as much left are the same, so one order of them is enough.
        after = {Room(tuple(sorted(each.milli)), each.cpu_milli) for each in self.places(request)}
        return max((1 + each.most_pods(request) for each in after), default=0)


class Cluster(NamedTuple):
    rooms: dict[str, Room]
    is_open: dict[str, bool]

    def without(self, pods: Sequence[tuple[Pod, Request]]) -> "Cluster":
        rooms = dict(self.rooms)
        for pod, request in pods:
            room = rooms[pod.node]
            left = list(room.milli)
            for share in pod.devices:
                left[int(share.gpu.rpartition("-")[2])] += share.milli
            rooms[pod.node] = Room(tuple(left), room.cpu_milli + request.cpu_milli)
        return Cluster(rooms, self.is_open)

    def fits(self, requests: Sequence[Request]) -> bool:
        """All of them together, each anywhere."""
        if not requests:
            return True
        for name, room in self.rooms.items():
            for left in set(room.places(requests[0])) if self.is_open[name] else ():
                if Cluster({**self.rooms, name: left}, self.is_open).fits(requests[1:]):
                    return True
        return False


def cluster_of(state: ClusterState) -> Cluster:
    whole = {name: _empty(node) for name, node in state.node_objects.items()}
    used = Cluster(whole, {name: not node.cordoned for name, node in state.node_objects.items()})
    rooms = dict(used.rooms)
    for workload, pods in state.pods.items():
        for pod in pods.values():
            room, left = rooms[pod.node], list(rooms[pod.node].milli)
            for share in pod.devices:
                left[int(share.gpu.rpartition("-")[2])] -= share.milli
            cpu = room.cpu_milli - request_of(state.workloads[workload], pod.name).cpu_milli
            rooms[pod.node] = Room(tuple(left), cpu)
    return Cluster(rooms, used.is_open)


def stranded_milli(cluster: Cluster, kinds: Sequence[Request]) -> int:
    """By node: what is free less the most that pods of any one kind could use of it."""
    found = 0
    for name, room in cluster.rooms.items():
        usable = [room.most_pods(kind) * kind.gpus * kind.gpu_milli for kind in kinds] if cluster.is_open[name] else []
        found += sum(room.milli) - max(usable, default=0)
    return found


def fewest_moves(state: ClusterState, workload: Workload, most: int) -> int | None:
    """How many pods must change their places so that the workload starts; None: not with this many.

    Pods on closed nodes may leave them. Work that may not be stopped stays.
    """
    cluster = cluster_of(state)
    movable = [
        (pod, request_of(state.workloads[name], pod.name))
        for name, pods in state.pods.items()
        for pod in pods.values()
        if state.workloads[name].preemptible
    ]
    wanted = [role.request for role in workload.roles for _ in range(role.count)]
    for count in range(1, most + 1):
        for chosen in combinations(movable, count):
            if cluster.without(chosen).fits([*wanted, *(request for _, request in chosen)]):
                return count
    return None


def _empty(node: Node) -> Room:
    return Room(tuple(WHOLE_MILLI for _ in node.gpus), node.cpu_milli)
