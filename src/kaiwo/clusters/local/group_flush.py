"""Flush the disk once for all that wait: an acknowledged change survives a power cut, and nobody waits in a row."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class GroupFlush:
    """`flush` runs on a thread, once at a time. Whoever asks while it runs shares the next one."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._thread = ThreadPoolExecutor(1, "kaiwo-flush")
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def wait(self) -> "asyncio.Future[None]":
        """Done when a flush that begins after this call is over, in the order of the calls. Raises what it raised."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="kaiwo-flush")
        return future

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    async def close(self) -> None:
        if self._task is not None:
            await self._task
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            served, self._waiting = self._waiting, []
            try:
                await loop.run_in_executor(self._thread, self._flush)
            except Exception as error:  # each of them is told
                for future in served:
                    if not future.done():
                        future.set_exception(error)
            else:
                for future in served:
                    if not future.done():
                        future.set_result(None)
        self._task = None
