"""Serve HTTP/1.1 over TLS to an API server, while anybody who reaches the port may try to stop that.

Every connection is one task with a time limit on every step: handshake, head, body, answer, and reading the answer.
Never: keeps a body, or waits, without a bound; logs once for each stranger.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kaiwo.clusters.kubernetes.webhooks.connection_limits import (
    BodyMemory,
    ConnectionSlot,
    ConnectionSlots,
    ServerLimits,
    WorkBudget,
)
from kaiwo.clusters.kubernetes.webhooks.http_request import (
    CONTINUE,
    PIECE,
    RefusedRequestError,
    RequestHead,
    ReviewBody,
    read_head,
    write_answer,
)

BACKLOG = 1024
AT_ONCE = 64
NO_DESCRIPTORS_S = 0.2
LINGER_S, LINGER_BYTES = 1.0, 16 << 20
# What they take on a slow machine: measured, then doubled.
HANDSHAKE_WORK_S, REQUEST_WORK_S, BYTE_WORK_S = 0.004, 0.001, 20e-9
Answer = Callable[[str, bytes], Awaitable[bytes]]  # path and body to JSON


def listen(host: str, port: int) -> socket.socket:
    """OSError if another program has the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return listener


class BoundedHttpServer:
    def __init__(self, paths: frozenset[str], answer: Answer, limits: ServerLimits) -> None:
        self._paths, self._answer, self._limits = paths, answer, limits
        self.slots = ConnectionSlots(limits)
        self.dropped: Counter[str] = Counter()  # connections that were ended, and requests that were refused, by cause
        self._memory, self._work = BodyMemory(limits), WorkBudget(limits)
        self._accepting: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self.context: ssl.SSLContext | None = None  # of new connections
        self._client_names: frozenset[str] = frozenset()

    def start(self, listener: socket.socket, context: ssl.SSLContext | None, client_names: frozenset[str]) -> None:
        """`client_names`: common names of client certificates; empty: all that the context accepts."""
        self._listener, self.context, self._client_names = listener, context, client_names
        self._accepting = asyncio.create_task(self._accept(listener), name="kaiwo-webhook-accept")

    @property
    def is_serving(self) -> bool:
        return self._accepting is not None

    async def close(self, within_s: float) -> None:
        """Accept nobody, and give requests in progress this time to end."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        slots = self.slots.all()
        for slot in slots:
            if slot.is_idle:
                slot.cancel()
        if tasks := [slot.task for slot in slots if slot.task is not None]:
            _, late = await asyncio.wait(tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._admit(*await loop.sock_accept(listener))
                for _ in range(AT_ONCE):  # a full backlog would drop the API server's next connection
                    self._admit(*listener.accept())
            except BlockingIOError:
                continue
            except OSError:  # it is gone already, or there are no descriptors
                self.dropped["not-accepted"] += 1
                await asyncio.sleep(NO_DESCRIPTORS_S)

    def _admit(self, connection: socket.socket, peer: tuple[Any, ...]) -> None:
        address = str(peer[0])
        slot = None if self._work.wait_s(address) else self.slots.open(address)
        if slot is None:
            self.dropped["too-many-connections"] += 1
            connection.close()
            return
        connection.setblocking(False)
        slot.task = asyncio.create_task(self._connection(connection, slot))
        slot.task.add_done_callback(partial(self._closed, slot))

    def _closed(self, slot: ConnectionSlot, _: "asyncio.Task[None]") -> None:
        self.slots.close(slot)

    async def _connection(self, connection: socket.socket, slot: ConnectionSlot) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            self._work.charge(slot.address, HANDSHAKE_WORK_S)
            reader, writer = await self._open(connection)
            if self._client_names and _common_name(writer) not in self._client_names:
                self.dropped["client-name"] += 1
                return
            while await self._exchange(reader, writer, slot):
                pass
            writer.close()
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:  # the other end is gone, or speaks no TLS
            self.dropped["handshake" if writer is None else _cause(error)] += 1
        except asyncio.CancelledError:  # it made room for another one, or the server ends
            self.dropped["made-room"] += 1
        finally:
            if writer is None:
                connection.close()
            elif not writer.is_closing():
                writer.transport.abort()

    async def _open(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=self._limits.head_bytes)
        protocol = asyncio.StreamReaderProtocol(reader)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(self._limits.handshake_s + 1):
            if self.context is None:
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
            else:
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol,
                    connection,
                    ssl=self.context,
                    ssl_handshake_timeout=self._limits.handshake_s,
                    ssl_shutdown_timeout=1,
                )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slot: ConnectionSlot) -> bool:
        """One request and its answer. False: the connection ends."""
        limits = self._limits
        slot.is_idle = True
        try:
            async with asyncio.timeout(limits.idle_s if slot.is_proven else limits.head_s):
                first = await reader.readexactly(1)
        except (TimeoutError, EOFError):
            self.dropped["idle"] += 0 if slot.is_proven else 1
            return False
        slot.is_idle = False
        await asyncio.sleep(self._work.wait_s(slot.address))  # also lets other connections have their turn
        try:
            async with asyncio.timeout(limits.head_s):
                head = await read_head(reader, first, limits)
            found = await self._answered(reader, writer, head, slot.address)
            is_over, slot.is_proven = not head.keeps_open, True
        except RefusedRequestError as error:
            self.dropped[f"status-{error.status}"] += 1
            self._work.charge(slot.address, REQUEST_WORK_S)
            found, is_over = write_answer(error.status, f"{error}\n".encode(), "text/plain", False), True
        writer.write(found)
        async with asyncio.timeout(limits.write_s):
            await writer.drain()
            if is_over:
                self._work.charge(slot.address, BYTE_WORK_S * await _discard(reader))
        return not is_over

    async def _answered(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: RequestHead, address: str
    ) -> bytes:
        limits = self._limits
        if head.path not in self._paths:
            raise RefusedRequestError(404, "there is no webhook at this path")
        if head.method != "POST":
            raise RefusedRequestError(405, "a review is sent with POST")
        if head.awaits_continue:
            writer.write(CONTINUE)
        body = ReviewBody(self._memory, address, limits)
        try:
            async with asyncio.timeout(limits.body_s):
                content = await body.read(reader, head.length)
            self._work.charge(address, REQUEST_WORK_S + len(content) * BYTE_WORK_S)
            began_s = time.thread_time()
            async with asyncio.timeout(limits.review_s):
                found = await self._answer(head.path, content)
            self._work.charge(address, time.thread_time() - began_s)
        finally:
            body.close()
        return write_answer(200, found, "application/json", head.keeps_open)


async def _discard(reader: asyncio.StreamReader) -> int:
    """Discard what the other end still sends: after a reset it could not read why it was refused."""
    size = 0
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(LINGER_S):
            while size < LINGER_BYTES and (piece := await reader.read(PIECE)):
                size += len(piece)
    return size


def _cause(error: Exception) -> str:
    return "too-slow" if isinstance(error, TimeoutError) else "gone"


def _common_name(writer: asyncio.StreamWriter) -> str:
    """Of the certificate that the other end has shown."""
    subject = (writer.get_extra_info("peercert") or {}).get("subject", ())
    return next((value for pairs in subject for key, value in pairs if key == "commonName"), "")
