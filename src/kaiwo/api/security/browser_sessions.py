"""Browser logins: a one-time code becomes a session, whose secret is kept in a cookie.

Secrets are stored only as digests, and only up to a bound.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_CODES = 16
MAX_SESSIONS = 64
SESSION_S = 30 * 86_400


class Sessions:
    """Unused codes and open sessions. A restart ends them all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: OrderedDict[bytes, None] = OrderedDict()
        self._sessions: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def new_code(self) -> str:
        """The oldest unused code makes room."""
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = None
        while len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def open(self, code: str) -> str | None:
        """A new session's secret; the code is used up. None when the code is not valid."""
        # Keyed by digest, so that the time of a look-up tells a guesser nothing.
        if self._codes.pop(_digest(code), "spent") is not None:
            return None
        secret = secrets.token_urlsafe(32)
        self._sessions[_digest(secret)] = (f"session-{secrets.token_hex(3)}", self._clock())
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return secret

    def name_of(self, secret: str) -> str | None:
        """The session's name for the log; None when there is no such session, or it is too old."""
        key = _digest(secret)
        found = self._sessions.get(key)
        if found is None:
            return None
        name, since = found
        if self._clock() - since > SESSION_S:
            del self._sessions[key]
            return None
        self._sessions.move_to_end(key)
        return name


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
