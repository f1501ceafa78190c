"""Write the status of KaiwoQueues, which `kubectl get kaiwoqueues` shows.

Never writes the status of a queue that is not an object of the cluster.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES
from kaiwo.clusters.kubernetes.writers.coalescing_writer import Report, report_failures
from kaiwo.clusters.kubernetes.writers.status_writer import StatusWriter, condition, still_in_force, utc_now

WHOLE, GIB_MIB = 1000, 1024
NOTHING = ((0, 0, 0), (0, 0, 0), (0, 0, 0))  # used, fair share, deserved


class QueueStatus(NamedTuple):
    """One queue with all queues below it; amounts are in milli-GPU, milli-CPU and MiB."""

    name: str
    running: int
    waiting: int
    used: tuple[int, int, int]
    fair_share: tuple[int, int, int]
    deserved: tuple[int, int, int]
    problem: str = ""  # why it is not in force, in one sentence


class QueueStatusWriter:
    def __init__(self, client: Client, cache: ClusterCache, report: Report) -> None:
        self._cache = cache
        self._writer = StatusWriter(client, QUEUES, report_failures(report, "queue-status-failed", "queue"))
        self.close = self._writer.close

    def publish(self, queues: Iterable[QueueStatus]) -> None:
        written = self._writer.written
        for queue in with_unreadable(queues, self._cache.queue_cache.faults):
            generation = self._cache.queue_cache.generations.get(queue.name)
            if generation is None:
                written.pop(queue.name, None)
            else:
                self._writer.put_changed(queue.name, status_fields(queue, generation, written.get(queue.name)))

    def object_versions(self) -> object:
        """A value that differs whenever an object has changed, even if the scheduler gets no event for it."""
        return dict(self._cache.queue_cache.generations), dict(self._cache.queue_cache.faults)

    def resync(self) -> None:
        """Forget what was written: another replica may have written since."""
        self._writer.written = {}


def with_unreadable(queues: Iterable[QueueStatus], faults: Mapping[str, str]) -> list[QueueStatus]:
    """Add the queues whose objects cannot be read; of some, the last readable version is in force."""
    known = {queue.name: queue for queue in queues}
    for name, fault in faults.items():
        queue = known.get(name)
        unusable = QueueStatus(name, 0, 0, *NOTHING, fault)
        known[name] = queue._replace(problem=still_in_force(fault)) if queue else unusable
    return list(known.values())


def status_fields(queue: QueueStatus, generation: int, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    known = (before or {}).get("conditions", ())
    return {
        "observedGeneration": generation,
        "running": queue.running,
        "waiting": queue.waiting,
        "used": _amounts(queue.used),
        "fairShare": _amounts(queue.fair_share),
        "deserved": _amounts(queue.deserved),
        "conditions": [condition("Ready", ("Sound", "Mistake"), queue.problem, known, utc_now())],
    }


def _amounts(amounts: tuple[int, int, int]) -> dict[str, str]:
    gpu, cpu, memory = amounts
    size = f"{memory}Mi" if memory % GIB_MIB else f"{memory // GIB_MIB}Gi"
    return {"gpu": _decimal(gpu), "cpu": _decimal(cpu), "memory": size}


def _decimal(milli: int) -> str:
    return f"{milli // WHOLE}" if not milli % WHOLE else f"{milli / WHOLE:.3f}".rstrip("0")
