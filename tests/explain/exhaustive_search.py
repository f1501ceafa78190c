"""Every change of the closed list, tried one by one through `decide`: slow, plain, and right."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.explain.possible_changes import (
    CPU,
    GPU_MEMORY,
    GPUS,
    LEAST,
    MEMORY,
    PODS,
    SHARE,
    UNITS,
    ChangeKind,
    PossibleChange,
    QueueBoundRef,
    RoleSize,
    events_of,
    raised,
    size_of,
)
from kaiwo.model.events import Event, WorkloadChanged, WorkloadGone
from kaiwo.model.queue_validation import check_queue_tree
from kaiwo.model.workload import Phase, Workload
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.queue_table import RESOURCES
from tests.worlds import World

PPM = 1_000_000


def cheapest_by_search(world: World, name: str, raise_step: int) -> PossibleChange | None:
    """The first of all changes, in the order of their cost, that starts the workload."""
    every = sorted(every_change(world, name, raise_step), key=lambda change: change.rank)
    cancelled = _cancelled(world, name)
    return next((change for change in every if _starts_after(world, cancelled, name, change)), None)


def _starts_after(world: World, cancelled: ClusterState, name: str, change: PossibleChange) -> bool:
    """One cycle of `decide` on a fork, with the change made as a person makes it."""
    told = events_of(world.state, world.state.workloads[name], change)
    if is_submitted_again(change):
        fork, told = cancelled.fork(), [submitted_again(each, world.now_s) for each in told]
    else:
        fork = world.state.fork()
    fork.patch(told)
    return any(start.workload == name for start in decide(fork.snapshot(world.now_s), world.policy).starts)


def _cancelled(world: World, name: str) -> ClusterState:
    """The cluster a cycle after the workload was cancelled."""
    fork = world.state.fork()
    fork.patch([WorkloadGone(name)])
    plan = decide(fork.snapshot(world.now_s), world.policy)
    fork.record_cycle(plan)
    fork.patch(assume(fork, plan, world.now_s))
    return fork


def is_submitted_again(change: PossibleChange) -> bool:
    """Whoever asks for less, another model or another queue cancels the workload and submits it again."""
    return change.kind in (ChangeKind.SMALLER_SIZE, ChangeKind.OTHER_MODEL, ChangeKind.OTHER_QUEUE)


def submitted_again(event: Event, now_s: int) -> Event:
    assert isinstance(event, WorkloadChanged)
    return WorkloadChanged(replace(event.workload, submitted_s=now_s))


def every_change(world: World, name: str, raise_step: int) -> Iterator[PossibleChange]:
    """The whole list, in no order."""
    state = world.state
    workload = state.workloads[name]
    for role in workload.roles:
        for dimension in (PODS, GPUS, SHARE, GPU_MEMORY, CPU, MEMORY):
            size = size_of(role, dimension)
            # Memory has a hundred thousand sizes: every one near the free amounts, and steps in between.
            for value in _values(size, UNITS[dimension], LEAST[dimension], dimension in (GPU_MEMORY, MEMORY)):
                cost = PPM * (size - value) // size
                yield PossibleChange(ChangeKind.SMALLER_SIZE, "researcher", RoleSize(role.name, dimension), value, cost)
    asked = {model for role in workload.roles for model in role.request.gpu_models}
    if asked:
        for model in {gpu.model for node in state.node_objects.values() for gpu in node.gpus} - asked:
            yield PossibleChange(ChangeKind.OTHER_MODEL, "researcher", model)
    parents = {queue.parent for queue in state.queue_objects.values()}
    for queue in state.queue_objects:
        if queue != workload.queue and queue not in parents and _is_theirs(state, queue, workload):
            yield PossibleChange(ChangeKind.OTHER_QUEUE, "researcher", queue)
    for other, pods in state.pods.items():
        if other != name and other in state.workloads:
            by = "researcher" if state.workloads[other].user == workload.user else "admin"
            held = [pod for pod in pods.values() if pod.phase in (Phase.ASSUMED, Phase.RUNNING)]
            lost = [(world.now_s - p.since_s) * (sum(s.milli for s in p.devices) + p.cpu_milli // 100) for p in held]
            if held:
                yield PossibleChange(ChangeKind.STOP, by, other, cost=sum(lost) // 1000)
    queue = workload.queue
    while queue in state.queue_objects:
        found = state.queue_objects[queue]
        for resource in RESOURCES:
            yield from _raises(state, QueueBoundRef(queue, resource, "", ""), getattr(found, resource), raise_step)
        for model, amounts in found.gpu_models.items():
            yield from _raises(state, QueueBoundRef(queue, "gpu", model, ""), amounts, raise_step)
        queue = found.parent


def _raises(state: ClusterState, ref: QueueBoundRef, amounts: Any, step: int) -> Iterator[PossibleChange]:
    """Every raise of the limit and of the quota that the door lets in."""
    step = {"memory": 1_024, "cpu": 500}.get(ref.resource, step)
    for bound in ("limit", "quota"):
        for raise_by in range(step, _all_of(state, ref.resource) + step, step):
            change = PossibleChange(ChangeKind.QUOTA, "admin", ref._replace(bound=bound), raise_by, raise_by)
            if getattr(amounts, bound) >= 0 and _is_let_in(state, change):
                yield change


def _is_let_in(state: ClusterState, change: PossibleChange) -> bool:
    assert isinstance(change.subject, QueueBoundRef)
    queue = raised(state, change.subject, change.value)
    return not any(
        finding.is_error for finding in check_queue_tree((state.queue_objects | {queue.name: queue}).values())
    )


def _is_theirs(state: ClusterState, queue: str, workload: Workload) -> bool:
    """No queue on the way up refuses the user, and one of them names the user or the namespace."""
    is_named = False
    while queue in state.queue_objects:
        found = state.queue_objects[queue]
        if found.users and workload.user not in found.users:
            return False
        is_named = is_named or bool(found.users) or workload.name.partition("/")[0] in found.namespaces
        queue = found.parent
    return is_named


def _all_of(state: ClusterState, resource: str) -> int:
    """What the cluster has: a limit that is raised by more is as good as none."""
    nodes = state.node_objects.values()
    if resource == "gpu":
        return sum(1_000 * len(node.gpus) for node in nodes)
    return sum(node.cpu_milli if resource == "cpu" else node.memory_mib for node in nodes)


def _values(size: int, unit: int, least: int, is_memory: bool) -> Iterator[int]:
    steps = (size - least) // unit
    if not is_memory:
        yield from (size - step * unit for step in range(1, steps + 1))
        return
    interesting = (196_608, 65_536, 46_068)
    yield from sorted({v for v in (*range(size - 1, 0, -997), *interesting) if 0 < v < size}, reverse=True)
