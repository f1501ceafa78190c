"""The connection to one API server: calls with credentials, TLS, timeouts, retries and a limit of concurrent writes.

In:    a path and bytes.   Out: bytes, or an ApiError or UnreachableError that names the call.
Never: repeats a write that the server refused for good, waits forever, or writes for longer than it is allowed to.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import msgspec
from yarl import URL

import kaiwo
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential
from kaiwo.clusters.kubernetes.client.errors import ApiError, StandbyError, UnreachableError, read_status
from kaiwo.clusters.kubernetes.client.write_records import describe_write
from kaiwo.model.cluster_write import ClusterWrite, ignore_write
from kaiwo.model.errors import ClusterError

CONNECT_S = 5.0
CALL_S = 30.0
CHECK_S = 10.0
WRITES = 64  # concurrent; the server allows one client about as many
TRIES = 6  # about six seconds with the pauses between them
JSON = "application/json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML too
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# The server would compress every list, which costs both sides more time than it saves on a cluster's network.
HEADERS = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": f"kaiwo/{kaiwo.__version__}"}

Params = Mapping[str, str]


class ApiRequest(NamedTuple):
    method: str
    path: str
    params: Params | None = None
    body: bytes | None = None
    content_type: str = JSON

    def __str__(self) -> str:
        return f"{'watch' if self.params and 'watch' in self.params else self.method} {self.path}"


class Client:
    """Calls one API server as one user. Call `close` at the end."""

    def __init__(
        self, access: ClusterAccess, writes: int = WRITES, may_write_s: Callable[[], float] = lambda: CALL_S
    ) -> None:
        self.access = access
        self.account = access.name  # whose credential is used, for the audit
        self.on_write: Callable[[ClusterWrite], None] = ignore_write
        self._may_write_s = may_write_s  # how long writes are still allowed; zero or less: not at all
        self._writes = asyncio.Semaphore(writes)
        self._unanswered_writes = 0
        self._pool: aiohttp.ClientSession | None = None
        self._pool_owner: tuple[bytes, bytes] = (b"", b"")  # client certificate and key

    async def read(
        self, path: str, params: Params | None = None, timeout_s: float = CALL_S, tries: int = TRIES
    ) -> bytes:
        """GET, retried while the server is busy or unreachable."""
        return await self._retry(ApiRequest("GET", path, params), timeout_s, tries)

    async def write(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        params: Params | None = None,
        tries: int = TRIES,
        reason: str = "",
    ) -> bytes:
        """Send a change. With several tries it must be safe to repeat, or the caller must handle the refusal.

        `reason`: why it is made, for the audit.
        """
        failure: Exception | None = None
        try:
            async with self._writes:
                return await self._retry(ApiRequest(method, path, params, body, content_type), CALL_S, tries)
        except (ApiError, UnreachableError) as error:
            failure = error
            raise
        finally:
            if (write := describe_write(method, path, body, reason, self.account, failure)) is not None:
                self.on_write(write)

    async def apply(self, path: str, body: bytes, manager: str, force: bool = True) -> bytes:
        """Server-side apply: these fields are ours, the others stay as they are."""
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self.write("PATCH", path, body, content_type=APPLY, params=params, reason=f"kept by {manager}")

    async def patch(
        self, path: str, body: bytes, content_type: str = MERGE, tries: int = TRIES, reason: str = ""
    ) -> bytes:
        return await self.write("PATCH", path, body, content_type=content_type, tries=tries, reason=reason)

    @asynccontextmanager
    async def stream(self, path: str, params: Params, silence_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        """A body that arrives in pieces until the server ends it. After `silence_s` without one, the call fails."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        async with self._answer(ApiRequest("GET", path, params), timeout) as answer:
            yield answer.content

    @property
    def may_write(self) -> bool:
        return self._may_write_s() > 0

    async def wait_for_writes(self, within_s: float) -> bool:
        """Wait until every write that was sent has been answered; False: that took longer."""
        deadline_s = time.monotonic() + within_s
        while self._unanswered_writes and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        return not self._unanswered_writes

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _retry(self, call: ApiRequest, timeout_s: float, tries: int) -> bytes:
        backoff = Backoff()
        send = self._send if call.method == "GET" else self._send_write
        while True:
            try:
                return await send(call, timeout_s)
            except (ApiError, UnreachableError) as error:
                if not error.is_transient or backoff.failures + 1 >= tries:
                    raise
                pause_s = backoff.next_s(min(error.retry_after_s, CALL_S))
            await asyncio.sleep(pause_s)

    async def _send_write(self, call: ApiRequest, timeout_s: float) -> bytes:
        """Check before each try that writes are still allowed: the call may have waited long for its turn."""
        left_s = self._may_write_s()
        if left_s <= 0:
            raise StandbyError(str(call))
        self._unanswered_writes += 1
        try:
            return await self._send(call, min(timeout_s, left_s))
        finally:
            self._unanswered_writes -= 1

    async def _send(self, call: ApiRequest, timeout_s: float) -> bytes:
        async with self._answer(call, aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)) as answer:
            return await answer.read()

    @asynccontextmanager
    async def _answer(self, call: ApiRequest, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer with a good status. A refused credential is replaced once."""
        refused: Credential | None = None
        try:
            while True:
                credential = await self._credential(refused)
                headers = {"Content-Type": call.content_type}
                if credential.token:
                    headers["Authorization"] = f"Bearer {credential.token}"
                answer = await self._pool_for(credential).request(
                    call.method,
                    URL(self.access.server + call.path, encoded=True),
                    params=call.params,
                    data=call.body,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    server_hostname=self.access.trust.server_name or None,
                )
                async with answer:
                    if answer.status == 401 and refused is None:
                        refused = credential
                        continue
                    if answer.status >= 400:
                        retry_after = answer.headers.get("Retry-After", "")
                        raise read_status(answer.status, await answer.read(), str(call), retry_after)
                    yield answer
                    return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # aiohttp's timeouts have no text of their own.
            reason = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
            raise UnreachableError(reason, str(call)) from error

    async def _credential(self, refused: Credential | None) -> Credential:
        """Treat a failing exec plugin like a server that does not answer: both may recover."""
        try:
            return await self.access.source.get(refused)
        except UnreachableError:
            raise
        except ClusterError as error:
            raise UnreachableError(str(error)) from error

    def _pool_for(self, credential: Credential) -> aiohttp.ClientSession:
        """Connections belong to one client certificate: a new certificate needs new connections."""
        owner = (credential.certificate, credential.key)
        pool = self._pool
        if pool is not None and not pool.closed:
            if owner == self._pool_owner:
                return pool
            # Calls that are under way on the old connections may finish.
            asyncio.get_running_loop().call_later(CALL_S, lambda: asyncio.ensure_future(pool.close()))
        context: ssl.SSLContext | bool = True
        if self.access.server.startswith("https"):
            context = self.access.trust.context(credential)
        connector = aiohttp.TCPConnector(ssl=context, limit=0, keepalive_timeout=60)
        self._pool = aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=True)
        self._pool_owner = owner
        return self._pool


async def check_connection(access: ClusterAccess) -> str:
    """Check the connection, for a person at a terminal. Returns what is wrong with it, or an empty text.

    Raises ConfigError where the kubeconfig names a program or a file that does not exist.
    """
    call = ApiRequest("GET", "/version")
    client = Client(access)
    whose = access.name or "this kubeconfig"
    try:
        await client.read(call.path, timeout_s=CHECK_S, tries=1)
    except ApiError as error:
        if error.code != 401:
            return ""  # the server answers; other errors are shown by the calls that need it
        return (
            f"the API server {access.server} does not take the credentials of {whose} (401 Unauthorized); "
            "renew its token or certificate"
        )
    except UnreachableError as error:
        if "CERTIFICATE_VERIFY_FAILED" not in error.message:
            return f"the API server {access.server} cannot be reached: {error.message}"
        return (
            f"the API server {access.server} shows a certificate that the CA of {whose} did not sign, or that is for "
            f"another name ({error.message}); correct certificate-authority, or the server's address"
        )
    finally:
        await client.close()
    return ""


class _UserInfo(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo, name="userInfo")


class _SelfReview(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def find_account(access: ClusterAccess) -> str:
    """The account of these credentials, as the server names it; the name of the context where it does not say."""
    client = Client(access)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    try:
        answer = await client.write("POST", path, msgspec.json.encode(body), tries=1)
        return msgspec.json.decode(answer, type=_SelfReview).status.user_info.username or access.name
    except (ApiError, UnreachableError, msgspec.DecodeError):
        return access.name
    finally:
        await client.close()
