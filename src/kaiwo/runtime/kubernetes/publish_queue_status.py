"""Publish on the KaiwoQueues of the cluster what each queue uses, may use and waits for.

In:    the cluster overview.   Out: one status for each queue, whenever something changed, at most every few seconds.
"""

import asyncio
from collections.abc import Callable, Iterable

from kaiwo.clusters.kubernetes.writers.queue_status_writer import QueueStatus, QueueStatusWriter
from kaiwo.model.queue_validation import check_queue_tree
from kaiwo.runtime.log import emit
from kaiwo.runtime.overview.cluster_overview import ClusterOverview, QueueSums

EVERY_S = 10.0  # what changes faster is not worth a write
FIRST_S = 1.0


async def publish_queue_status(
    overview: ClusterOverview, writer: QueueStatusWriter, may_write: Callable[[], bool], every_s: float
) -> None:
    """Until cancelled."""
    published: object = None
    await asyncio.sleep(min(FIRST_S, every_s))
    while True:
        if not may_write():
            writer.resync()
            published = None
        elif published != (now := (overview.live.revision, writer.object_versions())):
            try:
                await overview.fresh_queues()
                writer.publish(queue_statuses(overview.sum_queues()))
                published = now
            except Exception as error:  # a status that cannot be shown must not stop scheduling: log it and try again
                emit("queue-status-broken", level="error", error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(every_s)


def queue_statuses(sums: Iterable[QueueSums]) -> list[QueueStatus]:
    """The same numbers as `kaiwo queue` shows."""
    listed = list(sums)
    problems: dict[str, str] = {}
    for finding in check_queue_tree(each.standing.queue for each in listed):
        if finding.is_error:
            problems.setdefault(finding.queue, finding.sentence)
    return [_status(each, problems.get(each.standing.queue.name, "")) for each in listed]


def _status(sums: QueueSums, problem: str) -> QueueStatus:
    shares = sums.standing
    gpu, cpu, memory = shares.terms[:3]
    return QueueStatus(
        shares.queue.name,
        sums.running,
        sums.waiting,
        (shares.used[0], shares.used[1], shares.used[2]),
        (gpu.share, cpu.share, memory.share),
        (gpu.deserved, cpu.deserved, memory.deserved),
        problem,
    )
