"""Accept connections and speak HTTP on those that the gate admits: uvicorn's protocol, with bounds.

uvicorn and asyncio have no time limit for a request's head, for the rest of a request, for reading an answer or for
all connections of one peer; asyncio accepts as many connections at once as there are, and writes a traceback for each
that finds no file descriptor. So this accepts them itself, a few at a time.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from kaiwo.api.http.connection_counts import CloseCause
from kaiwo.app.connection_gate import (
    HEAD_S,
    REST_BYTES,
    REST_S,
    SWEEP_S,
    UNREAD_BYTES_PER_S,
    UNREAD_S,
    ConnectionGate,
    Place,
)
from kaiwo.runtime.log import flush_limited

ACCEPTED_AT_ONCE = 16
FULL_S = 0.05  # until the next look whether there is room
NO_DESCRIPTOR_S = 0.2
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SEND_BYTES = 256 * 1024  # of one connection in the kernel, which would otherwise take up to 4 MB


class HttpConnection(H11Protocol):
    """HTTP on one connection, which tells the gate what it waits for."""

    def __init__(self, config: uvicorn.Config, state: ServerState, app_state: dict[str, Any], gate: ConnectionGate,
                 place: Place) -> None:  # fmt: skip
        super().__init__(config, state, app_state)
        self._gate, self._place = gate, place
        self._rest_bytes = 0  # of a request that is answered already
        self._head = b""  # bytes that wait for their turn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place.close = transport.abort
        self._place.unread_bytes = transport.get_write_buffer_size

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.release(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_served:
            super().data_received(data)
        elif self._owes_rest:
            self._drop_rest(data)
        else:
            self._gate.sends_head(self._place)
            self._head += data
            if not self._gate.begin(self._begin):
                self.flow.pause_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tell_gate()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._gate.reads(self._place, False)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._gate.reads(self._place, True)

    @property
    def _is_served(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _owes_rest(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    def _begin(self) -> None:
        data, self._head = self._head, b""
        if not data or self.transport.is_closing():
            return
        self.flow.resume_reading()
        super().data_received(data)
        if self._is_served:
            self._gate.is_served(self._place)

    def _drop_rest(self, data: bytes) -> None:
        self._rest_bytes += len(data)
        if self._rest_bytes > REST_BYTES:
            self._gate.note(CloseCause.SLOW_SENDER)
            self.transport.abort()
            return
        super().data_received(data)
        if not self._owes_rest:
            self._tell_gate()
        elif not self._gate.drop(self.flow.resume_reading):
            self.flow.pause_reading()

    def _tell_gate(self) -> None:
        """A request was answered."""
        if self._is_served:  # the next one had arrived already
            self._gate.is_served(self._place)
        elif self._owes_rest:
            self._rest_bytes = 0
            self._gate.waits(self._place, CloseCause.SLOW_SENDER, REST_S)
        elif unread := self.transport.get_write_buffer_size():
            self._gate.waits(self._place, CloseCause.SLOW_READER, UNREAD_S + unread / UNREAD_BYTES_PER_S)
        else:
            self._gate.waits(self._place, CloseCause.SILENT, None)  # uvicorn ends it after a while


class Acceptor:
    """Accepts the connections of one listener. uvicorn closes it like a server of asyncio."""

    def __init__(
        self,
        listener: socket.socket,
        gate: ConnectionGate,
        new_connection: Callable[[Place], asyncio.Protocol],
        ssl: Any = None,
        is_allowed: Callable[[socket.socket], bool] = lambda connection: True,
    ) -> None:
        self._listener, self._gate, self._new_connection = listener, gate, new_connection
        self._ssl, self._is_allowed = ssl, is_allowed
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None  # set while nothing is accepted
        self._loop.add_reader(listener, self._accept_some)
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._listener)
        self._sweep_timer.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        flush_limited(is_last=True)

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept_some(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._gate.has_room:
                return self._pause(FULL_S)
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return None
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                self._gate.free_descriptor()
                return self._pause(NO_DESCRIPTOR_S)
            self._take(connection, address[0] if isinstance(address, tuple) else "")
        return None

    def _take(self, connection: socket.socket, address: str) -> None:
        place = self._gate.admit(address) if self._is_allowed(connection) else None
        if place is None:
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._connect(connection, place))
        place.close = task.cancel  # until the connection is made; with TLS that takes a while
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, place: Place) -> None:
        options = {"ssl_handshake_timeout": HEAD_S} if self._ssl else {}
        try:
            make = lambda: self._new_connection(place)  # noqa: E731
            await self._loop.connect_accepted_socket(make, connection, ssl=self._ssl, **options)
        except (OSError, EOFError, asyncio.CancelledError):  # a handshake that failed, took too long or lost its place
            self._gate.release(place)
            connection.close()

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener, self._accept_some)

    def _sweep(self) -> None:
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        self._gate.sweep()
        flush_limited()


class HttpServer(uvicorn.Server):
    """uvicorn with an acceptor of ours; the process handles its signals itself."""

    def __init__(
        self,
        config: uvicorn.Config,
        gate: ConnectionGate,
        is_allowed: Callable[[socket.socket], bool] = lambda connection: True,
    ) -> None:
        super().__init__(config)
        self._gate, self._is_allowed = gate, is_allowed

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(uvicorn.config.STARTUP_FAILURE)

        def new_connection(place: Place) -> asyncio.Protocol:
            return HttpConnection(self.config, self.server_state, self.lifespan.state, self._gate, place)

        acceptors: list[Any] = [  # uvicorn only closes them
            Acceptor(each, self._gate, new_connection, self.config.ssl, self._is_allowed) for each in sockets or ()
        ]
        self.servers = acceptors
        self.started = True
