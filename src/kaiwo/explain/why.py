"""Why is this workload waiting, and what would start it now?

In:    the picture, a name, the policy.   Out: every obstacle in words, the position, and the cheapest change.
"""

from collections.abc import Callable
from dataclasses import replace
from shlex import quote
from typing import TypeVar

import msgspec

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.make_room.preemption_cooldown import COOLDOWN_REASONS, cooldown_of
from kaiwo.decide.obstacles.find_obstacles import Inquiry, with_verdicts
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.explain.changes_that_evict import change_that_takes, may_ever_take, raise_that_takes
from kaiwo.explain.cheapest_change import cheapest_change
from kaiwo.explain.obstacle_sentences import remedy, sentence
from kaiwo.explain.planned_start_sentences import gap_words, planned_start
from kaiwo.explain.possible_changes import (
    CPU,
    GPU_MEMORY,
    GPUS,
    MEMORY,
    PODS,
    SHARE,
    Change,
    Kind,
    bound_of,
    is_shared_whole,
    split_bound,
)
from kaiwo.explain.verify_change import Question
from kaiwo.model.amounts import amount
from kaiwo.model.errors import NotFoundError
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.reservation import clock_words
from kaiwo.model.workload import Role
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy


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
    subject: str = ""  # as in the Change


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
    planned: str = ""  # when and where it is planned to start, and why then


def obstacles_of(
    state: ClusterState, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN
) -> tuple[Obstacle, ...]:
    """Everything that keeps a workload waiting, as of now; empty when it does not wait."""
    return _with_sound_plugins(Question(state, name, policy, now_s, plugins), _obstacles)


def why(state: ClusterState, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN) -> Why:
    """The answer to `kaiwo why`."""
    if name not in state.workloads:
        raise NotFoundError(f"there is no living workload '{name}'; kaiwo get workloads lists them")
    return _with_sound_plugins(Question(state, name, policy, now_s, plugins), _answer)


Answer = TypeVar("Answer")

_TOLD_BY_CYCLES = (
    Reason.OVER_FAIR_SHARE,
    Reason.NOT_ENOUGH_RECLAIMABLE,
    Reason.NO_WAY_TO_RECLAIM,
    Reason.NO_WAY_TO_PREEMPT,
)


def _with_sound_plugins(question: Question, answer: Callable[[Question], Answer]) -> Answer:
    """A plugin that raises is set aside, as `decide` does it, and the question is asked anew."""
    while True:
        try:
            return answer(question)
        except PluginFaultError as fault:
            question = replace(question, set_aside=(*question.set_aside, fault.plugin))


def _obstacles(question: Question) -> tuple[Obstacle, ...]:
    state, name, active = question.state, question.name, question.active
    state.refresh_tables()
    backlog = state.backlog
    if name in backlog.gated:
        return backlog.gated[name]
    if not backlog.is_queued(name):
        return ()
    found, _ = backlog.find(name)
    if found.key in backlog.to_try or backlog.try_all:
        return (Obstacle(Reason.NOT_TRIED),)
    if any(each.reason is Reason.PROMISED for each in found.obstacles):
        return found.obstacles  # nodes have room, and a planned start needs it: only a whole cycle can tell
    working = WorkingCopy(Snapshot(state, question.now_s))
    now = Inquiry(state, active, ShapeScores(state, working.view, working, active)).obstacles(found)
    # Why nothing is taken from others only a whole cycle can tell: as of the last one.
    told = tuple(each for each in found.obstacles if each.reason in _TOLD_BY_CYCLES)
    return with_verdicts(found, now, told + _waits_out(question, found.obstacles))


