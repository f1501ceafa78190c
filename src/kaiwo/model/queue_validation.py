"""Check a whole set of queues: whether it is a tree, and whether its quotas and limits agree.

In:    every queue as it would be.   Out: findings, each one sentence with the object, the fact and the way out.
An error means that the set makes no sense and is refused; a warning means that it works, but not as it reads.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from kaiwo.model.amounts import memory, thousandths
from kaiwo.model.queue import DEFAULT_QUEUE, UNLIMITED, Queue

RESOURCES = {"gpu": "GPU", "cpu": "CPU", "memory": "memory"}


class QueueFinding(msgspec.Struct, gc=False, frozen=True):
    queue: str
    field: str  # in the words of a manifest, below `spec`
    sentence: str
    is_error: bool


class _Bounds(NamedTuple):
    """Quota and limit of a resource, or of one GPU model."""

    quota: int
    limit: int
    resource: str
    model: str = ""

    def words(self, what: str, amount: int, other: int) -> str:
        """`GPU quota of 4`, `quota of 4 MI300X`. `other`: what it is compared with."""
        shown = _show(amount, self.resource, other)
        return f"{what} of {shown} {self.model}" if self.model else f"{RESOURCES[self.resource]} {what} of {shown}"


def check_queue_tree(queues: Iterable[Queue]) -> tuple[QueueFinding, ...]:
    """Errors first, then by queue. Empty when nothing is wrong."""
    listed = sorted(queues, key=lambda queue: queue.name)
    by_name = {queue.name: queue for queue in listed}
    children: dict[str, list[Queue]] = defaultdict(list)
    for queue in listed:
        children[queue.parent].append(queue)
    findings = [*_duplicates(listed), *(finding for queue in listed for finding in _check_own_bounds(queue))]
    for queue in listed:
        findings += _check_parent(queue, by_name)
        findings += _check_children(queue, children[queue.name])
    return tuple(sorted(findings, key=lambda finding: (not finding.is_error, finding.queue, finding.field)))


def _duplicates(listed: list[Queue]) -> Iterator[QueueFinding]:
    for name, count in Counter(queue.name for queue in listed).items():
        if count > 1:
            yield _error(name, "name", f"queue {name} is defined {count} times; keep one of them")


def _check_own_bounds(queue: Queue) -> Iterator[QueueFinding]:
    name, by_model = queue.name, 0
    for path, each in _bounds(queue).items():
        if UNLIMITED != each.limit < each.quota:
            quota = _show(each.quota, each.resource, each.limit)
            sentence = f"{each.words('limit', each.limit, each.quota)}, below its quota of {quota}"
            yield _error(name, f"{path}.limit", f"queue {name} has a {sentence}; raise the limit or lower the quota")
        if each.model and UNLIMITED != queue.gpu.limit < each.quota:
            sentence = (
                f"{each.words('quota', each.quota, queue.gpu.limit)}, above its GPU limit of {_show(queue.gpu.limit)}"
            )
            yield _error(name, f"{path}.quota", f"queue {name} has a {sentence}; lower the one or raise the other")
        by_model += max(0, each.quota) if each.model else 0
    if UNLIMITED != queue.gpu.quota < by_model:
        yield _warning(
            name,
            "resources.gpu.models",
            f"queue {name} has quotas for single GPU models of {_show(by_model)} together, but a GPU quota of "
            f"{_show(queue.gpu.quota)}, and only that is guaranteed; raise the GPU quota or lower the others",
        )


def _check_parent(queue: Queue, by_name: Mapping[str, Queue]) -> Iterator[QueueFinding]:
    name, parent, field = queue.name, queue.parent, "parentQueue"
    if not parent:
        return
    if parent not in by_name:
        yield _error(
            name, field, f"queue {name} names the parent {parent}, which does not exist; create it or clear parentQueue"
        )
        return
    if parent == DEFAULT_QUEUE:
        yield _error(
            name, field, f"queue {name} names the parent {DEFAULT_QUEUE}, which takes work; choose another one"
        )
    if loop := _loop(name, by_name):
        path = " > ".join(loop)
        yield _error(name, field, f"queue {name} is its own ancestor ({path}); clear parentQueue on one of them")
        return
    bounds_above = _bounds(by_name[parent])
    for path, each in _bounds(queue).items():
        bound = bounds_above.get(path)
        if bound is not None and UNLIMITED != bound.limit < each.quota:
            yield _warning(
                name,
                f"{path}.quota",
                f"queue {name} has a {each.words('quota', each.quota, bound.limit)}, above the limit of "
                f"{_show(bound.limit, each.resource, each.quota)} of {parent}, which wins; "
                "lower the quota or raise that limit",
            )


def _check_children(queue: Queue, children: list[Queue]) -> Iterator[QueueFinding]:
    bounds_below = [_bounds(child) for child in children]
    for path, each in _bounds(queue).items():
        together = sum(max(0, below[path].quota) for below in bounds_below if path in below)
        if UNLIMITED != each.quota < together:
            yield _warning(
                queue.name,
                f"{path}.quota",
                f"queue {queue.name} has a {each.words('quota', each.quota, together)}, and the queues below it "
                f"{_show(together, each.resource, each.quota)} together; when all use theirs, others can reclaim "
                "the difference: raise its quota or lower theirs",
            )


def _bounds(queue: Queue) -> dict[str, _Bounds]:
    """By their path in a manifest."""
    resources = [(resource, getattr(queue, resource)) for resource in RESOURCES]
    found = {f"resources.{name}": _Bounds(amounts.quota, amounts.limit, name) for name, amounts in resources}
    for model, amounts in sorted(queue.gpu_models.items()):
        found[f"resources.gpu.models.{model}"] = _Bounds(amounts.quota, amounts.limit, "gpu", model)
    return found


def _loop(name: str, by_name: Mapping[str, Queue]) -> list[str]:
    """The path from a queue up and back to itself; empty when there is none."""
    path = [name]
    while (above := by_name[path[-1]].parent) in by_name:
        path.append(above)
        if above == name:
            return path
        if path.count(above) > 1:  # it leads into a loop, but is not part of it
            return []
    return []


def _show(amount: int, resource: str = "gpu", *others: int) -> str:
    if amount == UNLIMITED:
        return "no limit"
    return memory(amount, *others) if resource == "memory" else thousandths(amount)


def _error(queue: str, field: str, sentence: str) -> QueueFinding:
    return QueueFinding(queue, field, sentence, True)


def _warning(queue: str, field: str, sentence: str) -> QueueFinding:
    return QueueFinding(queue, field, sentence, False)
