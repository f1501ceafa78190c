"""Why is this workload waiting, and what would start it now?

In:    the picture, a name, the policy.   Out: every obstacle in words, the position, and the cheapest change.
"""

import msgspec

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.obstacles import Inquiry
from kaiwo.decide.score import ShapeBook
from kaiwo.explain.change import CPU, GPU_MEMORY, GPUS, MEMORY, PODS, SHARE, Change, Kind
from kaiwo.explain.cheapest import cheapest_change
from kaiwo.explain.sentences import amount, remedy, sentence
from kaiwo.explain.trial import Question
from kaiwo.model.errors import NotFoundError
from kaiwo.model.policy import Policy
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working import Working


class Explained(msgspec.Struct, frozen=True):
    """An obstacle in numbers and in words."""

    obstacle: Obstacle
    sentence: str
    remedy: str


class Proposal(msgspec.Struct, frozen=True):
    """A change that was verified to start the workload, in words."""

    kind: str
    by: str
    sentence: str
    command: str


class Why(msgspec.Struct, frozen=True):
    """The whole answer."""

    workload: str
    answer: str
    obstacles: tuple[Explained, ...]
    position: int
    ahead: int
    change: Proposal | None
    no_change: str
    as_of_s: int


def obstacles_of(
    picture: Picture, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN
) -> tuple[Obstacle, ...]:
    """Everything that keeps a workload waiting, as of now; empty when it does not wait."""
    picture.tidy()
    backlog = picture.backlog
    if name in backlog.gate:
        return backlog.gate[name]
    if not backlog.stands(name):
        return ()
    found, _ = backlog.stand_of(name)
    if found.key in backlog.open or backlog.all_open:
        return (Obstacle(Reason.NOT_TRIED),)
    snapshot, active = Snapshot(picture, now_s), plugins.active(policy)
    view = Working(snapshot)
    return Inquiry(picture, active, ShapeBook(picture, view, view, active)).obstacles(found.queue, found.needs)


def why(picture: Picture, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN) -> Why:
    """The answer to `kaiwo why`."""
    workload = picture.workloads.get(name)
    if workload is None:
        raise NotFoundError(f"there is no living workload '{name}'; kaiwo get workloads lists them")
    obstacles = obstacles_of(picture, name, policy, now_s, plugins)
    if not obstacles:
        return Why(name, _placed(picture, name), (), 0, 0, None, "", now_s)
    explained = tuple(Explained(each, sentence(each), remedy(each)) for each in obstacles)
    if name in picture.pods:
        answer = f"{_short(name)} runs with {len(picture.pods[name])} of {workload.pods} pods: {explained[0].sentence}"
        return Why(name, answer, explained, 0, 0, None, "it runs already, and grows when there is room", now_s)
    change, no_change = cheapest_change(Question(picture, name, policy, now_s, plugins))
    position = picture.backlog.position(name)
    return Why(
        workload=name,
        answer=f"{_short(name)} waits: {explained[0].sentence}",
        obstacles=explained,
        position=position,
        ahead=max(0, position - 1),
        change=None if change is None else propose(picture, name, change),
        no_change=no_change,
        as_of_s=now_s,
    )


def propose(picture: Picture, name: str, change: Change) -> Proposal:
    """The change in words, with what to type."""
    words, command = _WORDS[change.kind](picture, name, change)
    return Proposal(change.kind, change.by, words, command)


def _smaller(picture: Picture, name: str, change: Change) -> tuple[str, str]:
    role, dimension = change.subject.split(":")
    several = len(picture.workloads[name].roles) > 1
    whose = f" for role '{role}'" if several else ""
    value = change.value
    what, flag = {
        PODS: (amount(value, "pods"), f"--pods {value}"),
        GPUS: (f"{amount(value, 'gpus')} a pod", f"--gpus {value}"),
        SHARE: (f"{value / 1000:g} of a GPU", f"--fraction {value / 1000:g}"),
        GPU_MEMORY: (f"{value} MiB of a GPU", f"--gpu-memory {value}"),
        CPU: (amount(value, "milli-cpu"), f"--cpu {value}m"),
        MEMORY: (f"{value} MiB of memory", f"--memory {value}Mi"),
    }[dimension]
    return f"ask for {what}{whose} instead", "" if several else _again(name, flag)


def _model(picture: Picture, name: str, change: Change) -> tuple[str, str]:
    return f"ask for {change.subject} instead", _again(name, f"--model {change.subject}")


def _queue(picture: Picture, name: str, change: Change) -> tuple[str, str]:
    return f"submit it to queue '{change.subject}'", _again(name, f"--queue {change.subject}")


def _quota(picture: Picture, name: str, change: Change) -> tuple[str, str]:
    queue, resource = change.subject.split(":")
    unit = {"gpu": "milli-gpu", "cpu": "milli-cpu", "memory": "mib"}[resource]
    limit = getattr(picture.queue_objects[queue], resource).limit
    by, to = amount(change.value, unit), amount(limit + change.value, unit)
    return f"raise the {resource} limit of queue '{queue}' by {by}, to {to}", "kaiwo apply -f QUEUE.yaml"


def _stop(picture: Picture, name: str, change: Change) -> tuple[str, str]:
    return f"stop {_short(change.subject)}, which runs now", f"kaiwo cancel {_short(change.subject)}"


_WORDS = {
    Kind.SMALLER_SIZE: _smaller,
    Kind.OTHER_MODEL: _model,
    Kind.OTHER_QUEUE: _queue,
    Kind.QUOTA: _quota,
    Kind.STOP: _stop,
}


def _placed(picture: Picture, name: str) -> str:
    nodes = sorted({pod.node for pod in picture.pods.get(name, {}).values()})
    where = ", ".join(nodes[:4]) + (" and more" if len(nodes) > 4 else "")
    return f"{_short(name)} does not wait: it has its pods on {where}"


def _again(name: str, flag: str) -> str:
    """A workload is not changed in place: it is cancelled and submitted anew."""
    return f"kaiwo cancel {_short(name)} && kaiwo submit {_short(name)} {flag} ..."


def _short(name: str) -> str:
    """`default/train` is `train` to people."""
    return name.removeprefix("default/")
