"""Call the API of a running Kaiwo over HTTP; every failure becomes a KaiwoError of one sentence that says what to do.

Never: retries a write that may have succeeded; one that was refused with 429 is sent again later.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from kaiwo import __version__
from kaiwo.api.views.answers import Problem
from kaiwo.cli.client.http_connection import (
    TRUST_NOBODY,
    HttpError,
    HttpResponse,
    ServerAddress,
    ServerTrust,
    StrangerError,
    send_request,
)
from kaiwo.model.errors import ClusterError, ConfigError, KaiwoError, NotFoundError, RefusedError

T = TypeVar("T")
Query = Mapping[str, str | int | Sequence[str]]

BASE = "/api/v1"
TOO_MANY = 429
MAX_RETRY_S = 60.0  # the longest wait in total while the server answers 429
LONGEST_PAUSE_S = 10.0


class NoServerError(ClusterError):
    """No Kaiwo answers at this address: the fact, and what to do about it."""

    def __init__(self, fact: str, todo: str) -> None:
        super().__init__(f"{fact}; {todo}")
        self.fact, self.todo = fact, todo


class LostServerError(ClusterError):
    """The server closed the connection before the end of its answer."""


class MayBePending(Protocol):
    """An answer that may say that it is still being computed."""

    @property
    def is_pending(self) -> bool: ...


class ApiClient(msgspec.Struct):
    """One running Kaiwo. Every request has its own connection."""

    url: str
    token: str
    url_source: str  # --server, KAIWO_SERVER, or the path of a server.json
    timeout_s: float = 30
    token_source: str = ""  # KAIWO_TOKEN, or the path of a token file
    trust: ServerTrust = TRUST_NOBODY
    socket_folder: str = ""  # has the server's socket, which is used instead of the URL; empty: none

    def get(self, path: str, query: Query | None = None) -> bytes:
        return self._read(self.open("GET", path, query))

    def get_when_ready(
        self, path: str, kind: type[MayBePending], patience_s: float, query: Query | None = None
    ) -> bytes:
        """Ask again while the server, which waits for a while each time, still computes the answer."""
        deadline = time.monotonic() + patience_s
        while True:
            body = self.get(path, query)
            if not self.decode(body, kind).is_pending or time.monotonic() > deadline:
                return body

    def send(self, method: str, path: str, query: Query | None = None, body: bytes = b"", mime: str = "") -> bytes:
        return self._read(self.open(method, path, query, body, {"Content-Type": mime} if mime else {}))

    def post(self, path: str, form: Any, query: Query | None = None) -> bytes:
        """POST this form as JSON."""
        return self.send("POST", path, query, msgspec.json.encode(form), "application/json")

    def open(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        may_be_silent: bool = False,
    ) -> HttpResponse:
        """Send a request; the body is still to be read. `may_be_silent`: for hours."""
        parts = urlsplit(self.url)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        address = ServerAddress(parts.hostname or "", port, is_tls, self.socket_folder)
        target = parts.path + BASE + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        sent = {"User-Agent": f"kaiwo/{__version__}", **(headers or {})}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        until = time.monotonic() + MAX_RETRY_S
        while True:
            try:
                answer = send_request(method, address, target, sent, body, self.timeout_s, may_be_silent, self.trust)
            except StrangerError as error:
                raise NoServerError(error.fact, error.todo) from error
            except (OSError, HttpError) as error:
                raise self.connection_error(error) from error
            pause_s = _retry_after_s(answer)
            if answer.status != TOO_MANY or may_be_silent or time.monotonic() + pause_s > until:
                break
            answer.close()
            time.sleep(pause_s)
        if answer.status >= 300:
            raise self._read_problem(answer)
        return answer

    def decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise self._unexpected_answer(str(error)) from error

    def convert(self, items: Any, kind: type[T]) -> T:
        try:
            return msgspec.convert(items, kind)
        except msgspec.ValidationError as error:
            raise self._unexpected_answer(str(error)) from error

    def connection_error(self, error: Exception) -> KaiwoError:
        """The error of a connection as a KaiwoError that says what to do."""
        if isinstance(error, ConnectionRefusedError):
            return self._no_answer("connection refused")
        if isinstance(error, TimeoutError):
            late = f"{self.url} did not answer within {self.timeout_s:g} s"
            return NoServerError(late, "check whether it is running with: kaiwo doctor")
        if isinstance(error, ConnectionError) or (isinstance(error, HttpError) and error.is_truncated):
            lost = f"{self.url} closed the connection before its answer was complete"
            return LostServerError(f"{lost}; check with: kaiwo status")
        if isinstance(error, OSError):
            return self._no_answer((error.strerror or str(error)).lower())
        return self._unexpected_answer(str(error))

    def _read(self, response: HttpResponse) -> bytes:
        try:
            with response:
                return response.read()
        except (OSError, HttpError) as error:
            raise self.connection_error(error) from error

    def _read_problem(self, response: HttpResponse) -> KaiwoError:
        body = self._read(response)
        try:
            problem = msgspec.json.decode(body, type=Problem)
        except msgspec.DecodeError:
            return self._unexpected_answer(f"HTTP {response.status}")
        # The server's message about a wrong token is written for API clients; that about an ended one is for people.
        is_wrong = response.status == 401 and problem.field != "token"
        return ClusterError(self._unauthorized_message()) if is_wrong else problem_error(problem)

    def _unauthorized_message(self) -> str:
        if self.token_source == "KAIWO_TOKEN":
            return f"the token in KAIWO_TOKEN is wrong; set it to the token of the kaiwo at {self.url}, or unset it"
        fact = f"the token from {self.token_source} is wrong" if self.token else "this needs a token"
        return f"{fact}; give the home folder of the kaiwo at {self.url} with --home, or set KAIWO_TOKEN"

    def _no_answer(self, why: str) -> NoServerError:
        if self.url_source.endswith("server.json"):
            fact = f"no kaiwo is running (looked in {self.url_source}: {self.url}, {why})"
            return NoServerError(fact, "start one with: kaiwo up")
        fact = f"nothing answers at {self.url} ({why})"
        return NoServerError(fact, f"check {self.url_source}, or start kaiwo with: kaiwo up")

    def _unexpected_answer(self, fact: str) -> ClusterError:
        return ClusterError(
            f"{self.url} does not answer like kaiwo {__version__} ({fact}); "
            "another program may use this port, or the versions differ; check with: kaiwo doctor"
        )


def problem_error(problem: Problem) -> KaiwoError:
    match problem.kind:
        case "invalid":
            return ConfigError(problem.message, problem.field)
        case "refused":
            return RefusedError(problem.message, problem.field)
        case "not-found":
            return NotFoundError(problem.message)
        case _:
            return ClusterError(problem.message)


def _retry_after_s(answer: HttpResponse) -> float:
    text = answer.headers.get("retry-after", "")
    return min(float(text), LONGEST_PAUSE_S) if text.isdecimal() else 1.0


def workload_path(full_name: str) -> str:
    """`/workloads/namespace/name`, quoted."""
    namespace, _, name = full_name.partition("/")
    return f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"


def object_path(kind: str, name: str) -> str:
    """`/nodes/name`, `/queues/name`, quoted."""
    return f"/{kind}/{quote(name, safe='')}"
