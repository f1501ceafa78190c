"""Admit submissions, queues and nodes: each is checked as a whole before anything changes.

Never changes the state. Raises ConfigError, RefusedError or NotFoundError with the way out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import Ending, TrackedWorkload, array_of
from kaiwo.clusters.embedded.state import EmbeddedState
from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.queue_access import (
    check_priority,
    check_queue_access,
    check_queue_takes_work,
    check_reservation_exists,
    check_shares,
    describe_living,
    first_names,
)
from kaiwo.manifests.values.names import all_tasks
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.node import Node
from kaiwo.model.queue import DEFAULT_QUEUE, Queue
from kaiwo.model.queue_validation import check_queue_tree
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadState

Item = tuple[Workload, Program]
Tasks = Mapping[str, Sequence[str]]  # by array


def admit(state: EmbeddedState, items: Sequence[Item], now_s: int) -> list[Workload]:
    """The workloads as they are stored: submitted now, waiting only for dependencies that have not succeeded yet."""
    batch: dict[str, Workload] = {}
    for workload, _ in items:
        _check_own_fields(workload, now_s)
        if workload.name in batch:
            raise ConfigError(f"workload {workload.name} is listed twice; give each its own name", "name")
        batch[workload.name] = workload
    for name in batch:
        if (tracked := state.workloads.get(name)) is not None and not tracked.is_over:
            raise ConfigError(_explain_taken_name(tracked), "name")
    for workload in batch.values():
        _check_demands(state, workload)
    tasks = _tasks_by_array(batch.values())
    batch = {name: _expand_array_names(state, batch, tasks, workload) for name, workload in batch.items()}
    check_dependency_cycles(state, batch, tasks)
    awaited = {other for workload in batch.values() for other in workload.after}
    awaited_states = {other: _awaited_state(state, batch, tasks, other) for other in awaited}
    return [_as_submitted(workload, awaited_states, now_s) for workload in batch.values()]


def check_placeable(state: EmbeddedState, workload: Workload, now_s: int) -> None:
    """Check a workload that exists, as it would be after a change."""
    _check_own_fields(workload, now_s)
    _check_demands(state, workload)


def admit_queues(state: EmbeddedState, queues: Sequence[Queue], now_s: int) -> list[Queue]:
    """The queues as they are stored: a changed queue keeps its creation time."""
    names = {queue.name for queue in queues}
    for queue in queues:
        if not queue.name:
            raise ConfigError("a queue needs a name", "name")
        if queue.parent:
            _check_takes_children(state, queue.parent)
    others = [queue for name, queue in state.queues.items() if name not in names]
    _check_tree(state, [*others, *queues])
    created_s = {name: queue.created_s for name, queue in state.queues.items() if not queue.is_implicit}
    return [replace(queue, created_s=created_s.get(queue.name, now_s)) for queue in queues]


def check_queues_removal(state: EmbeddedState, names: Sequence[str], leaving: Iterable[TrackedWorkload] = ()) -> None:
    """Refuse to remove queues that other queues or workloads still need, unless those are removed with them."""
    leaving_count = Counter(tracked.workload.queue for tracked in leaving if tracked.needs_queue)
    for name in names:
        if name not in state.queues:
            raise NotFoundError(f"queue {name} does not exist")
        if name == DEFAULT_QUEUE:
            raise RefusedError(f"queue {name} always exists; other queues can be removed")
        if children := [child for child in state.children.get(name, ()) if child not in names]:
            listed = first_names(children)
            raise RefusedError(f"queue {name} has child queues ({listed}); remove them first, or with it")
        if living := state.living_count.get(name, 0) - leaving_count[name]:
            raise RefusedError(f"queue {name} has {describe_living(living)}; end {_pronoun(living)} first")


def check_node(state: EmbeddedState, node: Node) -> None:
    """Refuse a node that is malformed, or that would take devices away from running pods."""
    if not node.name:
        raise ConfigError("a node needs a name", "name")
    ids = [gpu.id for gpu in node.gpus]
    if len(set(ids)) != len(ids):
        raise ConfigError(f"node {node.name} has two GPUs with the same id", "gpus")
    if node.name in state.nodes and (why := overcommit(node, state.ledger.usage_of(node.name))):
        raise RefusedError(f"node {node.name} cannot be changed like this while its pods run ({why}); drain it first")


def find_workload(state: EmbeddedState, name: str) -> TrackedWorkload:
    tracked = state.workloads.get(name)
    if tracked is None:
        raise NotFoundError(f"workload {name} does not exist, or ended long ago and was forgotten")
    return tracked


def find_submission(state: EmbeddedState, name: str, number: int = 0) -> TrackedWorkload:
    """One submission of a name; 0: the latest."""
    tracked = find_workload(state, name)
    if not number:
        return tracked
    if (found := state.submission((name, number))) is not None:
        return found
    kept = ", ".join(map(str, state.submissions_of(name)[-20:]))
    raise NotFoundError(f"workload {name} has no submission {number}, or it was forgotten; there are: {kept}")


def find_node(state: EmbeddedState, name: str) -> Node:
    node = state.nodes.get(name)
    if node is None:
        raise NotFoundError(f"node {name} does not exist")
    return node


def _explain_taken_name(tracked: TrackedWorkload) -> str:
    name = tracked.workload.name
    if tracked.ending is Ending.CANCEL:
        return (
            f"workload {name} was cancelled and is still stopping; its name is free again as soon as it has ended: "
            f"kaiwo wait {name} --for over"
        )
    return f"workload {name} exists and is {tracked.record.state}; choose another name, or cancel it first"


def _check_own_fields(workload: Workload, now_s: int) -> None:
    if not workload.name:
        raise ConfigError("a workload needs a name", "name")
    if workload.pods < 1 or any(role.count < 1 for role in workload.roles):
        raise ConfigError(f"workload {workload.name} has no pods; ask for at least one", "pods")
    if len({role.name for role in workload.roles}) != len(workload.roles):
        raise ConfigError(f"workload {workload.name} has two roles with the same name", "roles")
    if workload.expires_s and workload.expires_s <= now_s:
        sentence = f"workload {workload.name} would expire before it is submitted; give it a later time, or none"
        raise ConfigError(sentence, "expires")


def _check_demands(state: EmbeddedState, workload: Workload) -> None:
    """Its queue takes it, with its priority and shares, and its reservation exists."""
    check_queue_takes_work(state.queues, workload.queue, state.children.get(workload.queue, ()))
    check_queue_access(state.queues, workload)
    check_priority(state.queues, workload)
    check_shares(state.queues, workload.name, workload.queue, [role.request for role in workload.roles])
    check_reservation_exists(state.reservations, workload)


def _check_tree(state: EmbeddedState, queues: Sequence[Queue]) -> None:
    """Refuse only new mistakes: an existing one must not keep people from correcting another."""
    errors = [finding for finding in check_queue_tree(queues) if finding.is_error]
    if not errors:
        return
    known = {finding.sentence for finding in check_queue_tree(state.queues.values())}
    found = [finding for finding in errors if finding.sentence not in known]
    if found:
        more = f" ({len(found) - 1} more like this)" if len(found) > 1 else ""
        raise ConfigError(found[0].sentence + more, f"spec.{found[0].field}")


def _check_takes_children(state: EmbeddedState, name: str) -> None:
    if name == DEFAULT_QUEUE:
        raise RefusedError(f"queue {name} takes work and cannot have children; choose another parent")
    if living := state.living_count.get(name, 0):
        has = f"queue {name} has {describe_living(living)}"
        raise RefusedError(f"{has}, so it cannot get children; move or end {_pronoun(living)} first")


def _tasks_by_array(workloads: Iterable[Workload]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for workload in workloads:
        if array := array_of(workload):
            found.setdefault(array, []).append(workload.name)
    return found


def _expand_array_names(
    state: EmbeddedState, batch: Mapping[str, Workload], tasks: Tasks, workload: Workload
) -> Workload:
    """A dependency on an array means all its tasks; where a workload has the same name, it means both."""

    def expand(other: str) -> list[str]:
        array = all_tasks(other)
        is_array = array in tasks or array in state.tasks_of
        is_workload = other in batch or other in state.workloads or not is_array
        return [other] * is_workload + [array] * is_array

    after = dict.fromkeys(each for other in workload.after for each in expand(other))
    return replace(workload, after=tuple(after)) if workload.after else workload


def check_dependency_cycles(state: EmbeddedState, batch: Mapping[str, Workload], tasks: Tasks) -> None:
    """Refuse new work that waits for itself. Existing work may wait for a name in the batch: that of an ended workload
    which is replaced or requeued."""
    done: set[str] = set()
    for name in batch:
        path: dict[str, None] = {}
        stack = [(name, False)]
        while stack:
            at, is_left = stack.pop()
            if is_left:
                path.pop(at)
                done.add(at)
                continue
            if at in done:
                continue
            following = batch[at].after if at in batch else _awaited_by(state, tasks, at)
            if at in path:
                loop = [*list(path)[list(path).index(at) :], at]
                raise ConfigError(
                    f"the workloads wait for each other ({' > '.join(loop)}); remove one of the dependencies", "after"
                )
            if not following:
                done.add(at)
                continue
            path[at] = None
            stack.append((at, True))
            stack += [(other, False) for other in following]


def _awaited_by(state: EmbeddedState, tasks: Tasks, at: str) -> Sequence[str]:
    """The tasks of an array, or the dependencies of a workload that has not ended, including failed ones."""
    if every := {*tasks.get(at, ()), *state.tasks_of.get(at, ())}:
        return sorted(every)
    tracked = state.workloads.get(at)
    return () if tracked is None or tracked.is_over else (*tracked.workload.after, *tracked.workload.after_failed)


def _awaited_state(
    state: EmbeddedState, batch: Mapping[str, Workload], tasks: Tasks, other: str
) -> WorkloadState | None:
    """The state of a workload, or of all tasks of an array together; None: the name is unknown."""
    names = {*tasks.get(other, ()), *state.tasks_of.get(other, ())} or {other}
    existing = [state.workloads[name] for name in names if name not in batch and name in state.workloads]
    if any(tracked.is_over and tracked.record.state is not WorkloadState.SUCCEEDED for tracked in existing):
        return WorkloadState.FAILED
    if any(name in batch for name in names) or any(not tracked.is_over for tracked in existing):
        return WorkloadState.WAITING
    return WorkloadState.SUCCEEDED if existing else None


def _as_submitted(workload: Workload, awaited_states: Mapping[str, WorkloadState | None], now_s: int) -> Workload:
    for other in workload.after:
        if awaited_states[other] is None:
            raise ConfigError(
                f"workload {workload.name} waits for {other}, which does not exist; submit that first", "after"
            )
    after = tuple(other for other in workload.after if awaited_states[other] is WorkloadState.WAITING)
    failed = tuple(other for other in workload.after if awaited_states[other] is WorkloadState.FAILED)
    saved_s = min(workload.checkpoint_s, now_s)  # a clock that is ahead must not hide lost work
    return replace(workload, submitted_s=now_s, after=after, after_failed=failed, checkpoint_s=saved_s)


def _pronoun(count: int) -> str:
    return "it" if count == 1 else "them"
