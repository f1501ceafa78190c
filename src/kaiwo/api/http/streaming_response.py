"""A streaming response: server-sent events, or a log that is followed.

Chunks are sent as fast as the client reads them, compressed if it asks for that. A stream ends with its client, with
the credential of its client and with the server, and holds at most one chunk for a client that does not read.
"""

import asyncio
import contextlib
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from starlette.responses import Response

from kaiwo.api.http.problems import too_many

SEND_S = 20.0  # a client that reads nothing for this long is gone
FINISH_S = 0.5
LEVEL, WINDOW_BITS, MEMORY_LEVEL = 5, 16 + 13, 6  # 16: with the header of gzip; a compressor takes 64 KiB of memory
LARGE_CHUNK = 256 * 1024  # bytes that are compressed beside the event loop


class OpenStreams:
    """Counts the streams of all clients, and ends them when the server closes."""

    def __init__(self, limit: int, limit_of_person: int, report: Callable[[Exception, str], None]) -> None:
        self.of_person: Counter[str] = Counter()
        self.closing = asyncio.Event()  # every stream ends when this is set
        self.report = report  # a stream broke
        self._limit, self._limit_of_person = limit, limit_of_person

    @property
    def count(self) -> int:
        return self.of_person.total()

    def check_limit(self, person: str, has_reserve: bool = False) -> None:
        """`has_reserve`: the streams of others do not count against this person."""
        own = self.of_person[person]
        if own >= self._limit_of_person:
            message = f"{own} streams of {person} are open, which is the limit for one person; close one and try again"
            raise too_many(message, 5)
        if self.count >= self._limit and not has_reserve:
            raise too_many(f"{self.count} streams are open, which is the limit; close one and try again", 5)

    def opened(self, person: str) -> None:
        self.of_person[person] += 1

    def ended(self, person: str) -> None:
        self.of_person[person] -= 1
        if not self.of_person[person]:
            del self.of_person[person]


class Streaming(Response):
    """Ends with the chunks, the client or the server, whichever ends first."""

    def __init__(
        self,
        streams: OpenStreams,
        person: str,
        chunks: AsyncGenerator[bytes, None],
        media_type: str,
        on_end: Callable[[], None] = lambda: None,
        until_over: Callable[[], Coroutine[Any, Any, Any]] | None = None,  # ends when the client's credential does
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, media_type)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._streams, self._person = streams, person
        self._chunks = chunks
        self._zip: Any = None
        self._on_end = on_end
        self._until_over = until_over or streams.closing.wait

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._streams.opened(self._person)
        if _accepts_gzip(scope):
            self._zip = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL)
            self.raw_headers.append((b"content-encoding", b"gzip"))
        self.raw_headers.append((b"vary", b"accept-encoding"))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            is_there = scope["method"] == "HEAD" or await self._stream(receive, send)
            if is_there:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FINISH_S):
                        await send({"type": "http.response.body", "body": self._zip.flush() if self._zip else b""})
        finally:
            self._streams.ended(self._person)
            await self._chunks.aclose()
            self._on_end()

    async def _stream(self, receive: Any, send: Any) -> bool:
        """Returns whether the client is still connected at the end."""
        pump, gone, *_ = tasks = [
            asyncio.ensure_future(each)
            for each in (self._pump(send), _disconnected(receive), self._streams.closing.wait(), self._until_over())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done() and not (pump.done() and isinstance(pump.exception(), TimeoutError))
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(ended[0], Exception) and not isinstance(ended[0], TimeoutError | OSError):
                self._streams.report(ended[0], "a stream")

    async def _pump(self, send: Any) -> None:
        async for chunk in self._chunks:
            if self._zip is not None:
                is_large = len(chunk) > LARGE_CHUNK
                chunk = await asyncio.to_thread(self._zipped, chunk) if is_large else self._zipped(chunk)
            async with asyncio.timeout(SEND_S):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

    def _zipped(self, chunk: bytes) -> bytes:
        """Flushed, so that the client can read all of it now."""
        return bytes(self._zip.compress(chunk) + self._zip.flush(zlib.Z_SYNC_FLUSH))


def _accepts_gzip(scope: Any) -> bool:
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding").decode("latin-1")
    codings = (each.partition(";") for each in accepted.lower().split(","))
    return any(
        name.strip() == "gzip" and weight.replace(" ", "") not in ("q=0", "q=0.0") for name, _, weight in codings
    )


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
