"""Let the loop decide only while this replica leads: caches warm, Lease held, the former leader's writes known."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kaiwo.runtime.kubernetes.leadership import Leadership
from kaiwo.runtime.kubernetes.publish_wait_reasons import WaitReasonPublisher
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop

if TYPE_CHECKING:
    from kaiwo.clusters.kubernetes.cluster import KubernetesCluster

FLUSH_S, LAST_WRITES_S = 1.0, 2.0


class LeaderGuard:
    """Follows the leadership for one loop, which asks `may_decide` before each cycle."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.before_leading: Callable[[], Awaitable[None]] | None = None  # awaited in each term before it decides
        self._listed_term = 0  # the term that began before anything was listed
        self._caught_up_term = 0  # the term before which all that was done is known
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False

    def may_decide(self) -> bool:
        return self.leadership.is_held and self._caught_up_term == self.leadership.term and not self._is_over

    async def begin(self) -> None:
        """Try for the Lease once before anything is listed: what is listed afterwards need not be listed again."""
        await self.leadership.step()
        if self.leadership.is_held:
            self._listed_term = self.leadership.term
            if self.before_leading is None:
                self._caught_up_term = self.leadership.term

    def start(self, cluster: "KubernetesCluster", loop: SchedulingLoop) -> "Sequence[asyncio.Task[None]]":
        """Take part in the election. The tasks end only when they fail."""
        self._tasks = [
            asyncio.create_task(self.leadership.run(), name="kaiwo-election"),
            asyncio.create_task(self._lead(cluster, loop), name="kaiwo-leading"),
        ]
        return self._tasks

    async def hand_over(self, cluster: "KubernetesCluster") -> None:
        """End in order: publish outcomes, stop writing, wait for writes in flight, and release the Lease.

        If a write stays in flight, the Lease is left to expire: that write must not arrive under another leader.
        """
        if self._is_over:
            return
        self._is_over = True
        if self.leadership.is_held:
            await cluster.event_writer.flush(FLUSH_S)
        self.leadership.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if await cluster.client.wait_for_writes(LAST_WRITES_S):
            await self.leadership.release()
        await self.leadership.close()

    async def _lead(self, cluster: "KubernetesCluster", loop: SchedulingLoop) -> None:
        while True:
            term = await self.leadership.won()
            if term != self._listed_term:
                await cluster.catch_up()
            if self.before_leading is not None:
                await self.before_leading()
            await cluster.lead()
            self._caught_up_term = term
            loop.wake()
            # A new one for each term: what an earlier leader published may not be true any more.
            publishing = WaitReasonPublisher().run(loop, cluster.event_writer)
            publisher = asyncio.create_task(publishing, name="kaiwo-wait-reasons")
            try:
                await self.leadership.lost(term)
            finally:
                publisher.cancel()
                await asyncio.gather(publisher, return_exceptions=True)
