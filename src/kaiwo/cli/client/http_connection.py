"""A small HTTP/1.1 client; the body of a response is read at once, in parts, or line by line.

Never: reuses a connection, follows a redirect, uses a proxy, or sends anything before it knows who listens.
Why not http.client: importing it costs 28 ms of the 150 ms in which every verb must start.
"""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kaiwo.app.options import SOCKET
from kaiwo.cli.client.peer_user import is_on_loopback, user_behind_socket, users_behind_port

LONGEST_LINE = 64 * 1024
MAX_HEADERS = 100
PART = 64 * 1024


class ServerTrust(NamedTuple):
    """How a server is authenticated: over TLS by its certificate, on this machine by its user."""

    ca_file: str = ""  # CA certificates, instead of the system's
    pinned: str = ""  # exactly this certificate, whatever its host name; it comes from the server's home folder
    users: frozenset[int] = frozenset()  # who may run it on this machine


TRUST_NOBODY = ServerTrust()


class ServerAddress(NamedTuple):
    host: str
    port: int
    is_tls: bool = False
    folder: str = ""  # a folder with a socket: it is used instead of the host and the port


class StrangerError(Exception):
    """Nothing was sent, because the other end could not be trusted: the fact, and what to do."""

    def __init__(self, fact: str, todo: str) -> None:
        super().__init__(f"{fact}; {todo}")
        self.fact, self.todo = fact, todo


class HttpError(Exception):
    """The response is not HTTP, or ends early (`is_truncated`)."""

    def __init__(self, fact: str, is_truncated: bool = False) -> None:
        super().__init__(fact)
        self.is_truncated = is_truncated


class HttpResponse:
    """The status and headers of a response, and a body that is still arriving."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")
        self.status = _parse_status(self._read_line())
        self.headers = dict(self._read_headers())
        self._is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length", "")
        self._unread = int(length) if length.isdecimal() else -1  # -1: until the other side closes

    def read(self) -> bytes:
        return b"".join(self.parts())

    def parts(self) -> Iterator[bytes]:
        """The body as it arrives."""
        if self._is_chunked:
            while size := self._read_chunk_size():
                chunk = self._file.read(size)
                if len(chunk) < size:
                    raise HttpError("the response ends too early", is_truncated=True)
                yield chunk
                self._read_line()
            self._read_line()
        elif self._unread >= 0:
            while self._unread:
                part = self._file.read1(min(self._unread, PART))
                if not part:
                    raise HttpError("the response ends too early", is_truncated=True)
                self._unread -= len(part)
                yield part
        else:
            while part := self._file.read1(PART):
                yield part

    def lines(self) -> Iterator[bytes]:
        rest = b""
        for part in self.parts():
            *whole, rest = (rest + part).split(b"\n")
            yield from (line.rstrip(b"\r") for line in whole)
        if rest:
            yield rest

    def close(self) -> None:
        self._file.close()
        self._connection.close()

    def __enter__(self) -> "HttpResponse":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_headers(self) -> Iterator[tuple[str, str]]:
        for _ in range(MAX_HEADERS):
            line = self._read_line()
            if not line:
                return
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise HttpError("a header without a colon")
            yield name.strip().lower(), value.strip()
        raise HttpError("too many headers")

    def _read_chunk_size(self) -> int:
        try:
            return int(self._read_line().partition(b";")[0], 16)
        except ValueError:
            raise HttpError("a chunk without a size") from None

    def _read_line(self) -> bytes:
        line = self._file.readline(LONGEST_LINE)
        if not line:
            raise HttpError("the response ends too early", is_truncated=True)
        if not line.endswith(b"\n"):
            raise HttpError("a line without an end")
        return line.rstrip(b"\r\n")


def send_request(
    method: str,
    address: ServerAddress,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    timeout_s: float | None = 30,
    may_be_silent: bool = False,
    trust: ServerTrust = TRUST_NOBODY,
) -> HttpResponse:
    """Send one request to a server that `trust` accepts, and read the head of its answer.

    `may_be_silent`: for hours. Raises StrangerError, before anything is sent, if the server is not trusted.
    """
    connection = _connect_socket(address.folder, timeout_s) if address.folder else _connect_port(address, timeout_s)
    try:
        if address.folder:
            _check_users({user_behind_socket(connection)}, trust, os.path.join(address.folder, SOCKET))
        elif address.is_tls:
            connection = _start_tls(connection, address.host, trust)
        elif is_on_loopback(connection):
            check_listener(connection, trust)
        elif "Authorization" in headers:
            where = f"{address.host}:{address.port}"
            raise StrangerError(
                f"the token is never sent to another machine without encryption ({where})",
                "serve Kaiwo with --tls-cert, and use https",
            )
        # A server that stops reading a large body may have said why, so read its answer.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(_request_head(method, address, target, headers, body) + body)
        answer = HttpResponse(connection)
        if may_be_silent:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return answer
    except BaseException:
        connection.close()
        raise


def check_listener(connection: socket.socket, trust: ServerTrust) -> None:
    """Raise StrangerError if a user whom `trust` does not name listens at the other end, on this machine."""
    _check_users(users_behind_port(connection), trust, f"port {connection.getpeername()[1]} of this machine")


def _connect_port(address: ServerAddress, timeout_s: float | None) -> socket.socket:
    # As bytes: for text Python imports the IDNA codec, which takes 1 ms and an ASCII name does not need.
    host = address.host.encode() if address.host.isascii() else address.host
    return socket.create_connection((host, address.port), timeout_s)  # type: ignore[arg-type]


def _connect_socket(folder: str, timeout_s: float | None) -> socket.socket:
    """Connect through the folder's descriptor: a socket path is limited to 107 bytes, and a home may be deeper."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{at}/{SOCKET}")
        finally:
            os.close(at)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_users(users: set[int], trust: ServerTrust, where: str) -> None:
    if strangers := users - trust.users:
        whose = "an unknown user" if min(strangers) < 0 else f"another user (uid {min(strangers)})"
        raise StrangerError(
            f"{where} belongs to {whose}, so nothing was sent",
            "start your own with: kaiwo up, or name the user whose Kaiwo you trust in KAIWO_SERVER_USER",
        )


def _start_tls(connection: socket.socket, host: str, trust: ServerTrust) -> socket.socket:
    import ssl

    context = ssl.create_default_context(cafile=trust.ca_file or trust.pinned or None)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = not trust.pinned or bool(trust.ca_file)
    return context.wrap_socket(connection, server_hostname=host)


def _request_head(method: str, address: ServerAddress, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}:{address.port}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise HttpError("a request header contains a line break; check the token")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _parse_status(line: bytes) -> int:
    version, _, rest = line.partition(b" ")
    number = rest[:3]
    if not version.startswith(b"HTTP/1.") or not number.isdigit():
        raise HttpError("the response is not HTTP")
    return int(number)