def _waits_out(question: Question, told: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
    """The cycle tells it of one in the class; each has a time of its own."""
    found = cooldown_of(question.state, question.workload, question.policy, question.now_s)
    if found is None or not any(each.reason in COOLDOWN_REASONS for each in told):
        return ()
    until_s, obstacle = found
    return (msgspec.structs.replace(obstacle, need=until_s - question.now_s),)


def _answer(question: Question) -> Why:
    state, name, now_s = question.state, question.name, question.now_s
    obstacles = _obstacles(question)
    if not obstacles:
        return Why(name, _placed(state, name), (), 0, 0, None, "", now_s)
    explained = _explained(obstacles)
    change, said = cheapest_change(question)
    proposal = None if change is None else propose(state, name, change, said)
    if name in state.pods:
        pods = f"{len(state.pods[name])} of {question.workload.pods} pods"
        grows = "" if proposal else "it runs already, and grows when there is room"
        return Why(
            name, f"{_short(name)} runs with {pods}: {explained[0].sentence}", explained, 0, 0, proposal, grows, now_s
        )
    if change is None:
        said += _by_taking(question)
    position = state.backlog.position(name)
    return Why(
        workload=name,
        answer=f"{_short(name)} waits: {explained[0].sentence}",
        obstacles=explained,
        position=position,
        ahead=max(0, position - 1),
        change=proposal,
        no_change=said if proposal is None else "",
        as_of_s=now_s,
        planned=planned_start(state, name, now_s),
    )


def _explained(obstacles: tuple[Obstacle, ...]) -> tuple[Explained, ...]:
    """In words; what keeps two of its roles alike is told once."""
    told: dict[tuple[str, str], Obstacle] = {}
    for each in obstacles:
        told.setdefault((sentence(each), remedy(each)), each)
    return tuple(Explained(each, *words) for words, each in told.items())


def _by_taking(question: Question) -> str:
    """What is to be said of changes after which others would be stopped for it."""
    if not may_ever_take(question):
        return ""
    change, were_tried = change_that_takes(question)
    if change is not None:
        return _others_go(question, change)
    another = "with another size, model or queue"
    nobody, unknown = f"; nor are others stopped for it {another}", f"; whether others are stopped for it {another}"
    said = nobody if were_tried else f"{unknown} was not tried"
    higher, was_tried = raise_that_takes(question)
    if higher is None or was_tried:
        return said if higher is None else said + _others_go(question, higher)
    words, _ = _WORDS[higher.kind](question.state, question.name, higher)
    return f"{said}; whether others are stopped for it if you {words} was not tried"


def _others_go(question: Question, change: Change) -> str:
    words, _ = _WORDS[change.kind](question.state, question.name, change)
    delay_s = question.workload.preemption_delay_s
    when = f" once its preemption delay of {gap_words(delay_s)} is over" if delay_s else ""
    return f"; but {words}, and others are stopped to make room for it{when}"


def propose(state: ClusterState, name: str, change: Change, said: str = "") -> Proposal:
    """The change in words, with what to type and what is to be said of the search."""
    words, command = _WORDS[change.kind](state, name, change)
    return Proposal(change.kind, change.by, f"{words} ({said})" if said else words, command, change.subject)


def _smaller(state: ClusterState, name: str, change: Change) -> tuple[str, str]:
    workload, (role_name, dimension) = state.workloads[name], change.subject.split(":")
    role = next(role for role in workload.roles if role.name == role_name)
    whose = f" for role '{role_name}'" if len(workload.roles) > 1 else ""
    what, flag = _size(role, dimension, change.value)
    has_flags = len(workload.roles) == 1 and role.name == Role(role.request).name  # others come from files alone
    return f"{what}{whose} instead", _again(name, flag) if has_flags else ""


def _size(role: Role, dimension: str, value: int) -> tuple[str, str]:
    """The smaller size in words and as a flag: the one that made it so large."""
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
    """Fewer whole GPUs that others may use, or less of each; the flags are all that is to be said of GPUs then."""
    if dimension == GPUS:
        return f"ask for {amount(value, 'gpus')} a pod", f"--gpus {value} --shared"
    each = f"each of {request.gpus} GPUs" if request.gpus > 1 else "a GPU"
    return f"ask for a fraction of {value / 1000:g} of {each}", f"--fraction {value / 1000:g} --devices {request.gpus}"


def _typed(value: int, many: int, large: str, small: str) -> str:
    """In the larger unit where that is exact, as the sentence says it."""
    return f"{value}{small}" if value % many else f"{value // many}{large}"


def _model(state: ClusterState, name: str, change: Change) -> tuple[str, str]:
    return f"ask for {change.subject} instead", _again(name, f"--model {quote(change.subject)}")


def _queue(state: ClusterState, name: str, change: Change) -> tuple[str, str]:
    return f"submit it to queue '{change.subject}'", _again(name, f"--queue {change.subject}")


def _quota(state: ClusterState, name: str, change: Change) -> tuple[str, str]:
    queue, resource, model, bound = split_bound(change.subject)
    unit = {"gpu": "milli-gpu", "cpu": "milli-cpu", "memory": "mib"}[resource]
    by, to = amount(change.value, unit), amount(bound_of(state, change.subject) + change.value, unit)
    return f"raise the {model or resource} {bound} of queue '{queue}' by {by}, to {to}", "kaiwo apply -f QUEUE.yaml"


def _stop(state: ClusterState, name: str, change: Change) -> tuple[str, str]:
    return f"stop {_short(change.subject)}, which runs now", f"kaiwo cancel {_short(change.subject)}"


_WORDS = {
    Kind.SMALLER_SIZE: _smaller,
    Kind.OTHER_MODEL: _model,
    Kind.OTHER_QUEUE: _queue,
    Kind.QUOTA: _quota,
    Kind.STOP: _stop,
}


def _placed(state: ClusterState, name: str) -> str:
    nodes = sorted({pod.node for pod in state.pods.get(name, {}).values()})
    where = ", ".join(nodes[:4]) + (" and more" if len(nodes) > 4 else "")
    expires_s = state.workloads[name].expires_s
    until = f", and its allocation is given until {clock_words(expires_s)}" if expires_s else ""
    return f"{_short(name)} does not wait: it has its pods on {where}{until}"


def _again(name: str, flag: str) -> str:
    """A workload is not changed in place: it is cancelled and submitted anew."""
    return f"kaiwo cancel {_short(name)} && kaiwo submit {_short(name)} {flag} ..."


def _short(name: str) -> str:
    """`default/train` is `train` to people."""
    return name.removeprefix("default/")
