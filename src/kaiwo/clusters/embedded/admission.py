"""What may enter: submissions, queues and nodes are looked at as a whole before anything changes.

In:    the world and what a person wants.   Out: nothing, or the wishes as they are kept.
Never: changes the world. Raises ConfigError, RefusedError or NotFoundError with the way out.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import Ending, Life, all_tasks, array_of
from kaiwo.clusters.embedded.state import EmbeddedState
from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.queue_access import check_queue_access, first_names
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.node import Node
from kaiwo.model.queue import DEFAULT_QUEUE, Queue
from kaiwo.model.queue_validation import check_queue_tree
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadState

Item = tuple[Workload, Program]
Tasks = Mapping[str, Sequence[str]]  # by array


def admit(world: EmbeddedState, items: Sequence[Item], now_s: int) -> list[Workload]:
    """The workloads as they begin their life: submitted now, waiting only for what has not succeeded yet."""
    batch: dict[str, Workload] = {}
    for workload, _ in items:
        _check_shape(workload)
        _check_expiry(workload, now_s)
        if workload.name in batch:
            raise ConfigError(f"workload {workload.name} is there twice; give each its own name", "name")
        batch[workload.name] = workload
    for name in batch:
        if (life := world.lives.get(name)) is not None and not life.is_over:
            raise ConfigError(_taken(life), "name")
    for queue in {workload.queue for workload in batch.values()}:
        _check_queue_takes_work(world, queue)
    for workload in batch.values():
        check_queue_access(world.queues, workload)
    tasks = _tasks(batch.values())
    batch = {name: _name_arrays(world, batch, tasks, workload) for name, workload in batch.items()}
    check_circles(world, batch, tasks)
    awaited = {other for workload in batch.values() for other in workload.after}
    standings = {other: _standing(world, batch, tasks, other) for other in awaited}
    return [_begin(workload, standings, now_s) for workload in batch.values()]


def admit_queues(world: EmbeddedState, queues: Sequence[Queue], now_s: int) -> list[Queue]:
    """The queues as they are kept: a new one is as old as now, a changed one as old as it was."""
    names = {queue.name for queue in queues}
    for queue in queues:
        if not queue.name:
            raise ConfigError("a queue needs a name", "name")
        if queue.parent:
            _check_takes_children(world, queue.parent)
    others = [queue for name, queue in world.queues.items() if name not in names]
    _check_tree(world, [*others, *queues])
    return [replace(queue, created_s=_created_s(world, queue.name, now_s)) for queue in queues]


def is_same(queue: Queue, before: Queue | None) -> bool:
    """They say the same; how old a queue is, is not for people to say."""
    return before is not None and replace(queue, created_s=before.created_s) == before


def check_queues_removal(world: EmbeddedState, names: Sequence[str], leaving: Iterable[Life] = ()) -> None:
    """Nothing depends on them but each other and the work that leaves with them."""
    left: dict[str, int] = {}
    for life in leaving:
        if life.needs_queue:
            left[life.workload.queue] = left.get(life.workload.queue, 0) + 1
    for name in names:
        if name not in world.queues:
            raise NotFoundError(f"queue {name} does not exist")
        if name == DEFAULT_QUEUE:
            raise RefusedError(f"queue {name} always exists; other queues can be removed")
        if children := [child for child in world.children.get(name, ()) if child not in names]:
            raise RefusedError(
                f"queue {name} has child queues ({first_names(children)}); remove them first, or with it"
            )
        if living := world.living_in.get(name, 0) - left.get(name, 0):
            raise RefusedError(f"queue {name} has {_living(living)}; end {_them(living)} first")


def check_node(world: EmbeddedState, node: Node) -> None:
    """It may be created, or replace the one of that name without taking devices from running pods."""
    if not node.name:
        raise ConfigError("a node needs a name", "name")
    ids = [gpu.id for gpu in node.gpus]
    if len(set(ids)) != len(ids):
        raise ConfigError(f"node {node.name} has two GPUs with the same id", "gpus")
    if node.name in world.nodes and (why := overcommit(node, world.ledger.use_of(node.name))):
        raise RefusedError(f"node {node.name} cannot change so while its pods run ({why}); drain it first")


def find_life(world: EmbeddedState, name: str) -> Life:
    """The workload of that name."""
    life = world.lives.get(name)
    if life is None:
        raise NotFoundError(f"workload {name} does not exist, or ended long ago and was forgotten")
    return life


def find_node(world: EmbeddedState, name: str) -> Node:
    """The node of that name."""
    node = world.nodes.get(name)
    if node is None:
        raise NotFoundError(f"node {name} does not exist")
    return node


def _taken(life: Life) -> str:
    name = life.workload.name
    if life.ending is Ending.CANCEL:
        return (
            f"workload {name} was cancelled and is still stopping; its name is free again as soon as it has ended: "
            f"kaiwo wait {name} --for over"
        )
    return f"workload {name} exists and is {life.record.state}; choose another name, or cancel it first"


def _check_expiry(workload: Workload, now_s: int) -> None:
    if workload.expires_s and workload.expires_s <= now_s:
        raise ConfigError(
            f"workload {workload.name} would expire before it is submitted; give it a later time, or none", "expires"
        )


def _check_shape(workload: Workload) -> None:
    if not workload.name:
        raise ConfigError("a workload needs a name", "name")
    if workload.pods < 1 or any(role.count < 1 for role in workload.roles):
        raise ConfigError(f"workload {workload.name} has no pods; ask for at least one", "pods")
    if len({role.name for role in workload.roles}) != len(workload.roles):
        raise ConfigError(f"workload {workload.name} has two roles with the same name", "roles")


def _check_tree(world: EmbeddedState, queues: Sequence[Queue]) -> None:
    """No mistake that was not there before: one of long ago must not keep everybody from mending another."""
    errors = [finding for finding in check_queue_tree(queues) if finding.is_error]
    if not errors:
        return
    known = {finding.sentence for finding in check_queue_tree(world.queues.values())}
    found = [finding for finding in errors if finding.sentence not in known]
    if found:
        more = f" ({len(found) - 1} more like this)" if len(found) > 1 else ""
        raise ConfigError(found[0].sentence + more, f"spec.{found[0].field}")


def _created_s(world: EmbeddedState, name: str, now_s: int) -> int:
    before = world.queues.get(name)
    return now_s if before is None else before.created_s


def _check_takes_children(world: EmbeddedState, name: str) -> None:
    if name == DEFAULT_QUEUE:
        raise RefusedError(f"queue {name} takes work and cannot have children; choose another parent")
    if living := world.living_in.get(name, 0):
        raise RefusedError(
            f"queue {name} has {_living(living)}, so it cannot get children; move or end {_them(living)} first"
        )


def _check_queue_takes_work(world: EmbeddedState, name: str) -> None:
    if name not in world.queues:
        raise RefusedError(f"queue {name} does not exist; there are: {first_names(sorted(world.queues))}")
    if children := world.children.get(name):
        raise RefusedError(f"queue {name} has child queues and takes no work; use one of: {first_names(children)}")


def _tasks(workloads: Iterable[Workload]) -> dict[str, list[str]]:
    """The tasks of each array."""
    found: dict[str, list[str]] = {}
    for workload in workloads:
        if array := array_of(workload):
            found.setdefault(array, []).append(workload.name)
    return found


def _name_arrays(world: EmbeddedState, batch: Mapping[str, Workload], tasks: Tasks, workload: Workload) -> Workload:
    """A name of an array means all its tasks; where a workload has that name, too, it means both."""

    def meant(other: str) -> list[str]:
        array = all_tasks(other)
        is_array = array in tasks or array in world.tasks_of
        is_workload = other in batch or other in world.lives or not is_array
        return [other] * is_workload + [array] * is_array

    after = dict.fromkeys(each for other in workload.after for each in meant(other))
    return replace(workload, after=tuple(after)) if workload.after else workload


def meant_twice(told: Sequence[str], awaited: Sequence[str]) -> list[str]:
    """Of the names that somebody wrote, those that a workload and an array have: both are awaited."""
    return [other for other in told if {other, all_tasks(other)} <= set(awaited)]


def check_circles(world: EmbeddedState, batch: Mapping[str, Workload], tasks: Tasks) -> None:
    """Walk the dependencies of work that begins to live. What lives already may wait for a name of the batch: of one
    that has ended and is taken over, or begins again."""
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
            following = batch[at].after if at in batch else _awaited_by(world, tasks, at)
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


def _awaited_by(world: EmbeddedState, tasks: Tasks, at: str) -> Sequence[str]:
    """What must end before this has: the tasks of an array, or what a living workload waits for, also in vain."""
    if every := {*tasks.get(at, ()), *world.tasks_of.get(at, ())}:
        return sorted(every)
    life = world.lives.get(at)
    return () if life is None or life.is_over else (*life.workload.after, *life.workload.after_failed)


def _standing(world: EmbeddedState, batch: Mapping[str, Workload], tasks: Tasks, other: str) -> WorkloadState | None:
    """How far a workload is, or all tasks of an array together; None: there is no such thing."""
    names = {*tasks.get(other, ()), *world.tasks_of.get(other, ())} or {other}
    lives = [world.lives[name] for name in names if name not in batch and name in world.lives]
    if any(life.is_over and life.record.state is not WorkloadState.SUCCEEDED for life in lives):
        return WorkloadState.FAILED
    if any(name in batch for name in names) or any(not life.is_over for life in lives):
        return WorkloadState.WAITING
    return WorkloadState.SUCCEEDED if lives else None


def _begin(workload: Workload, standings: Mapping[str, WorkloadState | None], now_s: int) -> Workload:
    for other in workload.after:
        if standings[other] is None:
            raise ConfigError(
                f"workload {workload.name} waits for {other}, which does not exist; submit that first", "after"
            )
    after = tuple(other for other in workload.after if standings[other] is WorkloadState.WAITING)
    failed = tuple(other for other in workload.after if standings[other] is WorkloadState.FAILED)
    saved_s = min(workload.checkpoint_s, now_s)  # a clock that is ahead must not hide what it loses
    return replace(workload, submitted_s=now_s, after=after, after_failed=failed, checkpoint_s=saved_s)


def _living(count: int) -> str:
    return "1 living workload" if count == 1 else f"{count} living workloads"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
