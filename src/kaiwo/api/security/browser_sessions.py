"""Browser logins: a one-time code becomes a session, whose secret the page keeps in the storage of its own origin.

It is no cookie: a browser sends the cookies of 127.0.0.1 to every port of it, also to those of other users.
Secrets are stored only as digests, in memory, and only up to a bound for each person. A restart ends all sessions:
while Kaiwo is down, another user may listen on its port, be taken for it by an open page, and be shown its secret.
"""

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from kaiwo.api.security.roles import Identity

SESSION = "session-"  # how the name of a session begins
MAX_CODES = 16  # of one person: nobody can end the logins of others
MAX_SESSIONS = 64
CODE_S = 5 * 60
SESSION_S = 30 * 86_400


class Session(msgspec.Struct, frozen=True):
    identity: Identity
    opened_s: float
    token: str = ""  # of a person whom Kubernetes knows; it is asked again and again whether it still does


class Sessions:
    """Unused codes and open sessions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: OrderedDict[bytes, tuple[Identity, float, str]] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self.changed = asyncio.Event()  # set and replaced when sessions end

    def new_code(self, owner: Identity, token: str = "") -> str:
        """A code that logs a browser in as this person. The person's oldest unused code makes room."""
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = owner, self._clock(), token
        _make_room(self._codes, lambda made: made[0].name == owner.name, MAX_CODES)
        return code

    def open(self, code: str) -> str | None:
        """A new session's secret; the code is used up. None when the code is not valid."""
        # Keyed by digest, so that the time of a look-up tells a guesser nothing.
        owner, made_s, token = self._codes.pop(_digest(code), (None, 0.0, ""))
        now_s = self._clock()
        if owner is None or now_s - made_s > CODE_S:
            return None
        secret = secrets.token_urlsafe(32)
        name = SESSION + secrets.token_hex(5)
        self._sessions[_digest(secret)] = Session(msgspec.structs.replace(owner, credential=name), now_s, token)
        if _make_room(self._sessions, lambda session: session.identity.name == owner.name, MAX_SESSIONS):
            self._tell()
        return secret

    def find(self, secret: str) -> Identity | None:
        """None when there is no such session, or it is too old."""
        key = _digest(secret)
        found = self._sessions.get(key)
        if found is None:
            return None
        if self._clock() - found.opened_s > SESSION_S:
            del self._sessions[key]
            return None
        self._sessions.move_to_end(key)
        return found.identity

    def left_s(self, credential: str) -> float:
        """How long the session of this name is still open."""
        found = self._named(credential)
        return 0.0 if found is None else max(0.0, found.opened_s + SESSION_S - self._clock())

    def token_of(self, credential: str) -> str:
        """The Kubernetes token with which the session of this name was made; empty if with another."""
        found = self._named(credential)
        return "" if found is None else found.token

    def _named(self, credential: str) -> Session | None:
        return next((each for each in self._sessions.values() if each.identity.credential == credential), None)

    def close(self, credential: str) -> bool:
        """End the session of this name."""
        return self._close(lambda identity: identity.credential == credential) > 0

    def close_all(self, person: str) -> int:
        """End all sessions of this person, and make their unused codes worthless."""
        self._codes = OrderedDict((key, code) for key, code in self._codes.items() if code[0].name != person)
        return self._close(lambda identity: identity.name == person)

    def _close(self, is_meant: Callable[[Identity], bool]) -> int:
        keys = [key for key, session in self._sessions.items() if is_meant(session.identity)]
        for key in keys:
            del self._sessions[key]
        if keys:
            self._tell()
        return len(keys)

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _make_room(known: OrderedDict[bytes, Any], is_of_person: Callable[[Any], bool], most: int) -> int:
    """Drop the oldest of one person's, until at most this many are left. Returns how many were dropped."""
    keys = [key for key, value in known.items() if is_of_person(value)]
    dropped = keys[: max(0, len(keys) - most)]
    for key in dropped:
        del known[key]
    return len(dropped)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
