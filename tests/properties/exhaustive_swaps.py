"""The smallest number of running pods that must move so that the missing pods of a gang fit: by trying everything.

In:    a small world and its gang.   Out: how few pods move; None: no set of moves works.
It shares no code with the scheduler: it knows nodes, labels, GPUs and pods, and puts whole GPUs on nodes by counting.
"""

from collections import Counter
from itertools import combinations

from kaiwo.model.workload import Pod, Workload, pod_index
from kaiwo.snapshot.cluster_state import ClusterState


def smallest_swap_of(state: ClusterState, workload: Workload) -> int | None:
    """Pods of the gang move one by one; other work moves as a whole, since it restarts as a whole."""
    own = [pod for _, pod in sorted(state.pods[workload.name].items())]
    others = [list(pods.values()) for name, pods in sorted(state.pods.items()) if name != workload.name]
    units: list[list[Pod]] = [[pod] for pod in own] + others
    ready = {name: len(node.gpus) for name, node in state.node_objects.items() if node.ready}
    sizes = sorted({sum(map(len, chosen)) for k in range(len(units) + 1) for chosen in combinations(units, k)})
    for size in sizes:
        for k in range(len(units) + 1):
            for chosen in combinations(units, k):
                if sum(map(len, chosen)) == size and _works(
                    state, workload, ready, [p for unit in chosen for p in unit]
                ):
                    return size
    return None


def _works(state: ClusterState, workload: Workload, ready: dict[str, int], moved: list[Pod]) -> bool:
    keys = {(pod.workload, pod.name) for pod in moved}
    free = Counter(ready)
    fixed: dict[str, str] = {}
    for name, pods in state.pods.items():
        for pod in pods.values():
            if (name, pod.name) not in keys:
                free[pod.node] -= len(pod.devices)
                if name == workload.name:
                    fixed[pod.name] = pod.node
    role = workload.roles[0]
    names = [f"main-{index}" for index in range(role.count)]
    to_place = [name for name in names if name not in fixed]
    elsewhere = [len(pod.devices) for pod in moved if pod.workload != workload.name]
    return _place(state, workload, free, fixed, to_place, elsewhere)


def _place(
    state: ClusterState,
    workload: Workload,
    free: Counter[str],
    fixed: dict[str, str],
    left: list[str],
    others: list[int],
) -> bool:
    if not left:
        return _pack(free, sorted(others, reverse=True))
    name, size = left[0], workload.roles[0].request.gpus
    for node in sorted(free):
        if free[node] >= size and node in state.node_objects and state.node_objects[node].ready:
            where = {**fixed, name: node}
            if _holds(state, workload, where):
                free[node] -= size
                if _place(state, workload, free, where, left[1:], others):
                    free[node] += size
                    return True
                free[node] += size
    return False


def _pack(free: Counter[str], sizes: list[int]) -> bool:
    if not sizes:
        return True
    for node in sorted(free):
        if free[node] >= sizes[0]:
            free[node] -= sizes[0]
            if _pack(free, sizes[1:]):
                free[node] += sizes[0]
                return True
            free[node] += sizes[0]
    return False


def _holds(state: ClusterState, workload: Workload, where: dict[str, str]) -> bool:
    def domain(node: str, level: str) -> str:
        return state.node_objects[node].labels[f"net/{level}"]

    if workload.required_level and len({domain(node, workload.required_level) for node in where.values()}) > 1:
        return False
    if workload.segment_size:
        segments: dict[int, set[str]] = {}
        for name, node in where.items():
            segments.setdefault(pod_index(name) // workload.segment_size, set()).add(domain(node, "leaf"))
        return all(len(found) == 1 for found in segments.values())
    return True
