"""Call one API server: credentials, TLS, timeouts, retries, and a limit of concurrent writes.

In:    a path and bytes.   Out: bytes, or an ApiError or UnreachableError that names the call.
Never: repeats a write that the server refused for good, waits without end, or writes for longer than it may.
`first_contact` checks the connection for a person at a terminal.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

import kaiwo
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.client.credentials import Access, Credential
from kaiwo.clusters.kubernetes.client.errors import ApiError, StandbyError, UnreachableError, read_status
from kaiwo.model.errors import ClusterError

CONNECT_S = 5.0
CALL_S = 30.0
WRITES = 64  # at once; the server's own share for one client is of that size
TRIES = 6  # about six seconds with the pauses between them
JSON = "application/json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML too
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# The server would compress every list, which takes both sides longer than a network in a cluster takes to carry it.
HEADERS = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": f"kaiwo/{kaiwo.__version__}"}

Params = Mapping[str, str]


class Client:
    """Speaks to one API server as one user. Close it.

    `may_write_s`: for how long from now writes may be under way; zero or less: not at all.
    """

    def __init__(self, access: Access, writes: int = WRITES, may_write_s: Callable[[], float] = lambda: CALL_S) -> None:
        self.access = access
        self._may_write_s = may_write_s
        self._writes = asyncio.Semaphore(writes)
        self._writing = 0  # sent, and not answered
        self._pool: aiohttp.ClientSession | None = None
        self._pool_is_for: tuple[bytes, bytes] = (b"", b"")

    async def read(
        self, path: str, params: Params | None = None, timeout_s: float = CALL_S, tries: int = TRIES
    ) -> bytes:
        """GET, tried again while the server is busy or away."""
        return await self._tried("GET", path, params, None, JSON, timeout_s, tries)

    async def write(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        params: Params | None = None,
        tries: int = TRIES,
    ) -> bytes:
        """A change. With several tries it must be one that may happen twice, or the caller reads the refusal."""
        async with self._writes:
            return await self._tried(method, path, params, body, content_type, CALL_S, tries)

    async def apply(self, path: str, body: bytes, manager: str, force: bool = True) -> bytes:
        """Server-side apply: these fields are ours, the rest stays as it is."""
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self.write("PATCH", path, body, content_type=APPLY, params=params)

    async def patch(self, path: str, body: bytes, content_type: str = MERGE, tries: int = TRIES) -> bytes:
        """A merge patch."""
        return await self.write("PATCH", path, body, content_type=content_type, tries=tries)

    @asynccontextmanager
    async def stream(self, path: str, params: Params, silence_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        """A body that comes in pieces for as long as the server likes. After `silence_s` without one it is broken."""
        what = f"watch {path}"
        try:
            async with self._answer("GET", path, params, None, JSON, _streaming(silence_s)) as answer:
                if answer.status >= 400:
                    raise read_status(answer.status, await answer.read(), what, answer.headers.get("Retry-After", ""))
                yield answer.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{what}: {_words(error)}") from error

    @property
    def may_write(self) -> bool:
        return self._may_write_s() > 0

    async def quiet(self, within_s: float) -> bool:
        """Whether every write that was sent has been answered, at the latest after so long."""
        deadline_s = time.monotonic() + within_s
        while self._writing and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        return not self._writing

    async def close(self) -> None:
        """End every connection."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _tried(
        self, method: str, path: str, params: Params | None, body: bytes | None, kind: str, timeout_s: float, tries: int
    ) -> bytes:
        backoff = Backoff()
        while True:
            try:
                if method == "GET":
                    return await self._call(method, path, params, body, kind, timeout_s)
                return await self._change(method, path, params, body, kind, timeout_s)
            except ApiError as error:
                if not error.is_passing or backoff.failures + 1 >= tries:
                    raise
                pause_s = backoff.next_s(min(error.retry_after_s, CALL_S))
            except UnreachableError:
                if backoff.failures + 1 >= tries:
                    raise
                pause_s = backoff.next_s()
            await asyncio.sleep(pause_s)

    async def _change(
        self, method: str, path: str, params: Params | None, body: bytes | None, kind: str, timeout_s: float
    ) -> bytes:
        """One try of a write: asked anew before each, since waiting for a turn may have taken long."""
        left_s = self._may_write_s()
        if left_s <= 0:
            raise StandbyError(f"{method} {path}")
        self._writing += 1
        try:
            return await self._call(method, path, params, body, kind, min(timeout_s, left_s))
        finally:
            self._writing -= 1

    async def _call(
        self, method: str, path: str, params: Params | None, body: bytes | None, kind: str, timeout_s: float
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with self._answer(method, path, params, body, kind, timeout) as answer:
                content = await answer.read()
                if answer.status >= 400:
                    retry_after = answer.headers.get("Retry-After", "")
                    raise read_status(answer.status, content, f"{method} {path}", retry_after)
                return content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{method} {path}: {_words(error)}") from error

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        params: Params | None,
        body: bytes | None,
        kind: str,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send it; a credential that is refused is replaced once."""
        refused: Credential | None = None
        while True:
            credential = await self._credential(refused)
            headers = {"Content-Type": kind}
            if credential.token:
                headers["Authorization"] = f"Bearer {credential.token}"
            answer = await self._pool_for(credential).request(
                method,
                URL(self.access.server + path, encoded=True),
                params=params,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self.access.trust.server_name or None,
            )
            async with answer:
                if answer.status != 401 or refused is not None:
                    yield answer
                    return
            refused = credential

    async def _credential(self, refused: Credential | None) -> Credential:
        """An exec plugin that gives none is as good as a server that does not answer: both may come back."""
        try:
            return await self.access.source.get(refused)
        except UnreachableError:
            raise
        except ClusterError as error:
            raise UnreachableError(str(error)) from error

    def _pool_for(self, credential: Credential) -> aiohttp.ClientSession:
        """The connections belong to a client certificate: another one needs others."""
        owner = (credential.certificate, credential.key)
        pool = self._pool
        if pool is not None and not pool.closed and owner == self._pool_is_for:
            return pool
        if pool is not None and not pool.closed:
            # What is under way on the old connections may end; then they go.
            asyncio.get_running_loop().call_later(CALL_S, lambda: asyncio.ensure_future(pool.close()))
        context: ssl.SSLContext | bool = True
        if self.access.server.startswith("https"):
            context = self.access.trust.context(credential)
        connector = aiohttp.TCPConnector(ssl=context, limit=0, keepalive_timeout=60)
        self._pool = aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=True)
        self._pool_is_for = owner
        return self._pool


def _streaming(silence_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)


def _words(error: BaseException) -> str:
    """aiohttp's time-outs have no text of their own."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


PATH = "/version"
ANSWER_S = 10.0
UNKNOWN = 401  # the credential is not taken, whatever was asked


async def first_contact(access: Access) -> str:
    """A program or a file that the kubeconfig names and that is not there raises ConfigError."""
    client = Client(access)
    try:
        await client.read(PATH, timeout_s=ANSWER_S, tries=1)
    except ApiError as error:
        return _unknown(access) if error.code == UNKNOWN else ""  # it is there, and says what it thinks of the rest
    except UnreachableError as error:
        return _silent(access, str(error).removeprefix(f"GET {PATH}: "))
    finally:
        await client.close()
    return ""


def _unknown(access: Access) -> str:
    return (
        f"the API server {access.server} does not take the credentials of {access.name or 'this kubeconfig'} "
        "(401 Unauthorized); renew its token or certificate"
    )


def _silent(access: Access, words: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in words:
        return (
            f"the API server {access.server} shows a certificate that the CA of {access.name or 'this kubeconfig'} did "
            f"not sign, or that is for another name ({words}); correct certificate-authority, or the server's address"
        )
    return f"the API server {access.server} cannot be reached: {words}"
