"""Ask a worker process to run the live cluster forward, one question at a time."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence

import msgspec

from kaiwo.forecast.expected_starts import ExpectedStart
from kaiwo.forecast.run_time_forecast import SavedForecast
from kaiwo.model.errors import KaiwoError
from kaiwo.model.events import Event
from kaiwo.model.planned_start import expected_run_s
from kaiwo.model.policy import Policy
from kaiwo.runtime.forecasting.forward_jobs import ForwardAnswer, ForwardJob
from kaiwo.runtime.loop.learned_state import pack_state
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.snapshot.cluster_state import ClusterState

WORKER = "kaiwo.runtime.forecasting.worker_main"
LONGEST_S = 90.0
CYCLES, HORIZON_S = 300, 14 * 86_400
FRESH_S = 30.0  # expected starts are computed again after this, if the cluster has changed
REST_FACTOR = 20  # and not sooner than this many times what the last answer took


class ForwardWorker:
    """Expected starts as of the last question, and what-if questions."""

    def __init__(self, live: LiveLoop) -> None:
        self._live = live
        self._lock = asyncio.Lock()
        self.starts: dict[str, ExpectedStart] = {}  # by waiting workload; unknown ones are left out
        self._revision, self._asked_at, self._rest_s = -1, 0.0, 0.0
        self._refreshing: asyncio.Task[None] | None = None

    async def expected_starts(self) -> dict[str, ExpectedStart]:
        """As of now, or as of a moment ago. An answer that cannot be had in time is the last one."""
        async with self._lock:
            if self._is_old():
                began = time.monotonic()
                self._revision = self._live.revision
                with contextlib.suppress(KaiwoError):
                    self.starts = (await self._ask(None, None)).starts
                self._asked_at = time.monotonic()
                self._rest_s = max(FRESH_S, REST_FACTOR * (self._asked_at - began))
        return self.starts

    def refresh_in_background(self) -> None:
        """Compute them for the next reader, who need not wait."""
        is_free = self._refreshing is None or self._refreshing.done()
        if is_free and self._is_old() and self._live.ready and self._live.state.backlog:
            self._refreshing = asyncio.create_task(self._refresh())

    async def what_if(self, changes: Sequence[Event], policy: Policy | None) -> ForwardAnswer:
        """The same time to come, without and with these changes."""
        async with self._lock:
            return await self._ask(tuple(changes), policy)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        await self.expected_starts()

    def _is_old(self) -> bool:
        if self._revision == self._live.revision and self._asked_at:
            return False
        return not self._asked_at or time.monotonic() - self._asked_at > self._rest_s

    async def _ask(self, changes: tuple[Event, ...] | None, policy: Policy | None) -> ForwardAnswer:
        live, now_s = self._live, self._live.cluster.now_s()

        def job_of(state: ClusterState) -> bytes:
            saved = live.run_times.forecast.save() if live.run_times is not None else SavedForecast()
            if changes is None and not saved.groups and not any(map(expected_run_s, state.workloads.values())):
                return b""  # nothing is known about run times, and so nothing about starts
            learned = pack_state(state, live.policy, now_s)
            bounds = (CYCLES, HORIZON_S)
            job = ForwardJob(state.events(), learned, saved, now_s, live.policy, *bounds, changes, policy)
            return msgspec.msgpack.encode(job)

        job = await live.ask(job_of)
        return await _run_worker(job) if job else ForwardAnswer()


async def _run_worker(job: bytes) -> ForwardAnswer:
    pipe = asyncio.subprocess.PIPE
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", WORKER, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(LONGEST_S):
            answered, _ = await worker.communicate(job)
    except TimeoutError:
        raise KaiwoError(f"running the cluster forward took longer than {LONGEST_S:g} s; ask about less") from None
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    if worker.returncode:
        raise KaiwoError(f"the worker that runs the cluster forward ended with code {worker.returncode}; try again")
    return msgspec.msgpack.decode(answered, type=ForwardAnswer)
