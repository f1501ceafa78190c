"""Ask the API server whose token this is (TokenReview), and what that person may do (SubjectAccessReview).

In:    the token of a request.   Out: the person with their rights; None for a token that the API server does not know.
Never: lets anybody in while the API server does not answer. Answers are kept for a minute, and only so many of them.

Rights are verbs on resources of the group kaiwo.ai that no object has: they exist only to be granted with RBAC.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.wire_objects import Wire
from kaiwo.model.errors import ClusterError

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
GROUP = "kaiwo.ai"
GOOD_S, BAD_S = 60.0, 10.0  # how long an answer is kept: a right that is taken away ends after this time
MAX_KNOWN = 10_000
MAX_CHARACTERS = 16_384
MAX_AT_ONCE = 16  # reviews that wait for the API server; further ones wait for these
ANSWER_S = 5.0


class GrantedBy(NamedTuple):
    """The verb and the resource of the group kaiwo.ai that grant a right."""

    verb: str
    resource: str


GRANTED_BY: Mapping[str, GrantedBy] = {
    "scrape": GrantedBy("get", "metrics"),
    "read": GrantedBy("get", "workloads"),
    "submit": GrantedBy("create", "workloads"),
    "operate": GrantedBy("update", "nodes"),
    "administer": GrantedBy("update", "queues"),
}


class _User(Wire):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(Wire):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(Wire):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(Wire):
    allowed: bool = False
    denied: bool = False


class _AccessReview(Wire):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class ReviewedPerson(NamedTuple):
    name: str
    rights: frozenset[str]  # keys of GRANTED_BY


class _KnownToken(NamedTuple):
    until_s: float
    person: ReviewedPerson | None


class PersonTokens:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: dict[bytes, _KnownToken] = {}  # by digest
        self._asking: dict[bytes, asyncio.Task[ReviewedPerson | None]] = {}
        self._at_once = asyncio.Semaphore(MAX_AT_ONCE)

    def is_known(self, token: str) -> bool:
        """Whether the answer is at hand, without a question to the API server."""
        return len(token) > MAX_CHARACTERS or self._find(_digest(token)) is not None

    def granted_by(self, right: str) -> str:
        """`update` on `nodes.kaiwo.ai`."""
        by = GRANTED_BY.get(right)
        return f"`{by.verb}` on `{by.resource}.{GROUP}`" if by else "a right that nobody is granted"

    async def review(self, token: str) -> ReviewedPerson | None:
        """Who has this token. Raises ClusterError without an answer."""
        if not token or len(token) > MAX_CHARACTERS:
            return None
        key = _digest(token)
        if known := self._find(key):
            return known.person
        asking = self._asking.get(key)
        if asking is None:  # many requests with one token ask once
            asking = self._asking[key] = asyncio.create_task(self._ask_once(key, token))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)  # one client that leaves does not end it for the others

    async def _ask_once(self, key: bytes, token: str) -> ReviewedPerson | None:
        async with self._at_once:
            person = await self._ask(token)
        self._keep(key, person)
        return person

    def _find(self, key: bytes) -> _KnownToken | None:
        known = self._known.get(key)
        return known if known is not None and self._clock() < known.until_s else None

    def _keep(self, key: bytes, person: ReviewedPerson | None) -> None:
        now = self._clock()
        if len(self._known) >= MAX_KNOWN:
            self._known = {each: found for each, found in self._known.items() if found.until_s > now}
        if len(self._known) < MAX_KNOWN:
            self._known[key] = _KnownToken(now + (GOOD_S if person else BAD_S), person)

    async def _ask(self, token: str) -> ReviewedPerson | None:
        answer = await self._post(TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        status = msgspec.json.decode(answer, type=_TokenReview).status
        if not status.authenticated or not status.user.username:
            return None
        allowed = await asyncio.gather(*(self._is_allowed(status.user, each) for each in GRANTED_BY.values()))
        rights = frozenset(name for name, is_allowed in zip(GRANTED_BY, allowed, strict=True) if is_allowed)
        return ReviewedPerson(status.user.username, rights)

    async def _is_allowed(self, user: _User, by: GrantedBy) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "resourceAttributes": {"group": GROUP, "resource": by.resource, "verb": by.verb},
        }
        answer = await self._post(ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        status = msgspec.json.decode(answer, type=_AccessReview).status
        return status.allowed and not status.denied

    async def _post(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._client.write("POST", path, body, tries=1)
        except (ApiError, UnreachableError, TimeoutError) as error:
            why = str(error)[:200] or f"no answer within {ANSWER_S:g} s"
            raise ClusterError(
                f"the Kubernetes API server could not say who you are ({why}); nobody is let in until it answers"
            ) from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
