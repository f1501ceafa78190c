"""Ask worker processes to run the live cluster forward: for the expected starts, and for what-if questions.

Never: lets a reader of expected starts wait for a worker longer than a moment, or for the question of somebody else.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence

import msgspec

from kaiwo.forecast.expected_starts import ExpectedStart
from kaiwo.forecast.recent_arrivals import SavedArrivals
from kaiwo.forecast.run_time_forecast import SavedForecast
from kaiwo.model.errors import KaiwoError
from kaiwo.model.events import Event
from kaiwo.model.planned_start import expected_run_s
from kaiwo.model.policy import Policy
from kaiwo.runtime.forecasting.forward_jobs import ForwardAnswer, ForwardJob
from kaiwo.runtime.loop.learned_state import pack_state
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.loop.worker_question import WorkerQuestion, ask_worker
from kaiwo.snapshot.cluster_state import ClusterState

WORKER = WorkerQuestion("kaiwo.runtime.forecasting.worker_main", "running the cluster forward", 90.0)
CYCLES, HORIZON_S = 1_000, 14 * 86_400
FRESH_S = 30.0  # expected starts are computed again after this, if the cluster has changed
REST_FACTOR = 20  # and not sooner than this many times what the last answer took
BRIEF_S = 1.0  # how long a reader of expected starts waits for new ones


class ForwardWorker:
    """Expected starts as of the last question, and what-if questions."""

    def __init__(self, live: LiveLoop) -> None:
        self._live = live
        self._turn_of_people, self._turn_of_owner = asyncio.Lock(), asyncio.Lock()
        self.starts: dict[str, ExpectedStart] = {}  # by waiting workload; unknown ones are left out
        self._revision, self._asked_at, self._rest_s = -1, 0.0, 0.0
        self._refreshing: asyncio.Task[None] | None = None

    async def expected_starts(self) -> dict[str, ExpectedStart]:
        """As of now, if they come within a moment; else the last ones, which the next reader finds replaced."""
        self.refresh_in_background()
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing], timeout=BRIEF_S)
        return self.starts

    def refresh_in_background(self) -> None:
        """Compute them for the next reader, who need not wait."""
        is_free = self._refreshing is None or self._refreshing.done()
        if is_free and self._is_old() and self._live.ready and self._live.state.backlog:
            self._refreshing = asyncio.create_task(self._refresh())

    async def what_if(self, changes: Sequence[Event], policy: Policy | None, is_owner: bool) -> ForwardAnswer:
        """The same time to come, without and with these changes. The owner waits for nobody else's question."""
        async with self._turn_of_owner if is_owner else self._turn_of_people:
            return await self._ask(tuple(changes), policy)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        began = time.monotonic()
        self._revision = self._live.revision
        with contextlib.suppress(KaiwoError):
            self.starts = (await self._ask(None, None)).starts
        self._asked_at = time.monotonic()
        self._rest_s = max(FRESH_S, REST_FACTOR * (self._asked_at - began))

    def _is_old(self) -> bool:
        if self._revision == self._live.revision and self._asked_at:
            return False
        return not self._asked_at or time.monotonic() - self._asked_at > self._rest_s

    async def _ask(self, changes: tuple[Event, ...] | None, policy: Policy | None) -> ForwardAnswer:
        live, now_s = self._live, self._live.cluster.now_s()

        def job_of(state: ClusterState) -> bytes:
            saved, arrivals = SavedForecast(), SavedArrivals()
            if live.run_times is not None:
                saved, arrivals = live.run_times.forecast.save(), live.run_times.arrivals.save()
            if changes is None and not saved.groups and not any(map(expected_run_s, state.workloads.values())):
                return b""  # nothing is known about run times, and so nothing about starts
            learned = pack_state(state, live.policy, now_s)
            bounds = (CYCLES, HORIZON_S)
            job = ForwardJob(state.events(), learned, saved, arrivals, now_s, live.policy, *bounds, changes, policy)
            return msgspec.msgpack.encode(job)

        job = await live.ask(job_of)
        return msgspec.msgpack.decode(await ask_worker(WORKER, job), type=ForwardAnswer) if job else ForwardAnswer()
