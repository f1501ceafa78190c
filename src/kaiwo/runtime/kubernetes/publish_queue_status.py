"""Show on the cluster's own objects how the queues stand.

In:    the board.   Out: one value a queue for whoever writes it, when something changed, once in a while.
"""

import asyncio
from collections.abc import Callable, Iterable

from kaiwo.clusters.kubernetes.writers.queue_status_writer import QueueStatus, Shown
from kaiwo.model.queue_validation import check_tree
from kaiwo.runtime.log import emit
from kaiwo.runtime.overview.cluster_overview import ClusterOverview, QueueSums

EVERY_S = 10.0  # what changes faster is not worth a write
FIRST_S = 1.0


async def show_queues(
    board: ClusterOverview, status: QueueStatus, may_write: Callable[[], bool], every_s: float
) -> None:
    """Until cancelled."""
    seen: object = None
    await asyncio.sleep(min(FIRST_S, every_s))
    while True:
        if not may_write():
            status.begin_again()
            seen = None
        elif seen != (before := (board.live.revision, status.objects())):
            try:
                await board.fresh_queues()
                seen = before if await status.show(shown(board.sum_queues())) else None
            except Exception as error:  # what people see must not end what schedules: it is told, and tried again
                emit("queue-status-broken", level="error", error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(every_s)


def shown(sums: Iterable[QueueSums]) -> list[Shown]:
    """As `kaiwo queue` tells it."""
    listed = list(sums)
    mistakes: dict[str, str] = {}
    for finding in check_tree(each.standing.queue for each in listed):
        if finding.is_error:
            mistakes.setdefault(finding.queue, finding.sentence)
    return [_shown(each, mistakes.get(each.standing.queue.name, "")) for each in listed]


def _shown(sums: QueueSums, mistake: str) -> Shown:
    standing = sums.standing
    gpu, cpu, memory = standing.terms[:3]
    return Shown(
        standing.queue.name,
        sums.running,
        sums.waiting,
        (standing.used[0], standing.used[1], standing.used[2]),
        (gpu.share, cpu.share, memory.share),
        (gpu.deserved, cpu.deserved, memory.deserved),
        mistake,
    )
