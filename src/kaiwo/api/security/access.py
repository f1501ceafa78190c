"""Access control: the Host header, tokens, browser sessions, rights, and rate limits.

In:    a request's headers.   Out: who made it, or a ProblemError.
Never: trusts a request that another site made a browser send, or lets the time of an answer tell how much of a
token was right.
"""

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import math
import re
from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace
from starlette.requests import Request

from kaiwo.api.http.problems import ProblemError, forbidden, quote, too_many
from kaiwo.api.security.browser_sessions import SESSION, Sessions
from kaiwo.api.security.process_identity import process_owner
from kaiwo.api.security.rate_limits import RateLimit, WriteRates, room_of
from kaiwo.api.security.roles import NOBODY, RIGHT_WORDS, TOKEN, AccessRole, Identity, Right, role_with, roles_with
from kaiwo.api.security.token_file import AGENT_FILE, METRICS_FILE, read_given_token, read_or_make_token
from kaiwo.api.security.token_store import TokenStore
from kaiwo.api.settings import LOOPBACK_NAMES, Settings
from kaiwo.model.errors import KaiwoError

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:@/\[\]\s]+))(?::[0-9]{0,5})?")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
LOOK_EVERY_S = 15.0  # how often an open stream looks whether its credential still holds, besides at changes
MAX_ADMINS = 3  # whom a refusal names
_NEEDS_TOKEN = (
    "send `Authorization: Bearer TOKEN` with your token or the one in KAIWO_HOME/token, "
    "or log in with the address that `kaiwo login` prints"
)


class AgentTokenReviewer(Protocol):
    async def node_of(self, token: str) -> str:
        """The agent's node; empty for any other token."""


