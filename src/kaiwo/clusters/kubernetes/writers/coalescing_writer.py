"""Write the newest value of each object in the background, one write at a time per object.

A value that was replaced by a newer one is never written, and no object has two writes in flight, so the newest value
is written last. Nothing is written while another replica leads.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kaiwo.clusters.kubernetes.client import ApiError, Client, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff

RETRY_FIRST_S, RETRY_LONGEST_S = 1.0, 10.0
AT_ONCE = 16  # writes on pods, which must not crowd out Bindings
REVIEW_S = 1.0
CLOSE_S = 0.5  # for writes that are in flight
MAX_CHARACTERS = 300  # of an error in the log

Value = TypeVar("Value")
WriteError = ApiError | UnreachableError
Report = Callable[..., None]


class CoalescingWriter(Generic[Value]):
    """Decides when to write. `write` makes one write; `failed` is called after every error, before the next try."""

    def __init__(
        self,
        client: Client,
        write: Callable[[str, Value], Awaitable[None]],
        failed: Callable[[str, Value, WriteError], None],
        *,
        at_once: int = 1,
        pause_s: float = 0.0,
        retries: bool = True,
    ) -> None:
        """`pause_s`: between two writes of one object. Without `retries` a value that failed is dropped."""
        self._client, self._write, self._failed = client, write, failed
        self._pause_s, self._retries = pause_s, retries
        self._slots = asyncio.Semaphore(at_once)
        self._newest: dict[str, Value] = {}  # not confirmed by the server yet
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reviewer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def start(self, review: Callable[[], None], stand_by: Callable[[], None] = lambda: None) -> None:
        """Once a second, call `review`, which puts values; while another replica leads, call `stand_by` instead."""
        self._reviewer = asyncio.create_task(self._review(review, stand_by))

    def put(self, key: str, value: Value) -> None:
        """Give the object this value. Ignored while another replica leads."""
        if not self._client.may_write or (key in self._newest and self._newest[key] == value):
            return
        self._newest[key] = value
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._write_newest(key))

    def drop(self, key: str) -> None:
        self._newest.pop(key, None)

    def has_newer(self, key: str, value: Value) -> bool:
        """Whether another value waits to be written after this one."""
        return key in self._newest and self._newest[key] != value

    async def close(self) -> None:
        """Finish the pending writes without retries, and cancel those that take too long."""
        self._closing.set()
        tasks = [*self._tasks.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        if self._reviewer is not None:
            tasks.append(self._reviewer)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _review(self, review: Callable[[], None], stand_by: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(REVIEW_S)
            if self._client.may_write:
                review()
            else:
                self._newest.clear()
                stand_by()

    async def _write_newest(self, key: str) -> None:
        backoff = Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
        try:
            while key in self._newest:
                if await self._try(key):
                    backoff.reset()
                    await self._pause(self._pause_s)
                else:
                    await self._pause(backoff.next_s())
        finally:
            del self._tasks[key]

    async def _try(self, key: str) -> bool:
        """False: the write failed, and must be tried again after a pause."""
        async with self._slots:
            if key not in self._newest:
                return True
            value = self._newest[key]
            try:
                await self._write(key, value)
            except (ApiError, UnreachableError) as error:
                self._failed(key, value, error)
                if self._retries and not is_moot(error) and not self._closing.is_set():
                    return False
        if not self.has_newer(key, value):
            self._newest.pop(key, None)
        return True

    async def _pause(self, seconds: float) -> None:
        if seconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()


def is_moot(error: WriteError) -> bool:
    """Another try is useless: the object is gone, or another replica leads."""
    return isinstance(error, StandbyError) or (isinstance(error, ApiError) and error.is_not_found)


def report_failures(report: Report, event: str, label: str) -> Callable[[str, object, WriteError], None]:
    """Log every failure that matters, with the object's name under `label`."""

    def failed(name: str, _value: object, error: WriteError) -> None:
        if not is_moot(error):
            report(event, level="warning", **{label: name}, error=str(error)[:MAX_CHARACTERS])

    return failed
