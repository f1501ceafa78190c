"""Serve an ASGI application over HTTP or HTTPS, and through a socket in KAIWO_HOME for the CLI of its owner.

KAIWO_HOME/server.json has the address. The process keeps its own signal handlers, and a clean end removes both files.
"""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from kaiwo.api.http.connection_counts import ConnectionCounts
from kaiwo.app.connection_gate import ConnectionGate, Limits
from kaiwo.app.http_connections import SEND_BYTES, HttpServer
from kaiwo.app.owner_socket import OwnerSocket, is_of_owner
from kaiwo.clusters.local.open_files import raise_open_files
from kaiwo.model.errors import ClusterError, ConfigError

SERVER_FILE = "server.json"
MAX_CONNECTIONS = 4000  # each node's agent keeps one open
MAX_WAITING = 256  # of those, without a request; with one a second and a half, this takes 10,000 silent ones a minute
OWNER_LIMITS = Limits(open=512, waiting=128, of_address=512)  # beside those of the port
SHUTDOWN_S = 1  # uvicorn counts whole seconds; `on_stop` has ended the open streams by then


class ServerFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """server.json: what the CLI reads to find the server."""

    url: str
    pid: int
    ca: str = ""  # with https: the certificate to trust


class Tls(msgspec.Struct, frozen=True):
    """PEM files; the key may be in the certificate's file."""

    certificate: str = ""  # empty: no TLS
    key: str = ""


NO_TLS = Tls()


class Server:
    def __init__(self, server: uvicorn.Server, task: "asyncio.Task[None]", on_stop: Callable[[], None]) -> None:
        self._server, self._task, self._on_stop = server, task, on_stop
        self._file: Path | None = None
        self._for_owner: Server | None = None  # serves the socket

    async def serve_owner(self, app: Any, home: str) -> None:
        """Serve the CLI through a socket in this folder, with connections of its own to count."""
        own = OwnerSocket(home)
        gate = ConnectionGate(OWNER_LIMITS, ConnectionCounts())
        inner = HttpServer(_config(app, lifespan="off"), gate, is_of_owner)
        self._for_owner = await _begin(inner, own.listener, own.remove)

    def announce(self, home: str, url: str, ca: str = "") -> None:
        path = Path(home) / SERVER_FILE
        temporary = path.with_name(f".{SERVER_FILE}.{os.getpid()}")
        try:
            temporary.touch(mode=0o600)
            temporary.write_bytes(msgspec.json.encode(ServerFile(url, os.getpid(), ca)))
            os.replace(temporary, path)
        except OSError as error:
            raise ClusterError(
                f"{path} cannot be written ({error.strerror}); make room, or name another KAIWO_HOME"
            ) from error
        self._file = path

    async def stop(self) -> None:
        """Open responses get at most two seconds to end."""
        self._remove_file()
        self._on_stop()
        self._server.should_exit = True
        if self._for_owner is not None:
            await self._for_owner.stop()
        await asyncio.gather(self._task, return_exceptions=True)

    def _remove_file(self) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if msgspec.json.decode(self._file.read_bytes(), type=ServerFile).pid == os.getpid():
                self._file.unlink()
        self._file = None


async def serve(
    app: Any,
    host: str,
    port: int,
    home: str = "",
    on_stop: Callable[[], None] = lambda: None,
    tls: Tls = NO_TLS,
    counts: ConnectionCounts | None = None,
) -> tuple[Server, str]:
    """Start a server. `on_stop` is called first when it stops, to end open streams."""
    check_tls(tls)
    listener = _listen(host, port)
    url = f"{'https' if tls.certificate else 'http'}://{_host_in_url(host)}:{listener.getsockname()[1]}"
    config = _config(app, lifespan="on", ssl_certfile=tls.certificate or None, ssl_keyfile=tls.key or None)
    server = await _begin(HttpServer(config, _gate(counts)), listener, on_stop)
    try:
        if home:
            await server.serve_owner(app, home)
            server.announce(home, url, os.path.abspath(tls.certificate) if tls.certificate else "")
    except BaseException:
        await server.stop()
        raise
    return server, url


async def serve_over_tls(
    app: Any,
    host: str,
    port: int,
    context: ssl.SSLContext,
    on_stop: Callable[[], None] = lambda: None,
    counts: ConnectionCounts | None = None,
) -> tuple[Server, int]:
    """Serve a running application on one more port, over TLS with certificates that may change. Returns the port."""
    listener = _listen(host, port)
    config = _config(app, lifespan="off")
    config.load()
    config.ssl = context
    return await _begin(HttpServer(config, _gate(counts)), listener, on_stop), int(listener.getsockname()[1])


def _gate(counts: ConnectionCounts | None) -> ConnectionGate:
    """Half of the descriptors are for connections; the owner's socket, jobs, logs and the journal have the others."""
    most = min(MAX_CONNECTIONS, raise_open_files() // 2)
    return ConnectionGate(Limits(most, min(MAX_WAITING, most // 2), most // 2), counts or ConnectionCounts())


def _config(app: Any, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        loop="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=SHUTDOWN_S,
        h11_max_incomplete_event_size=64 * 1024,
        http="h11",
        **options,
    )


async def _begin(inner: HttpServer, listener: socket.socket, on_stop: Callable[[], None]) -> Server:
    task = asyncio.create_task(inner.serve(sockets=[listener]), name="kaiwo-http")
    while not inner.started:
        if task.done():
            listener.close()
            task.result()
            raise ClusterError("the HTTP server did not start; see the log")
        await asyncio.sleep(0.005)
    return Server(inner, task, on_stop)


def check_tls(tls: Tls) -> None:
    if tls.key and not tls.certificate:
        raise ConfigError("--tls-key needs a certificate; give --tls-cert too", "--tls-cert")
    if not tls.certificate:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key or None, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        fact = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{tls.certificate} and its key cannot be used for TLS ({fact}); give both as PEM, the key unencrypted",
            "--tls-cert",
        ) from None


def check_exposure(host: str, tls: Tls, is_insisted: bool) -> None:
    """Refuse to serve other machines in the clear, unless that is insisted on: anyone on the way could read tokens."""
    if tls.certificate or is_insisted or is_local(host):
        return
    raise ConfigError(
        f"--host {host} lets other machines connect, and without TLS their tokens can be read on the way; "
        "give --tls-cert, or insist with --insecure-http",
        "--host",
    )


def is_local(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"there is no address for the host '{host}' ({error}); try --host 127.0.0.1", "--host"
        ) from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # connections inherit it
        listener.bind(address)
        listener.listen(512)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ClusterError(_explain_listen_error(host, port, error)) from error
    return listener


def _explain_listen_error(host: str, port: int, error: Exception) -> str:
    code = getattr(error, "errno", None)
    if code == errno.EADDRINUSE:
        return f"port {port} on {host} is taken by another program; choose another with --port, or any with --port 0"
    if code == errno.EACCES:
        return f"you may not use port {port}; choose one above 1023 with --port"
    if code == errno.EADDRNOTAVAIL:
        return f"this machine has no address {host}; try --host 127.0.0.1"
    return f"cannot listen on {host} port {port} ({error}); choose another with --port"


def _host_in_url(host: str) -> str:
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host
