"""Write the status of KaiwoQueues, which `kubectl get kaiwoqueues` shows.

In:    what each queue uses and may use.   Out: status writes, only where something changed.
Never: writes for a queue that is no object of the cluster.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES
from kaiwo.clusters.kubernetes.writers.coalescing_writer import CoalescingWriter, Report, report_failures
from kaiwo.clusters.kubernetes.writers.conditions import condition, utc_now

WHOLE, GIB_MIB = 1000, 1024
NOTHING = ((0, 0, 0), (0, 0, 0), (0, 0, 0))  # used, fair share, deserved


class QueueStatus(NamedTuple):
    """One queue with all below it; amounts in milli-GPU, milli-CPU and MiB."""

    name: str
    running: int
    waiting: int
    used: tuple[int, int, int]
    fair_share: tuple[int, int, int]
    deserved: tuple[int, int, int]
    problem: str = ""  # why it is not in force, in one sentence


class QueueStatusWriter:
    """Remembers what it wrote."""

    def __init__(self, client: Client, cache: ClusterCache, report: Report = lambda *_, **__: None) -> None:
        self._client, self._cache = client, cache
        self._written: dict[str, dict[str, Any]] = {}
        self._writer = CoalescingWriter(client, self._write, report_failures(report, "queue-status-failed", "queue"))
        self.close = self._writer.close

    def publish(self, queues: Iterable[QueueStatus]) -> None:
        """Write what is new."""
        for queue in with_unreadable(queues, self._cache.queue_cache.faults):
            generation = self._cache.queue_cache.generations.get(queue.name)
            before = self._written.get(queue.name)
            if generation is None:
                self._written.pop(queue.name, None)
            elif (status := status_fields(queue, generation, before)) != before:
                self._writer.put(queue.name, status)

    def object_versions(self) -> object:
        """Another value whenever an object changed, even where the scheduler does not learn of it."""
        return dict(self._cache.queue_cache.generations), dict(self._cache.queue_cache.faults)

    def resync(self) -> None:
        """Forget what was written: another replica may have written since."""
        self._written = {}

    async def _write(self, name: str, status: dict[str, Any]) -> None:
        await self._client.patch(f"{QUEUES}/{quote(name)}/status", msgspec.json.encode({"status": status}), tries=1)
        self._written[name] = status


def with_unreadable(queues: Iterable[QueueStatus], faults: Mapping[str, str]) -> list[QueueStatus]:
    """Add the queues whose objects cannot be read: of some the last readable version is in force, of others nothing."""
    known = {queue.name: queue for queue in queues}
    for name, fault in faults.items():
        queue = known.get(name)
        known[name] = (
            queue._replace(problem=still_in_force(fault)) if queue else QueueStatus(name, 0, 0, *NOTHING, fault)
        )
    return list(known.values())


def still_in_force(fault: str) -> str:
    """What people read on an object of which an older version counts."""
    return f"{fault} (until then the last version that could be read stays in force, while this scheduler runs)"


def status_fields(queue: QueueStatus, generation: int, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """As the custom resource definition names them."""
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
