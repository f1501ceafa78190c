"""What a KaiwoQueue shows of itself: `kubectl get kaiwoqueues`.

In:    how the queues stand.   Out: their status, written when it changed and not more often than a while.
Never: writes what is there already, or for a queue that is no object of the cluster.
"""

import datetime
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, StandbyError, UnreachableError

PATH = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"
WHOLE, GIB_MIB = 1000, 1024


class Shown(NamedTuple):
    """One queue with all below it; amounts in milli-GPU, milli-CPU and MiB."""

    name: str
    running: int
    waiting: int
    used: tuple[int, int, int]
    fair_share: tuple[int, int, int]
    deserved: tuple[int, int, int]
    mistake: str = ""  # why it has no meaning, in one sentence


class QueueStatus:
    """Remembers what it wrote."""

    def __init__(
        self,
        client: Client,
        generations: dict[str, int],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._generations, self._report = client, generations, report
        self._written: dict[str, dict[str, Any]] = {}
        self.writes = 0

    async def show(self, queues: Iterable[Shown]) -> bool:
        """Write what is new. False: some of it could not be written, and is to be tried again."""
        all_well = True
        for queue in queues:
            generation = self._generations.get(queue.name)
            if generation is None:
                self._written.pop(queue.name, None)
                continue
            status = write_status(queue, generation, self._written.get(queue.name))
            if self._written.get(queue.name) != status:
                all_well &= await self._write(queue.name, status)
        return all_well

    async def _write(self, name: str, status: dict[str, Any]) -> bool:
        body = msgspec.json.encode({"status": status})
        try:
            await self._client.patch(f"{PATH}/{name}/status", body, tries=1)
        except (ApiError, UnreachableError) as error:
            if not isinstance(error, StandbyError) and not (isinstance(error, ApiError) and error.is_not_found):
                self._report("queue-status-failed", level="warning", queue=name, error=str(error)[:300])
            return False
        self._written[name] = status
        self.writes += 1
        return True

    def begin_again(self) -> None:
        """Another replica may have written since."""
        self._written = {}


def write_status(queue: Shown, generation: int, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """As the definition has it."""
    return {
        "observedGeneration": generation,
        "running": queue.running,
        "waiting": queue.waiting,
        "used": _amounts(queue.used),
        "fairShare": _amounts(queue.fair_share),
        "deserved": _amounts(queue.deserved),
        "conditions": [_condition(queue.mistake, (before or {}).get("conditions", []))],
    }


def _condition(mistake: str, before: list[dict[str, Any]]) -> dict[str, Any]:
    """The time is that of the last change."""
    condition: dict[str, Any] = {"type": "Ready", "status": "False", "reason": "Mistake", "message": mistake}
    if not mistake:
        condition = {"type": "Ready", "status": "True", "reason": "Sound", "message": ""}
    known = next((each for each in before if each["status"] == condition["status"]), None)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return condition | {"lastTransitionTime": known["lastTransitionTime"] if known else now}


def _amounts(amounts: tuple[int, int, int]) -> dict[str, str]:
    gpu, cpu, memory = amounts
    size = f"{memory}Mi" if memory % GIB_MIB else f"{memory // GIB_MIB}Gi"
    return {"gpu": _decimal(gpu), "cpu": _decimal(cpu), "memory": size}


def _decimal(milli: int) -> str:
    return f"{milli // WHOLE}" if not milli % WHOLE else f"{milli / WHOLE:.3f}".rstrip("0")
