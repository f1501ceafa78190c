"""Queues and work that come together, or go together: one change for all of it.

In:    a Change, and what a person named.   Out: all of it in the Change; it raises when one part is refused.
Never: looks at the parts in an order: the whole is judged as it will be.
"""

from collections.abc import Sequence

from kaiwo.clusters import happenings
from kaiwo.clusters.admission import Item, admit, admit_queues, check_queues_removal, find_life
from kaiwo.clusters.lifecycle import Ending, new_life
from kaiwo.clusters.world import Change
from kaiwo.model.program import Record
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload


def put(change: Change, queues: Sequence[Queue], items: Sequence[Item]) -> list[Workload]:
    """Put the queues in, and look at the work. Returns it as it would begin its life."""
    for queue in admit_queues(change.world, queues, change.now_s):
        if change.world.queues.get(queue.name) != queue:
            change.put_queue(queue)
    return admit(change.world, items, change.now_s)


def begin(change: Change, workloads: Sequence[Workload], items: Sequence[Item]) -> None:
    """Begin the lives of what was admitted."""
    for workload, (_, program) in zip(workloads, items, strict=True):
        before = change.world.lives.get(workload.name)
        if before is not None:
            happenings.forget(change, [workload.name])
        change.put_life(new_life(Record(workload, program)))
        if before is not None:
            happenings.revive(change, workload.name, before.workload)


def remove(change: Change, queues: Sequence[str], workloads: Sequence[str], message: str) -> tuple[str, ...]:
    """Stop and forget the work, and drop the queues. Returns the workloads whose pods are still stopping."""
    lives = [find_life(change.world, name) for name in dict.fromkeys(workloads)]
    check_queues_removal(change.world, queues, lives)
    for life in lives:
        if not life.is_over:
            happenings.stop_workload(change, life, Ending.CANCEL, message)
    stopping = [life.workload.name for life in lives if not find_life(change.world, life.workload.name).is_over]
    happenings.forget(change, [life.workload.name for life in lives if life.workload.name not in stopping])
    for queue in dict.fromkeys(queues):
        change.drop_queue(queue)
    return tuple(stopping)
