"""Publish on the KaiwoQueues of the cluster what each queue uses, may use and waits for, every few seconds."""

import asyncio
from collections.abc import Callable, Iterable

from kaiwo.clusters.kubernetes.writers.queue_status_writer import QueueStatus, QueueStatusWriter
from kaiwo.model.queue_validation import check_queue_tree
from kaiwo.runtime.log import emit
from kaiwo.runtime.overview.cluster_overview import ClusterOverview, QueueTotals

EVERY_S = 10.0  # faster changes are not worth a write
FIRST_S = 1.0


async def publish_queue_status(
    overview: ClusterOverview, writer: QueueStatusWriter, may_write: Callable[[], bool], every_s: float
) -> None:
    """Publish until cancelled."""
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


def queue_statuses(sums: Iterable[QueueTotals]) -> list[QueueStatus]:
    """The same numbers as `kaiwo queue` shows."""
    listed = list(sums)
    problems: dict[str, str] = {}
    for finding in check_queue_tree(each.shares.queue for each in listed):
        if finding.is_error:
            problems.setdefault(finding.queue, finding.sentence)
    statuses = []
    for each in listed:
        name, used, (gpu, cpu, memory) = each.shares.queue.name, each.shares.used, each.shares.terms[:3]
        share, deserved = (gpu.share, cpu.share, memory.share), (gpu.deserved, cpu.deserved, memory.deserved)
        problem = problems.get(name, "")
        statuses.append(
            QueueStatus(name, each.running, each.waiting, (used[0], used[1], used[2]), share, deserved, problem)
        )
    return statuses
