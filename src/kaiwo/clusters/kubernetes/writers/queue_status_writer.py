"""What a KaiwoQueue shows of itself: `kubectl get kaiwoqueues`.

In:    how the queues stand.   Out: their status, written when it changed and not more often than a while.
Never: writes what is there already, or for a queue that is no object of the cluster.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, StandbyError, UnreachableError

PATH = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"
WHOLE, GIB_MIB = 1000, 1024
NOTHING = ((0, 0, 0), (0, 0, 0), (0, 0, 0))  # used, fair share, deserved


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
        faults: dict[str, str],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._generations, self._faults, self._report = client, generations, faults, report
        self._written: dict[str, dict[str, Any]] = {}
        self.writes = 0

    async def show(self, queues: Iterable[Shown]) -> bool:
        """Write what is new. False: some of it could not be written, and is to be tried again."""
        all_well = True
        for queue in with_faults(queues, self._faults):
            generation = self._generations.get(queue.name)
            if generation is None:
                self._written.pop(queue.name, None)
                continue
            status = write_status(queue, generation, self._written.get(queue.name))
            if self._written.get(queue.name) != status:
                all_well &= await self._write(queue.name, status)
        return all_well

    def objects(self) -> object:
        """Another value whenever an object changed, also in a way that the scheduler is not told of."""
        return dict(self._generations), dict(self._faults)

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


def with_faults(queues: Iterable[Shown], faults: Mapping[str, str]) -> list[Shown]:
    """Those that cannot be read as they are now: some are in force as they were, the others are in no sum."""
    known = {queue.name: queue for queue in queues}
    for name, fault in faults.items():
        there = known.get(name)
        known[name] = there._replace(mistake=still_in_force(fault)) if there else Shown(name, 0, 0, *NOTHING, fault)
    return list(known.values())


def still_in_force(fault: str) -> str:
    """What people read on an object of which an older version counts."""
    return f"{fault} (until then the last version that could be read stays in force, while this scheduler runs)"


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
