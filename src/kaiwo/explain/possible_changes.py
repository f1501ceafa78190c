"""The possible changes that could start a waiting workload: a closed list, and what each does to the cluster.

Costs are compared in this order: what the researcher can do before what an admin must do, then the kind in the order
of the list, then how much of it, then names. A change is always one thing: one number, one name.
"""

import enum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.model.events import (
    Event,
    NominationChanged,
    PodChanged,
    PodGone,
    QueueChanged,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.gpus.gpu import SHARED_MILLI, TIME_SLICING
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.queue import UNLIMITED, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState


class ChangeKind(enum.StrEnum):
    SHARE_WITH_ANYONE = "share-with-anyone"
    LOOSER_LEVEL = "looser-level"
    SMALLER_SIZE = "smaller-size"
    OTHER_MODEL = "other-model"
    OTHER_QUEUE = "other-queue"
    QUOTA = "quota"
    STOP = "stop-workload"


class RoleSize(NamedTuple):
    role: str
    dimension: str

    def __str__(self) -> str:
        return f"{self.role}:{self.dimension}"


class QueueBoundRef(NamedTuple):
    """A quota or a limit of a queue: of a resource, or of one GPU model."""

    queue: str
    resource: str
    model: str  # empty: of all GPUs, or of another resource
    bound: str  # limit | quota

    def __str__(self) -> str:
        return f"{self.queue}:{self.resource}{'/' if self.model else ''}{self.model}:{self.bound}"


class LevelRef(NamedTuple):
    """The level that a workload or a part of it would require instead."""

    part: str  # a sub-group or a role; empty: the whole workload
    level: str  # empty: none; the level that it requires now becomes its preferred one

    def __str__(self) -> str:
        return f"{self.part}:{self.level}"


class PossibleChange(msgspec.Struct, frozen=True):
    """What to change, by whom, and what it costs."""

    kind: ChangeKind
    by: str  # researcher | admin
    subject: str | RoleSize | QueueBoundRef | LevelRef  # a text: the model, the queue, or the workload to stop
    value: int = 0  # the new size, or how much the bound is raised
    cost: int = 0  # within the kind: parts per million given up, milli raised, GPU-seconds lost

    @property
    def rank(self) -> tuple[int, int, int, str]:
        return (self.by == "admin", list(ChangeKind).index(self.kind), self.cost, str(self.subject))


PODS, GPUS, SHARE, GPU_MEMORY, CPU, MEMORY = "pods", "gpus", "share", "gpu-memory", "cpu", "memory"
UNITS = {PODS: 1, GPUS: 1, SHARE: 10, GPU_MEMORY: 1, CPU: 100, MEMORY: 1}  # the step by which each shrinks
MIN_FRACTION_MILLI = 10  # the API refuses a smaller share of a GPU
LEAST = {PODS: 1, GPUS: 1, SHARE: MIN_FRACTION_MILLI, GPU_MEMORY: 1, CPU: 1, MEMORY: 1}
_FIELDS = {GPUS: "gpus", SHARE: "gpu_milli", GPU_MEMORY: "gpu_mib", CPU: "cpu_milli", MEMORY: "memory_mib"}
# What the API makes of a whole GPU that others may use: half of it, in turns.
SHARED_WHOLE = (SHARED_MILLI, TIME_SLICING)


def size_of(role: Role, dimension: str) -> int:
    """How large a role is in one dimension; 0 if it does not have it."""
    if dimension == PODS:
        return role.needed
    if dimension == SHARE and role.request.is_exclusive:
        return 0
    if dimension == SHARE:
        return role.request.fraction_milli
    size: int = getattr(role.request, _FIELDS[dimension])
    return size


def is_shared_whole(request: Request) -> bool:
    """It was submitted as whole GPUs that others may use, too."""
    return request.is_fraction and (request.gpu_milli, request.isolation) == SHARED_WHOLE


def resized(workload: Workload, role_name: str, dimension: str, value: int) -> Workload:
    roles = tuple(_resized(role, dimension, value) if role.name == role_name else role for role in workload.roles)
    return replace(workload, roles=roles)


def _resized(role: Role, dimension: str, value: int) -> Role:
    if dimension == PODS:
        return replace(role, count=value) if role.minimum < 0 else replace(role, minimum=value)
    return replace(role, request=replace(role.request, **{_FIELDS[dimension]: value}))


def with_model(workload: Workload, model: str) -> Workload:
    """The workload asking for one other model wherever it asks for a model."""
    roles = tuple(
        replace(role, request=replace(role.request, gpu_models=(model,))) if role.request.gpu_models else role
        for role in workload.roles
    )
    return replace(workload, roles=roles)


def sharing_with_anyone(workload: Workload) -> Workload:
    """The workload without its own rule about who may share a GPU with it."""
    roles = tuple(replace(role, request=replace(role.request, share_with=())) for role in workload.roles)
    return replace(workload, roles=roles)


def with_level(workload: Workload, ref: LevelRef) -> Workload:
    """The workload with another required level, or none."""
    if not ref.part:
        required = workload.required_level
        if workload.levels is None or not required:  # the levels of the whole stand in its tree of sub-groups
            return _with_group_level(workload, ref)
        return replace(workload, required_level=ref.level, preferred_level=workload.preferred_level or required)
    roles = tuple(
        replace(role, levels=_looser(role.levels, ref.level)) if role.name == ref.part and role.levels else role
        for role in workload.roles
    )
    return _with_group_level(replace(workload, roles=roles), ref)


def _with_group_level(workload: Workload, ref: LevelRef) -> Workload:
    groups = tuple(
        replace(group, levels=_looser(group.levels, ref.level)) if group.name == ref.part and group.levels else group
        for group in workload.groups
    )
    return replace(workload, groups=groups)


def _looser(constraint: TopologyConstraint, level: str) -> TopologyConstraint:
    return replace(constraint, required=level, preferred=constraint.preferred or constraint.required)


def bound_of(state: ClusterState, ref: QueueBoundRef) -> int:
    """The current limit or quota."""
    found = state.queue_objects[ref.queue]
    amounts = found.gpu_models[ref.model] if ref.model else _amounts(found, ref.resource)
    return amounts.quota if ref.bound == "quota" else amounts.limit


def _amounts(queue: Queue, resource: str) -> QueueAmounts:
    return {"gpu": queue.gpu, "cpu": queue.cpu, "memory": queue.memory}[resource]


def highest_raise(state: ClusterState, ref: QueueBoundRef, left: int) -> int:
    """A bound above what the cluster has is as good as none; and a quota must stay within the limits."""
    queue, resource, model, bound = ref
    nodes, found = state.node_objects.values(), state.queue_objects[queue]
    if resource == "gpu":
        there = sum(gpu.milli for node in nodes for gpu in node.gpus if not model or gpu.model == model)
    else:
        there = sum(node.cpu_milli if resource == "cpu" else node.memory_mib for node in nodes)
    highest = max(0, there - left)
    if bound == "quota":
        limits = [_amounts(found, resource).limit, *([found.gpu_models[model].limit] if model else [])]
        highest = min([highest, *(limit - bound_of(state, ref) for limit in limits if limit != UNLIMITED)])
    return highest


def raised(state: ClusterState, ref: QueueBoundRef, raise_by: int) -> Queue:
    queue, resource, model, bound = ref
    found, higher = state.queue_objects[queue], {bound: bound_of(state, ref) + raise_by}
    if model:
        return replace(found, gpu_models=found.gpu_models | {model: replace(found.gpu_models[model], **higher)})
    return replace(found, **{resource: replace(_amounts(found, resource), **higher)})


def events_of(state: ClusterState, workload: Workload, change: PossibleChange) -> list[Event]:
    match change.kind, change.subject:
        case ChangeKind.SMALLER_SIZE, RoleSize(role, dimension):
            return [WorkloadChanged(resized(workload, role, dimension, change.value))]
        case ChangeKind.SHARE_WITH_ANYONE, _:
            return [WorkloadChanged(sharing_with_anyone(workload))]
        case ChangeKind.OTHER_MODEL, str(model):
            return [WorkloadChanged(with_model(workload, model))]
        case ChangeKind.OTHER_QUEUE, str(queue):
            return [WorkloadChanged(replace(workload, queue=queue))]
        case ChangeKind.LOOSER_LEVEL, LevelRef() as looser:
            return [WorkloadChanged(with_level(workload, looser))]
        case ChangeKind.QUOTA, QueueBoundRef() as ref:
            return [QueueChanged(raised(state, ref, change.value))]
        case ChangeKind.STOP, str(name):
            return [WorkloadGone(name), *(PodGone(name, pod.name) for pod in held_by(state, name))]
    raise ValueError(f"no such change: {change.kind}")


def events_to_undo(state: ClusterState, workload: Workload, change: PossibleChange) -> list[Event]:
    """What undoes the change, in the state to which it is about to be applied."""
    match change.kind, change.subject:
        case ChangeKind.QUOTA, QueueBoundRef(queue):
            return [QueueChanged(state.queue_objects[queue])]
        case ChangeKind.STOP, str(name):
            kept = state.nominations.get(name, {})
            return [
                WorkloadChanged(state.workloads[name]),
                *(PodChanged(pod) for pod in held_by(state, name)),
                *(NominationChanged(kept[pod]) for pod in sorted(kept)),
                *([state.last_stop[name]] if name in state.last_stop else []),
            ]
    return [WorkloadChanged(workload)]


def held_by(state: ClusterState, name: str) -> list[Pod]:
    """The pods whose places a stop frees, sorted by name: those that are stopping already come free anyway."""
    pods = state.pods.get(name, {})
    return [pods[pod] for pod in sorted(pods) if pods[pod].phase in ACTIVE_PHASES]
