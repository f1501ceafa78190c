"""Stream the agent's messages to Kaiwo: lines of JSON in a long request, over TLS, with a token.

Never: sends the token unencrypted to another machine, or on this one to a program of another user; queues old samples,
       since only the newest matters. A sample waits until one is due, unless it says something new about health.
"""

import collections
import http.client
import ipaddress
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlsplit

import msgspec

from kaiwo.devices.agent.options import CheckListener
from kaiwo.devices.agent_messages import MEDIA_TYPE, GpuSample, Hello, Line, PortSample, Sample, encode_line
from kaiwo.model.errors import ClusterError, ConfigError

MAX_ANSWER = 65_536
ANSWER_S = 2.0  # how long to wait for the rest of a response that has started
_LENGTH = re.compile(rb"\r\nContent-Length: *(\d{1,6})", re.IGNORECASE)


class _Problem(msgspec.Struct):
    message: str


def read_answer(sock: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    """Head and body of a response. They arrive in pieces: over TLS each is a record."""
    deadline = time.monotonic() + ANSWER_S
    while data and len(data) < MAX_ANSWER and not _is_complete(data) and (left_s := deadline - time.monotonic()) > 0:
        sock.settimeout(left_s)
        try:
            more = sock.recv(16_384)
        except OSError:  # use what has arrived
            break
        if not more:
            break
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def answer_text(status: str, body: bytes) -> str:
    try:
        return f"{status}: {msgspec.json.decode(body, type=_Problem).message}"
    except msgspec.MsgspecError:
        return status


def _is_complete(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(end and length) and len(body) >= int(length[1] if length else 0)


PATH = "/api/agents/{node}/reports"
CONNECT_TIMEOUT_S = 10.0
STREAM_S = 900.0  # the length of a request; then the server confirms it, and the next one starts
SHORTEST_PART = 0.6  # of it: a thousand agents that began together must not all begin again together
UNHEARD_MS = 20_000  # what nobody has acknowledged for so long was sent to a machine that is gone
LISTEN_S = 1.0
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.5, 5.0
MAX_QUEUED = 1000
MAX_TOKEN = 65_536


def refuse_listener(connection: socket.socket) -> None:
    """Where nobody can tell who listens."""
    raise ClusterError("nobody checks who listens there, so nothing was sent; use https://")


class ReportTarget(msgspec.Struct, frozen=True):
    url: str
    node: str
    token_file: str = ""
    ca_file: str = ""
    token: str = ""
    every_s: float = 0.0  # between two samples that say nothing new about health


class ReportStream:
    """Sends messages on its own thread; `send` may be called from any thread."""

    def __init__(
        self,
        target: ReportTarget,
        hello: Callable[[], Hello],
        log: Callable[[str], None],
        check_listener: CheckListener = refuse_listener,
    ) -> None:
        """`check_listener`: asked about the other end of each connection without TLS, before anything is sent."""
        self._target, self._hello, self._log, self._check_listener = target, hello, log, check_listener
        parts = urlsplit(target.url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ConfigError(f"'{target.url}' is not an address; write it like https://kaiwo.example:8443", "server")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ConfigError(f"{target.url}: the token is only sent over TLS; use https://", "server")
        self._parts = parts
        self._sample: Sample | None = None
        self._held = 0  # samples that this one stands for
        self._due = 0.0  # by the monotonic clock: when a sample is sent although it says nothing new
        self._is_news = False
        self._said_conditions: tuple[object, ...] = ()
        self._queued: collections.deque[Line] = collections.deque(maxlen=MAX_QUEUED)
        self._unconfirmed: list[Line] = []  # sent, but not yet confirmed by the server
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, line: Line) -> None:
        """Queue a message, without blocking. A sample replaces one that has not been sent."""
        with self._changed:
            if isinstance(line, Sample):
                self._held += 1
                self._sample = line if self._sample is None else _with_mean_traffic(self._sample, line, self._held)
                self._is_news = self._is_news or _conditions(line) != self._said_conditions
                if not self._is_sample_due():
                    return
            else:
                self._queued.append(line)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(CONNECT_TIMEOUT_S)

    def _run(self) -> None:
        wait_s = MIN_BACKOFF_S
        while not self._is_closed:
            began = time.monotonic()
            try:
                self._request()
                wait_s = MIN_BACKOFF_S
                continue
            except Exception as error:  # edge of the loop: if the thread ended, the node would be silent forever
                with self._changed:  # unconfirmed messages must arrive, even if twice
                    self._queued.extendleft(reversed(self._unconfirmed))
                    self._unconfirmed.clear()
                self._log(f"the stream to {self._target.url} failed: {error}; retrying")
            if time.monotonic() - began > MAX_BACKOFF_S:
                wait_s = MIN_BACKOFF_S  # it worked for a while, so start the back-off again
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, wait_s)
            wait_s = min(2 * wait_s, MAX_BACKOFF_S)

    def _request(self) -> None:
        connection = self._connect()
        try:
            self._begin(connection)
            self._write(connection, self._hello())
            self._due = 0.0
            deadline = time.monotonic() + random.uniform(SHORTEST_PART, 1.0) * STREAM_S
            while time.monotonic() < deadline and not self._is_closed:
                for line in self._next(deadline):
                    self._write(connection, line)
                self._listen(connection)
            connection.send(b"0\r\n\r\n")
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER)
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise ClusterError(answer_text(f"{answer.status} {answer.reason}", body))
        self._unconfirmed.clear()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
            try:
                connection.connect()
                self._check_listener(connection.sock)
            except BaseException:
                connection.close()
                raise
            return connection
        trust = ssl.create_default_context(cafile=self._target.ca_file or None)
        if self._target.ca_file:
            trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file may contain the server's own certificate
        secure = http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT_S, context=trust)
        try:
            secure.connect()
            # Little is sent, so a machine that is gone would be noticed late.
            secure.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)
        except BaseException:
            secure.close()
            raise
        return secure

    def _begin(self, connection: http.client.HTTPConnection) -> None:
        connection.putrequest(
            "POST", self._parts.path.rstrip("/") + PATH.format(node=quote(self._target.node, safe=""))
        )
        connection.putheader("Content-Type", MEDIA_TYPE)
        connection.putheader("Transfer-Encoding", "chunked")
        if token := self._token():
            connection.putheader("Authorization", f"Bearer {token}")
        connection.endheaders()

    def _token(self) -> str:
        """The token, read for every request because it may be renewed."""
        if not self._target.token_file:
            return self._target.token
        with open(self._target.token_file, encoding="utf-8", errors="replace") as file:
            token = file.read(MAX_TOKEN).strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ClusterError(f"{self._target.token_file} does not contain a token on a single line")
        return token

    def _next(self, deadline: float) -> list[Line]:
        """Wait for messages, at most until it is time to listen."""
        with self._changed:
            wait_s = min(LISTEN_S, max(0.0, deadline - time.monotonic()))
            self._changed.wait_for(lambda: self._is_closed or self._is_sample_due() or self._queued, wait_s)
            lines: list[Line] = [*self._queued]
            self._queued.clear()
            self._unconfirmed += lines
            if self._sample is not None and self._is_sample_due():
                lines.append(self._sample)
                self._said_conditions = _conditions(self._sample)
                self._sample, self._held, self._is_news = None, 0, False
                self._due = time.monotonic() + self._target.every_s
            return lines

    def _is_sample_due(self) -> bool:
        return self._sample is not None and (self._is_news or time.monotonic() >= self._due)

    def _write(self, connection: http.client.HTTPConnection, line: Line) -> None:
        data = encode_line(line)
        try:
            connection.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        except OSError:
            self._listen(connection)  # the server may have sent the reason
            raise

    @staticmethod
    def _listen(connection: http.client.HTTPConnection) -> None:
        """Raise if the server answers before the request ends: it refuses, or it closes the connection."""
        connection.sock.settimeout(0)
        try:
            # recv, not select: TLS control messages between the lines are handled by the library and are no answer.
            data = connection.sock.recv(16_384)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        finally:
            connection.sock.settimeout(CONNECT_TIMEOUT_S)
        head, body = read_answer(connection.sock, data)
        first = head.partition(b"\r\n")[0].decode("latin-1")
        raise ClusterError(answer_text(first.partition(" ")[2] or "the server closed the connection", body))


