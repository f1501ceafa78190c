"""Access control: the Host header, tokens, cookies, and rate limits.

In:    a request's headers.   Out: the credential of a write, for the log, or a ProblemError.
Never: trusts a request that another site made a browser send, or lets the time of an answer tell how much of a
token was right.
"""

import hmac
import ipaddress
import math
import re
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import Request

from kaiwo.api.http.problems import ProblemError, forbidden, quote, too_many
from kaiwo.api.security.browser_sessions import SESSION_S, Sessions
from kaiwo.api.security.token_file import AGENT_FILE, read_given_token, read_or_make_token
from kaiwo.api.settings import LOOPBACK_NAMES, Settings

COOKIE = "kaiwo_session"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:@/\[\]\s]+))(?::[0-9]{0,5})?")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_NEEDS_TOKEN = (
    "send `Authorization: Bearer TOKEN` with the token in KAIWO_HOME/token, "
    "or log in with the address that `kaiwo login` prints"
)


class RateLimit:
    """A token bucket: `burst` uses at once, then `per_s` a second."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self.burst = burst
        self._clock = clock
        self._left = burst
        self._at = clock()

    def take(self) -> bool:
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._at) * self.per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    @property
    def wait_s(self) -> int:
        """When to try again, in whole seconds."""
        return max(1, math.ceil((1 - self._left) / self.per_s))


class AgentTokenReviewer(Protocol):
    async def node_of(self, token: str) -> str:
        """The agent's node; empty for any other token."""


class AccessControl:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.token, self.token_notice = read_or_make_token(settings.home)
        given = settings.agent_token_file
        self.agent_token = read_given_token(given) if given else read_or_make_token(settings.home, AGENT_FILE)[0]
        self.agent_tokens: AgentTokenReviewer | None = None  # None: the agents' token is one for all
        self.sessions = Sessions()
        self._writes = RateLimit(settings.writes_per_s, settings.writes_burst)
        self._failures = RateLimit(per_s=2, burst=30)
        self._names = {name.lower() for name in (*LOOPBACK_NAMES, settings.host, *settings.names)}

    def login_path(self) -> str:
        """An address on this server that logs one browser in once."""
        return f"/login?code={self.sessions.new_code()}"

    def check_host(self, request: Request) -> None:
        """A page on another site can make a browser come here under its own name; it cannot forge the Host."""
        name = host_name(request.headers.get("host", ""))
        if name in self._names or (not self.settings.is_loopback and _is_address(name)):
            return
        raise forbidden(
            421, f"this server does not answer for the host {quote(name)}; use localhost, or start Kaiwo with --host"
        )

    def check_site(self, request: Request) -> None:
        """Other sites may link here, but not fetch from here."""
        site, mode = request.headers.get("sec-fetch-site", ""), request.headers.get("sec-fetch-mode", "")
        if site == "cross-site" and mode != "navigate":
            raise forbidden(403, "another site may not fetch from this server; open it in its own tab")

    def check_read(self, request: Request) -> None:
        """On the machine itself reading needs no token; from elsewhere it needs what a write needs."""
        if not self.settings.is_loopback:
            self._identify(request)

    def check_write(self, request: Request) -> str:
        """Returns the client's credential for the log."""
        credential = self._identify(request)
        if credential != "token":
            self._check_origin(request)
        if not self._writes.take():
            raise too_many("too many changes at once; try again in a moment", self._writes.wait_s)
        return credential

    async def check_agent(self, request: Request) -> str:
        """A node agent, with its own token or the server's. Its own is good for nothing else."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and await self._is_agent(token.strip(), request.path_params.get("node", "")):
            return "agent"
        if self._identify(request) == "token":
            return "token"
        raise forbidden(403, "a login cannot report for a node; an agent sends the token in KAIWO_HOME/agent-token")

    async def _is_agent(self, token: str, node: str) -> bool:
        """With a reviewer, an agent reports for the node of its own pod; with one token for all, for any node."""
        if self.agent_tokens is None:
            return hmac.compare_digest(token.encode(), self.agent_token.encode())
        if hmac.compare_digest(token.encode(), self.token.encode()):
            return False  # the server's own token is never shown to the reviewer
        of = await self.agent_tokens.node_of(token)
        if of and of != node:
            why = f"this token belongs to the agent on {quote(of)}, but the report is about {quote(node)}"
            raise forbidden(403, why)
        return bool(of)

    def open_session(self, code: str) -> str:
        secret = self.sessions.open(code)
        if secret is None:
            why = "this login address was already used, or is from another server"
            raise self._failed(403, f"{why}; `kaiwo login` prints a new one")
        return secret

    def session_of(self, request: Request) -> str | None:
        secret = request.cookies.get(COOKIE, "")
        return self.sessions.name_of(secret) if secret else None

    def _identify(self, request: Request) -> str:
        given = request.headers.get("authorization", "")
        if given:
            kind, _, token = given.partition(" ")
            if kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.token.encode()):
                return "token"
            if kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.agent_token.encode()):
                raise forbidden(403, f"this is an agent's token, which only reports for nodes; {_NEEDS_TOKEN}")
            raise self._failed(401, f"the token is not this server's; {_NEEDS_TOKEN}")
        if request.cookies.get(COOKIE):
            if name := self.session_of(request):
                return name
            raise self._failed(401, f"the login has expired; {_NEEDS_TOKEN}")
        raise _unknown(f"this needs a token; {_NEEDS_TOKEN}")

    def _failed(self, status: int, message: str) -> ProblemError:
        """A wrong secret. Guesses are rate-limited; clients with a right one are never delayed."""
        if not self._failures.take():
            return too_many("too many wrong tokens or logins; try again in a moment", self._failures.wait_s)
        return _unknown(message) if status == 401 else forbidden(status, message)

    def _check_origin(self, request: Request) -> None:
        """Browsers send cookies by themselves, so the request must come from our own page."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        is_ours = site == "same-origin" if origin is None else _is_same(origin, request.headers.get("host", ""))
        if is_ours and site in (None, "same-origin"):
            return
        raise forbidden(403, "a login can only be used from this server's own page; programs send the token instead")


def cookie_header(secret: str, is_tls: bool = False) -> str:
    """No script reads it, no other site sends it, and over TLS it is never sent in the clear."""
    return f"{COOKIE}={secret}; Path=/; Max-Age={SESSION_S}; HttpOnly; SameSite=Strict{'; Secure' if is_tls else ''}"


def host_name(host: str) -> str:
    """`localhost` of `localhost:7600`, `::1` of `[::1]:7600`; unchanged when it is no valid host."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2].rstrip(".")).lower() if found else host


def _is_same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _is_address(name: str) -> bool:
    """True for an IP address, which cannot be made to point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _unknown(message: str) -> ProblemError:
    return forbidden(401, message, {"WWW-Authenticate": 'Bearer realm="kaiwo"'})
