"""A possible change in words, with the command that makes it: for Kaiwo's own CLI, or for kubectl.

In:    a PossibleChange, verified.   Out: a Proposal with the sentence and the command.
"""

from collections.abc import Callable
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
    PossibleChange,
    bound_of,
    is_shared_whole,
    split_bound,
)
from kaiwo.model.amounts import amount
from kaiwo.model.request import Request
from kaiwo.model.workload import Role
from kaiwo.snapshot.cluster_state import ClusterState

REPLACE = "kubectl replace --force -f MANIFEST.yaml"  # a pod is not changed in place: it is deleted and created again


class Proposal(msgspec.Struct, frozen=True):
    """A change that was verified to start the workload, in words."""

    kind: str
    by: str
    sentence: str
    command: str
    subject: str = ""  # as in the PossibleChange


def propose(state: ClusterState, name: str, change: PossibleChange, remark: str = "") -> Proposal:
    """The change in words, with the command and a remark about the search."""
    text, command = _TEXTS[change.kind](state, name, change)
    return Proposal(change.kind, change.by, f"{text} ({remark})" if remark else text, command, change.subject)


def propose_in_kubernetes(proposal: Proposal) -> Proposal:
    """The same for a cluster whose work is managed with kubectl: `kaiwo submit` is refused there."""
    sentence, command = _KUBECTL_TEXTS[ChangeKind(proposal.kind)](proposal)
    return replace(proposal, sentence=sentence, command=command)


def _smaller(state: ClusterState, name: str, change: PossibleChange) -> tuple[str, str]:
    workload, (role_name, dimension) = state.workloads[name], change.subject.split(":")
    role = next(role for role in workload.roles if role.name == role_name)
    whose = f" for role '{role_name}'" if len(workload.roles) > 1 else ""
    what, flag = _size(role, dimension, change.value)
    has_flags = len(workload.roles) == 1 and role.name == Role(role.request).name  # others come from files only
    return f"{what}{whose} instead", _again(name, flag) if has_flags else ""


def _size(role: Role, dimension: str, value: int) -> tuple[str, str]:
    """The smaller size in words, and as the flag that set the size."""
    if dimension == PODS and role.minimum >= 0:
        return f"let it start with {amount(value, 'pods')}", f"--min-pods {value}"
    if dimension in (GPUS, SHARE) and is_shared_whole(role.request):
        return _shared_whole(role.request, dimension, value)
    if dimension == GPUS and not role.request.is_exclusive:
        return f"ask for {amount(value, 'devices')} a pod", f"--devices {value}"
    if dimension == GPUS and role.request.is_partition:
        return f"ask for {value} partition{'s' if value > 1 else ''} a pod", f"--gpus {value}"
    what, flag = {
        PODS: (amount(value, "pods"), f"--pods {value}"),
        GPUS: (f"{amount(value, 'gpus')} a pod", f"--gpus {value}"),
        SHARE: (f"{value / 1000:g} of a GPU", f"--fraction {value / 1000:g}"),
        GPU_MEMORY: (f"{amount(value, 'mib')} of a GPU", f"--gpu-memory {value}"),
        CPU: (amount(value, "milli-cpu"), f"--cpu {_typed(value, 1000, '', 'm')}"),
        MEMORY: (f"{amount(value, 'mib')} of memory", f"--memory {_typed(value, 1024, 'Gi', 'Mi')}"),
    }[dimension]
    return f"ask for {what}", flag


def _shared_whole(request: Request, dimension: str, value: int) -> tuple[str, str]:
    """Fewer whole GPUs that others may use, or less of each; the flags replace all other GPU flags."""
    if dimension == GPUS:
        return f"ask for {amount(value, 'gpus')} a pod", f"--gpus {value} --shared"
    each = f"each of {request.gpus} GPUs" if request.gpus > 1 else "a GPU"
    return f"ask for a fraction of {value / 1000:g} of {each}", f"--fraction {value / 1000:g} --devices {request.gpus}"


def _typed(value: int, many: int, large: str, small: str) -> str:
    """In the larger unit where that is exact, as in the sentence."""
    return f"{value}{small}" if value % many else f"{value // many}{large}"


def _model(state: ClusterState, name: str, change: PossibleChange) -> tuple[str, str]:
    return f"ask for {change.subject} instead", _again(name, f"--model {quote(change.subject)}")


def _queue(state: ClusterState, name: str, change: PossibleChange) -> tuple[str, str]:
    return f"submit it to queue '{change.subject}'", _again(name, f"--queue {change.subject}")


def _quota(state: ClusterState, name: str, change: PossibleChange) -> tuple[str, str]:
    queue, resource, model, bound = split_bound(change.subject)
    unit = {"gpu": "milli-gpu", "cpu": "milli-cpu", "memory": "mib"}[resource]
    by, to = amount(change.value, unit), amount(bound_of(state, change.subject) + change.value, unit)
    return f"raise the {model or resource} {bound} of queue '{queue}' by {by}, to {to}", "kaiwo apply -f QUEUE.yaml"


def _stop(state: ClusterState, name: str, change: PossibleChange) -> tuple[str, str]:
    return f"stop {_short(change.subject)}, which is running now", f"kaiwo cancel {_short(change.subject)}"


_TEXTS = {
    ChangeKind.SMALLER_SIZE: _smaller,
    ChangeKind.OTHER_MODEL: _model,
    ChangeKind.OTHER_QUEUE: _queue,
    ChangeKind.QUOTA: _quota,
    ChangeKind.STOP: _stop,
}


def _again(name: str, flag: str) -> str:
    """A workload is not changed in place: it is cancelled and submitted again."""
    return f"kaiwo cancel {_short(name)} && kaiwo submit {_short(name)} {flag} ..."


def _short(name: str) -> str:
    """`default/train` is `train` to people."""
    return name.removeprefix("default/")


def _in_manifest(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: change its manifest, and create it again", REPLACE


def _model_in_manifest(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: set kaiwo.ai/gpu-models: {proposal.subject} in its manifest", REPLACE


def _queue_in_manifest(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: set kaiwo.ai/queue: {proposal.subject} in its manifest", REPLACE


def _quota_with_kubectl(proposal: Proposal) -> tuple[str, str]:
    return proposal.sentence, f"kubectl edit kaiwoqueue {split_bound(proposal.subject)[0]}"


def _stop_with_kubectl(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: delete its pods, or the object that owns them, with kubectl", ""


_KUBECTL_TEXTS: dict[ChangeKind, Callable[[Proposal], tuple[str, str]]] = {
    ChangeKind.SMALLER_SIZE: _in_manifest,
    ChangeKind.LOOSER_LEVEL: _in_manifest,
    ChangeKind.OTHER_MODEL: _model_in_manifest,
    ChangeKind.OTHER_QUEUE: _queue_in_manifest,
    ChangeKind.QUOTA: _quota_with_kubectl,
    ChangeKind.STOP: _stop_with_kubectl,
}
