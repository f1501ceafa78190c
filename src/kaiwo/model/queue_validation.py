"""Look at a whole set of queues: is it a tree, and can its promises be kept?

In:    every queue as it would stand.   Out: findings, each one sentence with the object, the fact and the way out.
An error means that the set has no meaning and must not enter; a warning means that it works, but not as it reads.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kaiwo.model.amounts import memory, thousandths
from kaiwo.model.queue import DEFAULT_QUEUE, UNLIMITED, Queue

RESOURCES = (("gpu", "GPU"), ("cpu", "CPU"), ("memory", "memory"))


class QueueFinding(msgspec.Struct, gc=False, frozen=True):
    """Something about one queue that a person should mend."""

    queue: str
    field: str  # in the words of a manifest, below `spec`
    sentence: str
    is_error: bool


def check_queue_tree(queues: Iterable[Queue]) -> tuple[QueueFinding, ...]:
    """Errors first; then by queue. Nothing to say means that the set is sound."""
    listed = sorted(queues, key=lambda queue: queue.name)
    by_name = {queue.name: queue for queue in listed}
    children: dict[str, list[Queue]] = defaultdict(list)
    for queue in listed:
        children[queue.parent].append(queue)
    findings = [*_twice(listed), *(finding for queue in listed for finding in _own(queue))]
    for queue in listed:
        findings += _above(queue, by_name)
        findings += _below(queue, children[queue.name])
    return tuple(sorted(findings, key=lambda finding: (not finding.is_error, finding.queue, finding.field)))


def _twice(listed: list[Queue]) -> Iterator[QueueFinding]:
    for name, count in Counter(queue.name for queue in listed).items():
        if count > 1:
            yield _error(name, "name", f"queue {name} is there {count} times; keep one of them")


def _own(queue: Queue) -> Iterator[QueueFinding]:
    """What a queue says of itself."""
    for field, word in RESOURCES:
        amounts = getattr(queue, field)
        if UNLIMITED != amounts.limit < amounts.quota:
            yield _error(
                queue.name,
                f"resources.{field}.limit",
                f"queue {queue.name} has a {word} limit of {_show(field, amounts.limit)}, below its quota of "
                f"{_show(field, amounts.quota)}; raise the limit or lower the quota",
            )
    yield from _models(queue)


def _models(queue: Queue) -> Iterator[QueueFinding]:
    promised = 0
    for model, amounts in sorted(queue.gpu_models.items()):
        field = f"resources.gpu.models.{model}"
        name, quota = queue.name, _show("gpu", amounts.quota)
        if UNLIMITED != amounts.limit < amounts.quota:
            yield _error(
                name,
                f"{field}.limit",
                f"queue {name} has a limit of {_show('gpu', amounts.limit)} {model}, below its quota of {quota}; "
                "raise the limit or lower the quota",
            )
        if UNLIMITED != queue.gpu.limit < amounts.quota:
            yield _error(
                name,
                f"{field}.quota",
                f"queue {name} has a quota of {quota} {model}, above its GPU limit of "
                f"{_show('gpu', queue.gpu.limit)}; lower the one or raise the other",
            )
        promised += max(0, amounts.quota)
    if UNLIMITED != queue.gpu.quota < promised:
        yield _warning(
            queue.name,
            "resources.gpu.models",
            f"queue {queue.name} has quotas for single GPU models of {_show('gpu', promised)} together and a GPU quota "
            f"of {_show('gpu', queue.gpu.quota)}, which alone is sure; raise the GPU quota or lower those",
        )


def _above(queue: Queue, by_name: Mapping[str, Queue]) -> Iterator[QueueFinding]:
    """What a queue says of the one above it."""
    name = queue.name
    if not queue.parent:
        return
    if queue.parent not in by_name:
        yield _error(
            name,
            "parentQueue",
            f"queue {name} names the parent {queue.parent}, which does not exist; create it or clear parentQueue",
        )
        return
    if queue.parent == DEFAULT_QUEUE:
        yield _error(
            name, "parentQueue", f"queue {name} names the parent {DEFAULT_QUEUE}, which takes work; choose another one"
        )
    if circle := _circle(name, by_name):
        yield _error(
            name,
            "parentQueue",
            f"queue {name} is its own ancestor ({' > '.join(circle)}); clear parentQueue on one of them",
        )
        return
    above = by_name[queue.parent]
    for field, word in RESOURCES:
        quota, limit = getattr(queue, field).quota, getattr(above, field).limit
        if UNLIMITED != limit < quota:
            yield _warning(
                name,
                f"resources.{field}.quota",
                f"queue {name} has a {word} quota of {_show(field, quota)}, above the limit of {_show(field, limit)} "
                f"of {above.name}, which wins; lower the quota or raise that limit",
            )
    for model, amounts in sorted(queue.gpu_models.items()):
        bound = above.gpu_models.get(model)
        if bound is not None and UNLIMITED != bound.limit < amounts.quota:
            yield _warning(
                name,
                f"resources.gpu.models.{model}.quota",
                f"queue {name} has a quota of {_show('gpu', amounts.quota)} {model}, above the limit of "
                f"{_show('gpu', bound.limit)} of {above.name}, which wins; lower the quota or raise that limit",
            )


def _below(queue: Queue, children: list[Queue]) -> Iterator[QueueFinding]:
    """What the queues below a queue are promised together."""
    for field, word in RESOURCES:
        own = getattr(queue, field).quota
        promised = sum(max(0, getattr(child, field).quota) for child in children)
        if UNLIMITED != own < promised:
            yield _warning(
                queue.name,
                f"resources.{field}.quota",
                f"queue {queue.name} has a {word} quota of {_show(field, own)}, and the queues below it "
                f"{_show(field, promised)} together; when all use theirs, others can reclaim the difference: "
                f"raise its quota or lower theirs",
            )
    for model, amounts in sorted(queue.gpu_models.items()):
        promised = sum(max(0, child.gpu_models[model].quota) for child in children if model in child.gpu_models)
        if UNLIMITED != amounts.quota < promised:
            yield _warning(
                queue.name,
                f"resources.gpu.models.{model}.quota",
                f"queue {queue.name} has a quota of {_show('gpu', amounts.quota)} {model}, and the queues below it "
                f"{_show('gpu', promised)} together; when all use theirs, others can reclaim the difference: "
                f"raise its quota or lower theirs",
            )


def _circle(name: str, by_name: Mapping[str, Queue]) -> list[str]:
    """The way from a queue up and back to itself; empty when there is none."""
    way = [name]
    while (above := by_name[way[-1]].parent) in by_name:
        way.append(above)
        if above == name:
            return way
        if way.count(above) > 1:  # it leads into a circle, but is not part of it
            return []
    return []


def _show(field: str, amount: int) -> str:
    """An amount as people write it."""
    if amount == UNLIMITED:
        return "no limit"
    return memory(amount) if field == "memory" else thousandths(amount)


def _error(queue: str, field: str, sentence: str) -> QueueFinding:
    return QueueFinding(queue, field, sentence, True)


def _warning(queue: str, field: str, sentence: str) -> QueueFinding:
    return QueueFinding(queue, field, sentence, False)
