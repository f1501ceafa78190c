"""What a webhook server knows of the scheduler, said by a test."""

from collections.abc import Mapping

from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE, Queue


class KnownState:
    def __init__(self, *queues: Queue, living: Mapping[str, int] | None = None) -> None:
        self.queues: Mapping[str, Queue] = {queue.name: queue for queue in (UNBOUNDED_DEFAULT_QUEUE, *queues)}
        self._living = living or {}

    async def living(self) -> Mapping[str, int]:
        return self._living
