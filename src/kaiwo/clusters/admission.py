"""What may enter: submissions, queues and nodes are looked at as a whole before anything changes.

In:    the world and what a person wants.   Out: nothing, or the wishes as they are kept.
Never: changes the world. Raises ConfigError, RefusedError or NotFoundError with the way out.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.lifecycle import Life
from kaiwo.clusters.world import World
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.node import Node
from kaiwo.model.program import Program, State
from kaiwo.model.queue import DEFAULT_QUEUE, Queue
from kaiwo.model.queue_check import check_tree
from kaiwo.model.workload import Workload

Item = tuple[Workload, Program]


def admit(world: World, items: Sequence[Item], now_s: int) -> list[Workload]:
    """The workloads as they begin their life: submitted now, waiting only for what has not succeeded yet."""
    batch: dict[str, Workload] = {}
    for workload, _ in items:
        _check_shape(workload)
        if workload.name in batch:
            raise ConfigError(f"workload {workload.name} is there twice; give each its own name", "name")
        batch[workload.name] = workload
    for name in batch:
        if (life := world.lives.get(name)) is not None and not life.is_over:
            raise ConfigError(
                f"workload {name} exists and is {life.record.state}; choose another name, or cancel it first", "name"
            )
    for queue in {workload.queue for workload in batch.values()}:
        _check_queue_takes_work(world, queue)
    for workload in batch.values():
        check_welcome(world, workload)
    _check_cycles(batch)
    return [_begin(world, batch, workload, now_s) for workload in batch.values()]


def admit_queues(world: World, queues: Sequence[Queue], now_s: int) -> list[Queue]:
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


def check_welcome(world: World, workload: Workload) -> None:
    """Its queue, and every queue above that, takes work of this namespace and this user."""
    namespace = workload.name.partition("/")[0]
    at = workload.queue
    while (queue := world.queues.get(at)) is not None:
        if queue.namespaces and namespace not in queue.namespaces:
            raise RefusedError(
                f"queue {at} takes work of the namespaces {_some(queue.namespaces)} only, and workload {workload.name} "
                f"is in {namespace}; choose another queue, or add {namespace} to spec.namespaces of {at}"
            )
        if queue.users and workload.user not in queue.users:
            whose = f"is {workload.user}'s" if workload.user else "has no user"
            raise RefusedError(
                f"queue {at} takes work of the users {_some(queue.users)} only, and workload {workload.name} {whose}; "
                f"choose another queue, or add the user to spec.users of {at}"
            )
        at = queue.parent


def check_queues_removal(world: World, names: Sequence[str], leaving: Iterable[Life] = ()) -> None:
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
            raise RefusedError(f"queue {name} has child queues ({_some(children)}); remove those first, or with it")
        if living := world.living_in.get(name, 0) - left.get(name, 0):
            raise RefusedError(f"queue {name} has {_living(living)}; end {_them(living)} first")


def check_node(world: World, node: Node) -> None:
    """It may be created, or replace the one of that name without taking devices from running pods."""
    if not node.name:
        raise ConfigError("a node needs a name", "name")
    ids = [gpu.id for gpu in node.gpus]
    if len(set(ids)) != len(ids):
        raise ConfigError(f"node {node.name} has two GPUs with the same id", "gpus")
    if node.name in world.nodes and (why := overcommit(node, world.ledger.use_of(node.name))):
        raise RefusedError(f"node {node.name} cannot change so while its pods run ({why}); drain it first")


def find_life(world: World, name: str) -> Life:
    """The workload of that name."""
    life = world.lives.get(name)
    if life is None:
        raise NotFoundError(f"workload {name} does not exist, or ended long ago and was forgotten")
    return life


def find_node(world: World, name: str) -> Node:
    """The node of that name."""
    node = world.nodes.get(name)
    if node is None:
        raise NotFoundError(f"node {name} does not exist")
    return node


def _check_shape(workload: Workload) -> None:
    if not workload.name:
        raise ConfigError("a workload needs a name", "name")
    if workload.pods < 1 or any(role.count < 1 for role in workload.roles):
        raise ConfigError(f"workload {workload.name} has no pods; ask for at least one", "pods")
    if len({role.name for role in workload.roles}) != len(workload.roles):
        raise ConfigError(f"workload {workload.name} has two roles with the same name", "roles")


def _check_tree(world: World, queues: Sequence[Queue]) -> None:
    """No mistake that was not there before: one of long ago must not keep everybody from mending another."""
    errors = [finding for finding in check_tree(queues) if finding.is_error]
    if not errors:
        return
    known = {finding.sentence for finding in check_tree(world.queues.values())}
    found = [finding for finding in errors if finding.sentence not in known]
    if found:
        more = f" ({len(found) - 1} more like this)" if len(found) > 1 else ""
        raise ConfigError(found[0].sentence + more, f"spec.{found[0].field}")


def _created_s(world: World, name: str, now_s: int) -> int:
    before = world.queues.get(name)
    return now_s if before is None else before.created_s


def _check_takes_children(world: World, name: str) -> None:
    if name == DEFAULT_QUEUE:
        raise RefusedError(f"queue {name} takes work and cannot have children; choose another parent")
    if living := world.living_in.get(name, 0):
        raise RefusedError(
            f"queue {name} has {_living(living)}, so it cannot get children; move or end {_them(living)} first"
        )


def _check_queue_takes_work(world: World, name: str) -> None:
    if name not in world.queues:
        raise RefusedError(f"queue {name} does not exist; there are: {_some(sorted(world.queues))}")
    if children := world.children.get(name):
        raise RefusedError(f"queue {name} has child queues and takes no work itself; use one of: {_some(children)}")


def _check_cycles(batch: Mapping[str, Workload]) -> None:
    """Walk the dependencies inside the batch; what lives outside cannot point into it."""
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
            if at in done or at not in batch:
                continue
            if at in path:
                loop = [*list(path)[list(path).index(at) :], at]
                raise ConfigError(
                    f"the workloads wait for each other ({' > '.join(loop)}); remove one of the dependencies", "after"
                )
            if not batch[at].after:
                done.add(at)
                continue
            path[at] = None
            stack.append((at, True))
            stack += [(other, False) for other in batch[at].after]


def _begin(world: World, batch: Mapping[str, Workload], workload: Workload, now_s: int) -> Workload:
    if not workload.after:
        return replace(workload, submitted_s=now_s, after_failed=())
    after: list[str] = []
    failed: list[str] = []
    for other in dict.fromkeys(workload.after):
        life = world.lives.get(other)
        if other in batch or (life is not None and not life.is_over):
            after.append(other)
        elif life is None:
            raise ConfigError(
                f"workload {workload.name} waits for {other}, which does not exist; submit that first", "after"
            )
        elif life.record.state is not State.SUCCEEDED:
            failed.append(other)
    return replace(workload, submitted_s=now_s, after=tuple(after), after_failed=tuple(failed))


def _living(count: int) -> str:
    return "1 living workload" if count == 1 else f"{count} living workloads"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _some(names: Sequence[str] | Mapping[str, object]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return ", ".join(listed[:5]) + more
