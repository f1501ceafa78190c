"""Decide only while we lead: caches warm, the Lease held, and all known that a former leader did.

In:    whoever knows whether we lead, a cluster and its loop.   Out: the loop let go and stopped.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from kaiwo.runtime.kubernetes.publish_wait_reasons import Sayer, Speaker
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop

LAST_WORDS_S, LAST_WRITES_S = 1.0, 2.0


class Leadership(Protocol):
    """Whether this process leads. An election has it from a Lease; alone, one always does."""

    @property
    def is_held(self) -> bool: ...

    @property
    def left_s(self) -> float: ...

    @property
    def identity(self) -> str: ...

    @property
    def holder(self) -> str: ...

    @property
    def term(self) -> int: ...

    @property
    def transitions(self) -> int: ...

    async def run(self) -> None: ...

    async def step(self) -> None: ...

    async def won(self) -> int: ...

    async def lost(self, term: int) -> None: ...

    def stop(self) -> None: ...

    async def release(self) -> None: ...

    async def close(self) -> None: ...


class Alone:
    """Nobody else wants to lead."""

    is_held, left_s, identity, holder, term, transitions = True, float("inf"), "", "", 1, 0

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def step(self) -> None: ...

    async def won(self) -> int:
        return self.term

    async def lost(self, term: int) -> None:
        await asyncio.Event().wait()

    def stop(self) -> None: ...

    async def release(self) -> None: ...

    async def close(self) -> None: ...


ALONE = Alone()


class Replicated(Protocol):
    """A cluster that several processes may look at, and one writes to."""

    client: Any  # `quiet`

    @property
    def voice(self) -> Speaker: ...

    async def catch_up(self) -> None: ...


class Leading:
    """Opens and closes the way for the loop. Give it `may_decide`."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self._known_term = 0  # the term for which we know all that was done before it
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False

    def may_decide(self) -> bool:
        return self.leadership.is_held and self._known_term == self.leadership.term and not self._is_over

    async def begin(self) -> None:
        """One try for the Lease before anything is listed: what is listed afterwards needs no second look."""
        await self.leadership.step()
        if self.leadership.is_held:
            self._known_term = self.leadership.term

    def start(self, cluster: Replicated, loop: SchedulingLoop) -> "Sequence[asyncio.Task[None]]":
        """Take part from now on. The tasks end only when they fail."""
        self._tasks = [
            asyncio.create_task(self.leadership.run(), name="kaiwo-election"),
            asyncio.create_task(self._lead(cluster, loop), name="kaiwo-leading"),
        ]
        return self._tasks

    async def hand_over(self, cluster: Replicated) -> None:
        """An orderly end: say what was done, write no more, wait for what is on its way, and let the next one lead.

        When something stays on its way, the Lease is left to run out: its arrival must not meet another leader.
        """
        if self._is_over:
            return
        self._is_over = True
        if self.leadership.is_held:
            await cluster.voice.finish(LAST_WORDS_S)
        self.leadership.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if await cluster.client.quiet(LAST_WRITES_S):
            await self.leadership.release()
        await self.leadership.close()

    async def _lead(self, cluster: Replicated, loop: SchedulingLoop) -> None:
        while True:
            term = await self.leadership.won()
            if term != self._known_term:
                await cluster.catch_up()
                self._known_term = term
            loop.wake()
            # A new one each time: what an earlier leader said is not known to be what is true now.
            saying = asyncio.create_task(Sayer().run(loop, cluster.voice), name="kaiwo-saying")
            try:
                await self.leadership.lost(term)
            finally:
                saying.cancel()
                await asyncio.gather(saying, return_exceptions=True)
