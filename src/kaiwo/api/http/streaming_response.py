"""A streaming response: server-sent events, or a log that is followed.

Chunks are sent as fast as the client reads them. A stream ends with its client and with the server, and holds at most
one chunk for a client that does not read.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.responses import Response

from kaiwo.api.http.problems import too_many

SEND_S = 20.0  # a client that reads nothing for this long is gone
FINISH_S = 0.5


class OpenStreams:
    """Counts the streams of all clients, and ends them when the server closes."""

    def __init__(self, limit: int, report: Callable[[Exception, str], None]) -> None:
        self.count = 0
        self.closing = asyncio.Event()  # every stream ends when this is set
        self.report = report  # a stream broke
        self._limit = limit

    def check_limit(self) -> None:
        if self.count >= self._limit:
            raise too_many(f"{self.count} streams are open, which is the limit; close one and try again", 5)


class Streaming(Response):
    """Ends with the chunks, the client or the server, whichever ends first."""

    def __init__(
        self,
        streams: OpenStreams,
        chunks: AsyncGenerator[bytes, None],
        media_type: str,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, media_type)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._streams = streams
        self._chunks = chunks
        self._on_end = on_end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._streams.count += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            is_there = scope["method"] == "HEAD" or await self._stream(receive, send)
            if is_there:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FINISH_S):
                        await send({"type": "http.response.body", "body": b""})
        finally:
            self._streams.count -= 1
            await self._chunks.aclose()
            self._on_end()

    async def _stream(self, receive: Any, send: Any) -> bool:
        """Returns whether the client is still connected at the end."""
        pump, gone, closing = (
            asyncio.ensure_future(each)
            for each in (self._pump(send), _disconnected(receive), self._streams.closing.wait())
        )
        try:
            await asyncio.wait((pump, gone, closing), return_when=asyncio.FIRST_COMPLETED)
            return not gone.done() and not (pump.done() and isinstance(pump.exception(), TimeoutError))
        finally:
            for task in (pump, gone, closing):
                task.cancel()
            ended = await asyncio.gather(pump, gone, closing, return_exceptions=True)
            if isinstance(ended[0], Exception) and not isinstance(ended[0], TimeoutError | OSError):
                self._streams.report(ended[0], "a stream")

    async def _pump(self, send: Any) -> None:
        async for chunk in self._chunks:
            async with asyncio.timeout(SEND_S):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
