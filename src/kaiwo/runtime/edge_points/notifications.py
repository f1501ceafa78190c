"""Tell notification plugins what people may want to know at once, and deliver the messages that they form.

In:    workloads that ended, plugins that were set aside, cycles that failed, alerts.
Out:   lines in KAIWO_HOME/sinks/NAME.log, and a POST of each message to the URL that the administrator gave as
       `deliverTo`.
Never: blocks anything. Notices that come faster than they are delivered are dropped, oldest first, and counted.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kaiwo.model.workload_record import WorkloadState
from kaiwo.plugins.edge_contract import Notice
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from kaiwo.runtime.edge_points.ended_work import EndedWork
from kaiwo.runtime.edge_points.monitoring import MAX_TEXT, ReportFiles
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop

MAX_WAITING = 1_000
POST_S = 5.0
NOTICE_CODES = {
    WorkloadState.SUCCEEDED: "workload-succeeded",
    WorkloadState.FAILED: "workload-failed",
    WorkloadState.CANCELLED: "workload-cancelled",
}


class Addresses(Protocol):
    def __call__(self, plugin: str) -> str:
        """Where its messages go besides its file; empty: nowhere."""


class Notifications:
    def __init__(self, calls: EdgeCalls, live: LiveLoop, files: ReportFiles, address_of: Addresses) -> None:
        self._calls, self._live, self._files, self._address_of = calls, live, files, address_of
        self._waiting: deque[Notice] = deque(maxlen=MAX_WAITING)
        self._come = asyncio.Event()
        self._ended: EndedWork | None = None  # None: there was nobody to tell
        self._failures = 0
        self.may_tell: Callable[[], bool] = lambda: True  # False: another replica tells people

    def add(self, notice: Notice) -> None:
        if self.may_tell():
            self._waiting.append(notice)
            self._come.set()

    async def watch(self) -> None:
        """Notice what happens, until cancelled. What was over before is no news."""
        seen = -1
        while True:
            seen = await self._live.changed(seen)
            if self._live.ready and self.may_tell() and self._calls.active_at("notification"):
                self._look()
            elif self._live.ready:
                self._ended = None  # begin anew when there is somebody to tell

    async def deliver(self) -> None:
        """Deliver until cancelled."""
        while True:
            await self._come.wait()
            self._come.clear()
            while self._waiting:
                await self.tell(self._waiting.popleft())

    async def tell(self, notice: Notice) -> None:
        for plugin in self._calls.active_at("notification"):
            message = await self._calls.call(plugin, "notification", str, notice)
            if not message:
                continue
            if len(message) > MAX_TEXT:
                await self._calls.set_aside(plugin.name, f"notification: returned {len(message):,} characters")
                continue
            await self._files.append_or_report(plugin.name, message)
            if (address := self._address_of(plugin.name)) and (why := await post_message(address, message)):
                emit("notification-not-delivered", level="warning", plugin=plugin.name, error=why)

    def _look(self) -> None:
        is_first = self._ended is None
        self._ended = self._ended or EndedWork(self._live.cluster)
        at_s = self._live.clock()[0]
        for record in self._ended.news():
            workload = record.workload
            code = NOTICE_CODES[record.state]
            self.add(Notice(code, workload.name, at_s, record.message, workload.user, workload.queue))
        if self._live.health.failures > self._failures and not is_first:
            self.add(Notice("cycle-failed", "scheduler", at_s, "a cycle failed; it is tried again"))
        self._failures = self._live.health.failures


async def post_message(address: str, message: str) -> str:
    """Why it was not delivered; empty: it was. Redirects are not followed."""
    import aiohttp  # few have an address, and the import costs 20 MB

    timeout = aiohttp.ClientTimeout(total=POST_S)
    headers = {"content-type": "text/plain; charset=utf-8"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(address, data=message.encode(), headers=headers, allow_redirects=False) as answer,
        ):
            return "" if answer.status < 300 else f"HTTP status {answer.status}"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:300]
