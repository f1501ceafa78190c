"""Sentences about possible changes, each with the command that makes it: for Kaiwo's own CLI, or for kubectl."""

from shlex import quote

import msgspec
from msgspec.structs import replace

from kaiwo.explain.possible_changes import (
    CPU,
    GPU_MEMORY,
    GPUS,
    MEMORY,
    PODS,
    SHARE,
    ChangeKind,
    LevelRef,
    PossibleChange,
    QueueBoundRef,
    RoleSize,
    bound_of,
    is_shared_whole,
)
from kaiwo.model.amounts import amount
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.workload import Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState

REPLACE = "kubectl replace --force -f MANIFEST.yaml"  # a pod is not changed in place: it is deleted and created again


class Proposal(msgspec.Struct, frozen=True):
    """A change that was verified to start the workload, in words."""

    kind: str
    by: str
    sentence: str
    command: str
    subject: str | RoleSize | QueueBoundRef | LevelRef = ""  # as in the PossibleChange


def propose(state: ClusterState, name: str, change: PossibleChange, remark: str = "") -> Proposal:
    text, command = _words(state, name, change)
    return Proposal(change.kind, change.by, f"{text} ({remark})" if remark else text, command, change.subject)


def propose_in_kubernetes(proposal: Proposal, kubectl_stop: str = "") -> Proposal:
    """The same for a cluster whose work is managed with kubectl.

    `kaiwo submit` is refused there, and `kaiwo set` changes only what annotations say. `kubectl_stop`: the command that
    stops the workload which it proposes to stop; empty: unknown.
    """
    if proposal.kind == ChangeKind.STOP and kubectl_stop:
        return replace(proposal, command=kubectl_stop)
    if any(f" {field}=" in proposal.command for field in _IN_ANNOTATIONS):
        return proposal
    queue = proposal.subject.queue if isinstance(proposal.subject, QueueBoundRef) else ""
    names = {"sentence": proposal.sentence, "subject": str(proposal.subject), "queue": queue}
    sentence, command = (text.format(**names) for text in _KUBECTL_TEXTS[ChangeKind(proposal.kind)])
    return replace(proposal, sentence=sentence, command=command)


def short_name(workload: str) -> str:
    """`default/train` is `train` to people."""
    return workload.removeprefix("default/")


def _words(state: ClusterState, name: str, change: PossibleChange) -> tuple[str, str]:
    """The sentence and the command."""
    match change.kind, change.subject:
        case ChangeKind.SMALLER_SIZE, RoleSize() as size:
            return _smaller(state.workloads[name], size, change.value)
        case ChangeKind.SHARE_WITH_ANYONE, _:
            return "let anyone share its GPU", _again(name, "--share-with anyone")
        case ChangeKind.OTHER_MODEL, str(model):
            return f"ask for {model} instead", _set(state.workloads[name], f"model={quote(model)}")
        case ChangeKind.OTHER_QUEUE, str(queue):
            return f"submit it to queue '{queue}'", _set(state.workloads[name], f"queue={queue}")
        case ChangeKind.LOOSER_LEVEL, LevelRef() as looser:
            return _looser(state.workloads[name], looser)
        case ChangeKind.QUOTA, QueueBoundRef(queue, resource, model, bound) as ref:
            unit = {"gpu": "milli-gpu", "cpu": "milli-cpu", "memory": "mib"}[resource]
            total = bound_of(state, ref) + change.value
            by, to = amount(change.value, unit, total), amount(total, unit, change.value)
            text = f"raise the {model or resource} {bound} of queue '{queue}' by {by}, to {to}"
            return text, "kaiwo apply -f QUEUE.yaml"
        case ChangeKind.STOP, str(other):
            return f"stop {short_name(other)}, which is running now", f"kaiwo cancel {short_name(other)}"
    raise ValueError(f"no such change: {change.kind}")


def _looser(workload: Workload, looser: LevelRef) -> tuple[str, str]:
    """A wider level, or none; only that of the whole workload can be set."""
    levels = levels_of(workload)
    parts = levels.parts if levels is not None else ()
    required = next((each.constraint.required for each in parts if each.name == looser.part), "")
    whose = f" of '{looser.part}'" if looser.part else ""
    is_field = not looser.part and bool(workload.required_level)
    if looser.level:
        text = f"let the pods{whose} run in one {looser.level} instead of one {required}"
        fields = f"required-level={quote(looser.level)}"
    else:
        text = f"only prefer that the pods{whose} run in one {required}"
        fields = "required-level=" + ("" if workload.preferred_level else f" preferred-level={quote(required)}")
    return text, f"kaiwo set {short_name(workload.name)} {fields}" if is_field else ""


