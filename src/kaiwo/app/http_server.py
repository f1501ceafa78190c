"""Serve an ASGI application over HTTP or HTTPS, and write its address to KAIWO_HOME/server.json for the CLI.

The process keeps its own signal handlers, and a clean end removes server.json.
"""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from kaiwo.model.errors import ClusterError, ConfigError

SERVER_FILE = "server.json"
MAX_CONNECTIONS = 4000  # each node's agent keeps one open
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


class _ServerWithoutSignals(uvicorn.Server):
    """The process handles its signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    def __init__(self, server: uvicorn.Server, task: "asyncio.Task[None]", on_stop: Callable[[], None]) -> None:
        self._server, self._task, self._on_stop = server, task, on_stop
        self._file: Path | None = None

    def announce(self, home: str, url: str, ca: str = "") -> None:
        path = Path(home) / SERVER_FILE
        temporary = path.with_name(f".{SERVER_FILE}.{os.getpid()}")
        try:
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
        await asyncio.gather(self._task, return_exceptions=True)

    def _remove_file(self) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if msgspec.json.decode(self._file.read_bytes(), type=ServerFile).pid == os.getpid():
                self._file.unlink()
        self._file = None


async def serve(
    app: Any, host: str, port: int, home: str = "", on_stop: Callable[[], None] = lambda: None, tls: Tls = NO_TLS
) -> tuple[Server, str]:
    """Start a server. `on_stop` is called first when it stops, to end open streams."""
    check_tls(tls)
    if not (host in ("localhost", "::1") or host.startswith("127.")):
        raise_file_limit()  # agents of other machines may connect; a purely local Kaiwo keeps the system's limit
    listener = _listen(host, port)
    url = f"{'https' if tls.certificate else 'http'}://{_host_in_url(host)}:{listener.getsockname()[1]}"
    config = _config(app, lifespan="on", ssl_certfile=tls.certificate or None, ssl_keyfile=tls.key or None)
    server = await _begin(config, listener, on_stop)
    try:
        if home:
            server.announce(home, url, os.path.abspath(tls.certificate) if tls.certificate else "")
    except BaseException:
        await server.stop()
        raise
    return server, url


async def serve_over_tls(
    app: Any, host: str, port: int, context: ssl.SSLContext, on_stop: Callable[[], None] = lambda: None
) -> tuple[Server, int]:
    """Serve a running application on one more port, over TLS with certificates that may change. Returns the port."""
    listener = _listen(host, port)
    config = _config(app, lifespan="off")
    config.load()
    config.ssl = context
    return await _begin(config, listener, on_stop), int(listener.getsockname()[1])


def _config(app: Any, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=SHUTDOWN_S,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=64 * 1024,
        **options,
    )


async def _begin(config: uvicorn.Config, listener: socket.socket, on_stop: Callable[[], None]) -> Server:
    inner = _ServerWithoutSignals(config)
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


def raise_file_limit() -> None:
    """Raise the limit of open files: each connected agent needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * MAX_CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