class _ReviewedPerson(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def rights(self) -> frozenset[str]:
        """Values of Right."""


class PersonTokenReviewer(Protocol):
    """Kubernetes, which knows people by their own tokens."""

    def is_known(self, token: str) -> bool:
        """Whether the answer is at hand, without a question to the API server."""

    async def review(self, token: str) -> _ReviewedPerson | None:
        """None for an unknown token. Raises ClusterError without an answer: then nobody is let in."""

    def granted_by(self, right: str) -> str:
        """What grants a right, such as `update` on `nodes.kaiwo.ai`."""


class AccessControl:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.token, self.token_notice = read_or_make_token(settings.home)
        given = settings.agent_token_file
        self.agent_token = read_given_token(given) if given else read_or_make_token(settings.home, AGENT_FILE)[0]
        self.agent_tokens: AgentTokenReviewer | None = None  # None: the agents' token is one for all
        self.person_tokens: PersonTokenReviewer | None = None  # None: people have the tokens of `self.people`
        self._reviews = RateLimit(per_s=20, burst=100)  # of tokens that were never seen
        self.metrics_token = read_or_make_token(settings.home, METRICS_FILE)[0]
        self.owner = Identity(process_owner(), AccessRole.ADMIN, TOKEN)
        self.people = TokenStore(settings.home)
        self.sessions = Sessions()
        self._writes = WriteRates(settings.writes_per_s, settings.writes_burst)
        self._failures = RateLimit(per_s=2, burst=30)
        self._names = {name.lower() for name in (*LOOPBACK_NAMES, settings.host, *settings.names)}

    def login_path(self, person: Identity, token: str = "") -> str:
        """An address on this server that logs one browser in as this person, once.

        `token`: that of a person whom Kubernetes knows; the login ends when Kubernetes does not know it any more.
        """
        return f"/login?code={self.sessions.new_code(person, token)}"

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

    async def check(self, request: Request, right: Right) -> Identity:
        """Who makes this request, if they have the right."""
        if right is Right.NONE:
            return NOBODY
        person = await self._identify(request)
        request.state.person = person  # the audit names them also when they are refused
        self.require(person, right)
        return person

    def require(self, person: Identity, right: Right) -> None:
        if not person.has(right):
            raise forbidden(403, self._why_not(person, right))

    def whom_to_ask(self) -> str:
        """Who can give rights: the owner, and whoever has a token of an administrator."""
        if self.person_tokens is not None:
            return "an administrator of the Kubernetes cluster"
        names = dict.fromkeys([self.owner.name or "the owner of this Kaiwo", *self.people.names_with(AccessRole.ADMIN)])
        return " or ".join(list(names)[:MAX_ADMINS])

    async def until_over(self, person: Identity, request: Request) -> None:
        """Wait until the credential of this person is worth nothing any more: revoked, expired or logged out."""
        while (left_s := self.left_s(person)) > 0:
            changes = (self.people.changed, self.sessions.changed)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_EVERY_S)):
                    await _first_of(changes)
            if person.is_of_kubernetes and not await self._still_reads(request):
                return

    async def _still_reads(self, request: Request) -> bool:
        try:
            return (await self._identify(request)).has(Right.READ)
        except (ProblemError, KaiwoError):
            return False

    def left_s(self, person: Identity) -> float:
        """How long the credential of this person is still good."""
        left_s = self.people.left_s(person) if person.token_id else math.inf
        return min(left_s, self.sessions.left_s(person.credential)) if is_session(person) else left_s

    def check_write_rate(self, person: Identity) -> None:
        """Whoever can read KAIWO_HOME/token has room of their own; others have a share each."""
        if wait_s := self._writes.take(room_of(person)):
            raise too_many("too many changes at once; try again in a moment", wait_s)

    async def check_agent(self, request: Request) -> Identity:
        """A node agent, with its own token or the server's. Its own is good for nothing else."""
        token = bearer(request)
        if token and await self._is_agent(token, request.path_params.get("node", "")):
            return Identity("", AccessRole.AGENT, "agent")
        person = await self._identify(request)
        if person.is_owner:
            return person
        raise forbidden(403, "a login cannot report for a node; an agent sends the token in KAIWO_HOME/agent-token")

    async def _is_agent(self, token: str, node: str) -> bool:
        """With a reviewer, an agent reports for the node of its own pod; with one token for all, for any node."""
        if self.agent_tokens is None:
            return _is_same(token, self.agent_token)
        if _is_same(token, self.token):
            return False  # the server's own token is never shown to the reviewer
        of = await self.agent_tokens.node_of(token)
        if of and of != node:
            why = f"this token belongs to the agent on {quote(of)}, but the report is about {quote(node)}"
            raise forbidden(403, why)
        return bool(of)

    def open_session(self, code: str) -> str:
        secret = self.sessions.open(code)
        if secret is None:
            why = "this login address is more than 5 minutes old, was already used, or is from before a restart"
            raise self._failed(403, f"{why}; `kaiwo login` prints a new one")
        return secret

    async def _identify(self, request: Request) -> Identity:
        if not request.headers.get("authorization"):
            raise _unknown(f"this needs a token; {_NEEDS_TOKEN}")
        token = bearer(request)
        if _is_same(token, self.token):
            return self.owner
        if _is_same(token, self.metrics_token):
            return Identity("", AccessRole.SCRAPER, "metrics-token")
        if self.agent_tokens is None and _is_same(token, self.agent_token):
            return Identity("", AccessRole.AGENT, "agent")
        if found := self.people.find(token):
            if why := self.people.why_over(found):
                raise self._ended(why)
            return found.identity
        if person := self.sessions.find(token):
            if person.token_id and not self.people.is_valid(person):
                self.sessions.close(person.credential)
                raise self._ended(f"this login was made with token {person.token_id} of {person.name}, which has ended")
            return await self._review_login(person) if person.is_of_kubernetes else person
        if self.person_tokens is not None and (person := await self._review(token)):
            return person
        raise self._failed(401, f"the token is not this server's, or the login has ended; {_NEEDS_TOKEN}")

    async def _review(self, token: str) -> Identity | None:
        """Whoever Kubernetes says. Tokens that were never seen are limited: each is a question to the API server."""
        assert self.person_tokens is not None
        if not self.person_tokens.is_known(token) and not self._reviews.take():
            raise too_many("too many unknown tokens; try again in a moment", self._reviews.wait_s)
        found = await self.person_tokens.review(token)
        if found is None:
            return None
        rights = frozenset({Right.NONE, *map(Right, found.rights)})
        credential = f"kubernetes-{hashlib.sha256(token.encode()).hexdigest()[:10]}"
        return Identity(found.name, role_with(rights), credential, rights=rights)

    async def _review_login(self, person: Identity) -> Identity:
        """A login has the rights that its token has now, and ends with it."""
        found = await self._review(self.sessions.token_of(person.credential))
        if found is None:
            self.sessions.close(person.credential)
            raise self._ended(f"this login was made with a Kubernetes token of {person.name}, which has ended")
        return replace(found, credential=person.credential)

    def _ended(self, why: str) -> ProblemError:
        """Whoever shows a secret that was good is no guesser, and is told."""
        return _unknown(f"{why}; ask {self.whom_to_ask()} for a new token", TOKEN)

    def _why_not(self, person: Identity, right: Right) -> str:
        if person.is_of_kubernetes and self.person_tokens is not None:
            needed = self.person_tokens.granted_by(right)
            what = RIGHT_WORDS.get(right, right)
            return f"{person.name} may not {what}; this needs {needed} (Kubernetes RBAC): ask {self.whom_to_ask()}"
        match person.role:
            case AccessRole.AGENT:
                return f"this is an agent's token, which only reports for nodes; {_NEEDS_TOKEN}"
            case AccessRole.SCRAPER:
                return f"this token only reads /metrics; {_NEEDS_TOKEN}"
        roles = " or ".join(roles_with(right))
        return (
            f"{person.name} has the role {person.role}, which may not {RIGHT_WORDS.get(right, right)}; this needs the "
            f"role {roles}: ask {self.whom_to_ask()}"
        )

    def _failed(self, status: int, message: str) -> ProblemError:
        """A wrong secret. Guesses are rate-limited; clients with a right one are never delayed."""
        if not self._failures.take():
            return too_many("too many wrong tokens or logins; try again in a moment", self._failures.wait_s)
        return _unknown(message) if status == 401 else forbidden(status, message)


def bearer(request: Request) -> str:
    """The token in the Authorization header; empty if there is none."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def host_name(host: str) -> str:
    """`localhost` of `localhost:7600`, `::1` of `[::1]:7600`; unchanged when it is no valid host."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2].rstrip(".")).lower() if found else host


def _is_same(given: str, secret: str) -> bool:
    """Takes as long for a wrong token as for the right one."""
    return hmac.compare_digest(given.encode(), secret.encode())


def is_session(person: Identity) -> bool:
    """Whether this person is a browser that logged in."""
    return person.credential.startswith(SESSION)


async def _first_of(events: Iterable[asyncio.Event]) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


def _is_address(name: str) -> bool:
    """True for an IP address, which cannot be made to point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _unknown(message: str, field: str = "") -> ProblemError:
    return ProblemError(401, "forbidden", message, field, {"WWW-Authenticate": 'Bearer realm="kaiwo"'})