def _smaller(workload: Workload, size: RoleSize, value: int) -> tuple[str, str]:
    role = next(role for role in workload.roles if role.name == size.role)
    whose = f" for role '{role.name}'" if len(workload.roles) > 1 else ""
    if size.dimension == GPUS and is_shared_whole(role.request):  # `gpus=` alone would give it whole ones
        flags = f"--gpus {value} --shared"
        has_flags = len(workload.roles) == 1 and role.name == Role(role.request).name  # others come from files only
        again = _again(workload.name, flags) if has_flags else ""
        return f"ask for {amount(value, 'gpus')} per pod{whose} instead", again
    what, field = _size(role, size.dimension, value)
    return f"{what}{whose} instead", _set(workload, field)


def _size(role: Role, dimension: str, value: int) -> tuple[str, str]:
    """The smaller size in words, and as a field."""
    request = role.request
    if dimension == PODS and role.minimum >= 0:
        return f"let it start with {amount(value, 'pods')}", f"min-pods={value}"
    if dimension == GPUS and not request.is_exclusive:
        return f"ask for {amount(value, 'devices')} per pod", f"devices={value}"
    if dimension == GPUS and request.is_partition:
        return f"ask for {value} partition{'s' if value > 1 else ''} per pod", f"gpus={value}"
    if dimension == SHARE and is_shared_whole(request):
        each = f"each of {request.gpus} GPUs" if request.gpus > 1 else "a GPU"
        return f"ask for a fraction of {value / 1000:g} of {each}", f"fraction={value / 1000:g}"
    what, field = {
        PODS: (amount(value, "pods"), f"pods={value}"),
        GPUS: (f"{amount(value, 'gpus')} per pod", f"gpus={value}"),
        SHARE: (f"{value / 1000:g} of a GPU", f"fraction={value / 1000:g}"),
        GPU_MEMORY: (f"{amount(value, 'mib')} of a GPU", f"gpu-memory={value}"),
        CPU: (amount(value, "milli-cpu"), f"cpu={_typed(value, 1000, '', 'm')}"),
        MEMORY: (f"{amount(value, 'mib')} of memory", f"memory={_typed(value, 1024, 'Gi', 'Mi')}"),
    }[dimension]
    return f"ask for {what}", field


def _typed(value: int, many: int, large: str, small: str) -> str:
    """In the larger unit where that is exact, as in the sentence."""
    return f"{value}{small}" if value % many else f"{value // many}{large}"


def _set(workload: Workload, field: str) -> str:
    """Changed in place, it keeps its age. Work with several kinds of pods is changed in its file only."""
    is_sized = field.partition("=")[0] != "queue"
    if is_sized and (len(workload.roles) > 1 or workload.groups):
        return ""
    return f"kaiwo set {short_name(workload.name)} {field}"


def _again(name: str, flag: str) -> str:
    """For what cannot be changed in place: it is cancelled and submitted again."""
    return f"kaiwo cancel {short_name(name)} && kaiwo submit {short_name(name)} {flag} ..."


_IN_ANNOTATIONS = ("queue", "fraction", "required-level")
_IN_MANIFEST = ("{sentence}: change its manifest, and create it again", REPLACE)
_KUBECTL_TEXTS = {  # the sentence and the command
    ChangeKind.SHARE_WITH_ANYONE: ("{sentence}: remove kaiwo.ai/gpu-share-with from its manifest", REPLACE),
    ChangeKind.SMALLER_SIZE: _IN_MANIFEST,
    ChangeKind.LOOSER_LEVEL: _IN_MANIFEST,
    ChangeKind.OTHER_MODEL: ("{sentence}: set kaiwo.ai/gpu-models: {subject} in its manifest", REPLACE),
    ChangeKind.OTHER_QUEUE: ("{sentence}: set kaiwo.ai/queue: {subject} in its manifest", REPLACE),
    ChangeKind.QUOTA: ("{sentence}", "kubectl edit kaiwoqueue {queue}"),
    ChangeKind.STOP: ("{sentence}: delete its pods, or the object that owns them, with kubectl", ""),
}
