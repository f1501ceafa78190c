"""Queues and work that go in together.

In:    queues (parents first) and workloads.   Out: all of them on the cluster, or none.
Never: leaves a queue behind that this call made, when what came after it was refused.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kaiwo.model.errors import ConfigError, KaiwoError, RefusedError
from kaiwo.model.program import Program
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload
from kaiwo.runtime.board import Live

SETTLE_S = 1.0
Items = Sequence[tuple[Workload, Program]]


async def put_together(live: Live, queues: Sequence[Queue], items: Items, who: str) -> None:
    """Queues first, then the work, which the cluster takes whole or not at all; if that fails, queues are put back."""
    cluster, known = live.cluster, dict(live.picture.queue_objects)
    changed: list[Queue] = []
    try:
        for queue in queues:
            if known.get(queue.name) != queue:
                await cluster.put_queue(queue, who=who)
                changed.append(queue)
        await settle(live, lambda: all(live.picture.queue_objects.get(queue.name) == queue for queue in changed))
        if items:
            await cluster.submit(items, who=who)
    except BaseException:
        for queue in reversed(changed):
            with contextlib.suppress(KaiwoError):
                await _undo(cluster, queue, known.get(queue.name), who)
        raise


async def settle(live: Live, is_seen: Callable[[], bool]) -> None:
    """Let the picture catch up with what was just changed, so that the next look sees it; a moment at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_S):
            while not is_seen():
                await live.changed(live.revision)


async def _undo(cluster: Any, queue: Queue, before: Queue | None, who: str) -> None:
    if before is None:
        await cluster.remove_queue(queue.name, who=who)
    else:
        await cluster.put_queue(before, who=who)


def check_before(live: Live, queues: Sequence[Queue], items: Items) -> None:
    """What a dry run can tell of the refusals; the cluster says the rest when it is really done."""
    known = dict(live.picture.queue_objects) | {queue.name: queue for queue in queues}
    for queue in queues:
        if queue.parent and queue.parent not in known:
            raise ConfigError(
                f"queue {queue.name} names the parent {queue.parent}, which does not exist", "parentQueue"
            )
    parents = {queue.parent for queue in known.values()}
    living = {record.workload.name for record in live.cluster.records() if not record.state.is_over}
    seen: set[str] = set()
    for workload, _ in items:
        _check(workload, known, parents, living | seen)
        seen.add(workload.name)


def _check(workload: Workload, known: Mapping[str, Queue], parents: set[str], taken: set[str]) -> None:
    if workload.name in taken:
        raise ConfigError(f"workload {workload.name} exists already; choose another name, or cancel it first", "name")
    if workload.queue not in known:
        raise RefusedError(f"queue {workload.queue} does not exist; create it first, or submit to another")
    if workload.queue in parents:
        raise RefusedError(f"queue {workload.queue} has child queues and takes no work itself; use one of those")
