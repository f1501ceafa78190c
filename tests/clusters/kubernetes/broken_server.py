"""A line between a client and a server that can be cut, and a server that answers as a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from tests.controlplane.plane import Plane


class Line:
    """Passes bytes on until it is cut. TLS goes through untouched."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.port = 0
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End every connection as a broken switch would."""
        for writer in list(self._open):
            writer.transport.abort()
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._open |= {writer, far_writer}
        await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def line_to(plane: Plane) -> AsyncIterator[Line]:
    line = Line(plane.port)
    server = await asyncio.start_server(line._serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        line.cut()


@asynccontextmanager
async def server_that(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """For what a healthy API server cannot be made to say. Yields its address."""
    runner = web.ServerRunner(web.Server(answer), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