def _conditions(sample: Sample) -> tuple[object, ...]:
    """What must be known at once. An error event says something new each time."""
    gpus = tuple((gpu.id, gpu.health, gpu.reason, gpu.oversubscribed, gpu.xids) for gpu in sample.gpus)
    return (*gpus, *((port.device, port.number, port.is_up) for port in sample.ports), *sample.notes)


def _with_mean_traffic(before: Sample, after: Sample, held: int) -> Sample:
    """The last sample, with the mean traffic and all error events of those that it stands for."""
    ports, gpus = {(port.device, port.number): port for port in before.ports}, {gpu.id: gpu for gpu in before.gpus}
    return msgspec.structs.replace(
        after,
        ports=tuple(_mean_port(ports.get((port.device, port.number)), port, held) for port in after.ports),
        gpus=tuple(
            msgspec.structs.replace(gpu, xids=(*gpus[gpu.id].xids, *gpu.xids)) if _has_xids(gpus, gpu.id) else gpu
            for gpu in after.gpus
        ),
    )


def _has_xids(gpus: Mapping[str, GpuSample], name: str) -> bool:
    return name in gpus and bool(gpus[name].xids)


def _mean_port(before: PortSample | None, after: PortSample, held: int) -> PortSample:
    if before is None:
        return after
    sent = _mean(before.sent_mb_s, after.sent_mb_s, held)
    return msgspec.structs.replace(
        after, sent_mb_s=sent, received_mb_s=_mean(before.received_mb_s, after.received_mb_s, held)
    )


def _mean(before: int | None, after: int | None, held: int) -> int | None:
    return after if before is None or after is None else before + (after - before) // held


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
