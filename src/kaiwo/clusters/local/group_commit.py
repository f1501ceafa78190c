"""Store the changes of many callers together: one visit of the writing thread and one flush for all that wait.

In:    actions, each of which is one transaction.   Out: for each its result, then word that it survives a power cut.
Never: lets a transaction that fails stop the others, or carries out a later one before an earlier one.

To wake a thread and to flush a disk cost far more than a small transaction. So the event loop asks for both once for
all callers, not once for each: twenty people who cancel something at the same time wait for two flushes, not for
twenty.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from kaiwo.clusters.embedded.state import Transaction
from kaiwo.model.errors import ClusterError

LONGEST_VISIT_S = 0.01  # of the thread: after that, those who have their results need not wait for the others

log = logging.getLogger(__name__)
T = TypeVar("T")


class Committed(NamedTuple):
    transaction: Transaction
    result: Any


class _Waiting(NamedTuple):
    act: Callable[[Transaction], Any]
    result: "asyncio.Future[Any]"
    carried_out: "asyncio.Future[None]"  # it survives a power cut, and its runs are being started and stopped


class GroupCommit:
    """`commit` runs on a thread; `publish` and `carry_out` on the event loop, in the order of the commits."""

    def __init__(
        self,
        commit: Callable[[Callable[[Transaction], Any]], Committed],
        flush: Callable[[], None],
        publish: Callable[[Transaction], None],
        carry_out: Callable[[Transaction], None],
    ) -> None:
        self._commit, self._publish, self._carry_out = commit, publish, carry_out
        self._flush = GroupFlush(flush)
        self._thread = ThreadPoolExecutor(1, "kaiwo-store")
        self._writing = asyncio.Lock()
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._carrying_out: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def run(self, act: Callable[[Transaction], T], is_acknowledged: bool) -> T:
        """The result of an action, once it is stored; if acknowledged, once it survives a power cut."""
        loop = asyncio.get_running_loop()
        mine = _Waiting(act, loop.create_future(), loop.create_future())
        mine.carried_out.add_done_callback(_log_failure)
        self._waiting.append(mine)
        if self._task is None:
            self._task = asyncio.create_task(self._commit_waiting(), name="kaiwo-commit")
        # When a caller gives up, the thread goes on, and the next transaction waits until it has written this one.
        result: T = await asyncio.shield(mine.result)
        if is_acknowledged:
            await asyncio.shield(mine.carried_out)
        return result

    async def write(self, work: Callable[[], T], then: Callable[[T], None] = lambda _: None) -> None:
        """Something else that writes to the store. `then` runs on the event loop before anything else is written."""
        async with self._writing:
            then(await self._on_thread(work))

    async def close(self) -> None:
        async with self._writing:
            self._is_closed = True
            await self._flush.close()
            await asyncio.gather(*self._carrying_out, return_exceptions=True)
            await asyncio.to_thread(self._thread.shutdown)  # what was cut short may still be writing
        if self._task is not None:
            await self._task  # it refuses those that still wait

    async def _commit_waiting(self) -> None:
        while self._waiting:
            async with self._writing:
                batch, self._waiting = self._waiting, []
                try:
                    outcomes = await self._on_thread(self._commit_some, [each.act for each in batch])
                except Exception as error:  # each of them is told
                    outcomes = [error] * len(batch)
                self._waiting[:0] = batch[len(outcomes) :]
                self._report(batch, outcomes)
        self._task = None

    async def _on_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """On a separate thread: SQLite releases the interpreter lock at every statement, and on the event loop each
        would wait until the other threads release it again, up to 150 ms for one small transaction."""
        if self._is_closed:
            raise ClusterError("the cluster is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _commit_some(self, acts: Sequence[Callable[[Transaction], Any]]) -> list[Committed | Exception]:
        """On the thread: the outcomes of the first of these, and of as many more as do not take long."""
        outcomes: list[Committed | Exception] = []
        began = time.monotonic()
        for act in acts:
            try:
                outcomes.append(self._commit(act))
            except Exception as error:  # the answer to its caller
                outcomes.append(error)
            if time.monotonic() - began > LONGEST_VISIT_S:
                break
        return outcomes

    def _report(self, batch: Sequence[_Waiting], outcomes: Sequence[Committed | Exception]) -> None:
        stored: list[tuple[_Waiting, Transaction]] = []
        for each, outcome in zip(batch, outcomes, strict=False):  # those that the visit did not reach wait on
            if isinstance(outcome, Exception):
                each.result.set_exception(outcome)
                each.carried_out.cancel()
                continue
            self._publish(outcome.transaction)
            each.result.set_result(outcome.result)
            stored.append((each, outcome.transaction))
        if not stored:
            return
        # What changed nothing may have seen changes that are not flushed yet.
        is_flushed = not self._flush.is_busy and not any(transaction.before for _, transaction in stored)
        flushed = None if is_flushed else self._flush.wait()
        task = asyncio.create_task(self._carry_out_when(flushed, stored), name="kaiwo-carry-out")
        self._carrying_out.add(task)
        task.add_done_callback(self._carrying_out.discard)

    async def _carry_out_when(
        self, flushed: "asyncio.Future[None] | None", stored: Sequence[tuple[_Waiting, Transaction]]
    ) -> None:
        """Those that wait for one flush go on in the order in which they were committed."""
        failure: Exception | None = None
        try:
            if flushed is not None:
                await flushed
        except Exception as error:  # the changes are made, and whoever made them is told of the failure
            failure = error
        for each, transaction in stored:
            problem = failure
            try:
                self._carry_out(transaction)
            except Exception as error:  # the others are carried out nevertheless
                problem = problem or error
            if problem is not None:
                each.carried_out.set_exception(problem)
            else:
                each.carried_out.set_result(None)


def _log_failure(carried_out: "asyncio.Future[None]") -> None:
    """Nobody may be waiting for it."""
    if not carried_out.cancelled() and (error := carried_out.exception()) is not None:
        log.error("a stored change could not be flushed to the disk, or not be carried out: %s", error)


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
