"""Verify the tokens of node agents with the API server, which knows the node of the agent's pod.

Never: accepts a token for another audience or of another account. A valid token is reviewed once in five minutes.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.wire_objects import Wire
from kaiwo.model.errors import ClusterError

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
AUDIENCE = "kaiwo-agents"
NODE = "authentication.kubernetes.io/node-name"
GOOD_S, BAD_S = 300.0, 10.0  # how long an answer is kept; a stream reconnects every minute
MAX_KNOWN = 20_000
MAX_CHARACTERS = 16_384
ANSWER_S = 5.0


class _User(Wire):
    username: str = ""
    extra: dict[str, list[str]] | None = None


class _Status(Wire):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] | None = None


class _Review(Wire):
    status: _Status = msgspec.field(default_factory=_Status)


class _KnownToken(NamedTuple):
    until_s: float
    node: str  # empty: it is not an agent's token


class AgentTokens:
    """For one service account, written as `namespace:name`."""

    def __init__(self, client: Client, account: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._user = f"system:serviceaccount:{account}"
        self._known: dict[bytes, _KnownToken] = {}  # by digest

    async def node_of(self, token: str) -> str:
        """The node of the agent with this token; empty: it is not an agent's. Raises ClusterError without an answer."""
        if not token or len(token) > MAX_CHARACTERS:
            return ""
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        known = self._known.get(key)
        if known is not None and now < known.until_s:
            return known.node
        node = await self._review(token)
        if len(self._known) >= MAX_KNOWN:
            self._known = {each: found for each, found in self._known.items() if found.until_s > now}
        if len(self._known) < MAX_KNOWN:
            self._known[key] = _KnownToken(now + (GOOD_S if node else BAD_S), node)
        return node

    async def _review(self, token: str) -> str:
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._client.write("POST", PATH, msgspec.json.encode(body), tries=1)
        except (ApiError, UnreachableError, TimeoutError) as error:
            raise ClusterError(f"the API server could not review the agent's token ({str(error)[:200]})") from error
        status = msgspec.json.decode(answer, type=_Review).status
        is_ours = status.authenticated and AUDIENCE in (status.audiences or ())
        nodes = (status.user.extra or {}).get(NODE, [])
        return nodes[0] if is_ours and status.user.username == self._user and len(nodes) == 1 else ""
