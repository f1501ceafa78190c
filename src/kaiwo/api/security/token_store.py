"""The tokens of people: who has one, for which role, until when.

In:    the secret of a request.   Out: the person; found by digest, so that 10,000 tokens cost no more than one.
Never: stores a secret, or trusts a file that others can write.

Only the SHA-256 of a secret is stored. A slow hash protects passwords, which people choose and attackers guess; these
secrets are 256 random bits, which nobody guesses, and a fast hash keeps requests fast.
"""

import asyncio
import contextlib
import hashlib
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.api.security.roles import AccessRole, Identity
from kaiwo.api.security.token_file import write_private
from kaiwo.model.errors import ClusterError, NotFoundError, RefusedError
from kaiwo.model.reservation import clock_words

FILE = "tokens.json"
PREFIX = "kaiwo_"  # lets scanners for leaked secrets recognize it
MAX_TOKENS = 10_000
KEEP_ENDED_S = 90 * 86_400  # how long a revoked or expired token stays in the list
USED_EVERY_S = 3600  # how exact the time of its last use is
SAVE_EVERY_S = 60.0  # how often times of use are saved


class PersonToken(msgspec.Struct, frozen=True):
    """One token of one person, as it is stored."""

    id: str
    name: str  # of the person
    role: AccessRole
    digest: str  # SHA-256 of its secret, in hex
    created_s: int
    queues: tuple[str, ...] = ()
    created_by: str = ""
    expires_s: int = 0  # 0: never
    secret_number: int = 1
    former_digest: str = ""  # of the secret before the last rotation
    former_until_s: int = 0
    last_used_s: int = 0  # exact to the hour; 0: never
    revoked_s: int = 0  # 0: it is valid

    def ended_s(self) -> float:
        """When it ends or ended; infinite if never."""
        return min(self.revoked_s or math.inf, self.expires_s or math.inf)


class _Stored(msgspec.Struct):
    version: int = 1
    tokens: tuple[PersonToken, ...] = ()


class KnownSecret(NamedTuple):
    """A secret that is or was good."""

    identity: Identity
    until_s: float


class TokenStore:
    """All tokens of people. A change is on disk before it is answered, and takes effect at once."""

    def __init__(self, home: str, clock: Callable[[], float] = time.time) -> None:
        self._path = Path(home) / FILE
        self._clock = clock
        self._tokens = {token.id: token for token in _read(self._path)}
        self._known: dict[bytes, KnownSecret] = {}
        self._is_dirty = False  # times of use are not saved yet
        self._lock = asyncio.Lock()
        self.changed = asyncio.Event()  # set and replaced at each change
        for token in self._tokens.values():
            self._learn(token)

    def find(self, secret: str) -> KnownSecret | None:
        """Who has this secret, valid or not; None if nobody does."""
        found = self._known.get(_digest(secret))
        if found is not None:
            self._mark_used(found)
        return found

    def why_over(self, found: KnownSecret) -> str:
        """Why this secret is not good any more; empty if it is."""
        if self._clock() < found.until_s:
            return ""
        person, token = found.identity, self._tokens[found.identity.token_id]
        word = "was revoked" if token.revoked_s else "expired" if found.until_s == token.expires_s else "was replaced"
        return f"this secret of token {person.token_id} of {person.name} {word} at {clock_words(int(found.until_s))}"

    def is_valid(self, person: Identity) -> bool:
        """Whether the secret with which this person came, or logged in, is still good."""
        return self.left_s(person) > 0

    def left_s(self, person: Identity) -> float:
        """How long the secret with which this person came is still good."""
        token, now_s = self._tokens.get(person.token_id), self._clock()
        if token is None:
            return 0.0
        if person.secret_number == token.secret_number:
            return max(0.0, token.ended_s() - now_s)
        is_former = person.secret_number == token.secret_number - 1
        return max(0.0, min(token.ended_s(), token.former_until_s) - now_s) if is_former else 0.0

    def tokens(self) -> Sequence[PersonToken]:
        """All of them, also those that ended lately; sorted by person, the oldest first."""
        return sorted(self._tokens.values(), key=lambda token: (token.name, token.created_s, token.id))

    def names_with(self, role: AccessRole) -> Sequence[str]:
        """The people who have a valid token for this role."""
        now_s = self._clock()
        return sorted({token.name for token in self._tokens.values() if token.role is role and token.ended_s() > now_s})

    async def create(
        self, name: str, role: AccessRole, queues: Sequence[str], lasts_s: int, created_by: str
    ) -> tuple[PersonToken, str]:
        """The new token, and its secret, which is nowhere stored. `lasts_s`: 0 for ever."""
        async with self._lock:
            now_s = int(self._clock())
            kept = self._kept(now_s)
            if len(kept) >= MAX_TOKENS:
                raise RefusedError(f"there are {len(kept)} tokens, which is the limit; wait until ended ones are gone")
            secret = _new_secret()
            made = PersonToken(
                id=f"t-{secrets.token_hex(5)}",
                name=name,
                role=role,
                digest=_digest(secret).hex(),
                created_s=now_s,
                queues=tuple(queues),
                created_by=created_by,
                expires_s=now_s + lasts_s if lasts_s else 0,
            )
            await self._commit([*kept, made])
            return made, secret

    async def rotate(self, token_id: str, grace_s: int, lasts_s: int | None) -> tuple[PersonToken, str]:
        """A new secret. The present one is good for `grace_s`; one from before it ends now. None: the end stays."""
        async with self._lock:
            now_s = int(self._clock())
            token = self._valid(token_id, now_s)
            secret = _new_secret()
            made = replace(
                token,
                digest=_digest(secret).hex(),
                secret_number=token.secret_number + 1,
                former_digest=token.digest,
                former_until_s=now_s + grace_s,
                expires_s=token.expires_s if lasts_s is None else now_s + lasts_s if lasts_s else 0,
            )
            await self._commit([made if each.id == token_id else each for each in self._kept(now_s)])
            return made, secret

    async def revoke(self, token_id: str) -> PersonToken:
        """It ends now, with its open streams and logins."""
        async with self._lock:
            now_s = int(self._clock())
            made = replace(self._valid(token_id, now_s), revoked_s=now_s)
            after = [made if each.id == token_id else each for each in self._kept(now_s)]
            self._replace(after)  # before it is saved: a full disk must not keep a stolen token alive
            try:
                await self._save(after)
            except ClusterError as error:
                raise ClusterError(f"token {token_id} is revoked, but only until Kaiwo restarts: {error}") from error
            return made

    async def run(self) -> None:
        """Forever: save the times of use."""
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            with contextlib.suppress(ClusterError):  # the disk is full, so try again later
                await self.save_uses()

    async def save_uses(self) -> None:
        async with self._lock:
            if self._is_dirty:
                await self._save(list(self._tokens.values()))
                self._is_dirty = False

    def _mark_used(self, found: KnownSecret) -> None:
        token, now_s = self._tokens[found.identity.token_id], self._clock()
        if now_s < found.until_s and now_s - token.last_used_s >= USED_EVERY_S:
            self._tokens[token.id] = replace(token, last_used_s=int(now_s))
            self._is_dirty = True

    def _valid(self, token_id: str, now_s: int) -> PersonToken:
        token = self._tokens.get(token_id)
        if token is None:
            raise NotFoundError(f"there is no token '{token_id[:60]}'; kaiwo tokens lists them")
        if token.ended_s() <= now_s:
            word = "revoked" if token.revoked_s else "expired"
            raise RefusedError(f"token {token_id} of {token.name} is {word}; create a new one: kaiwo tokens create")
        return token

    def _kept(self, now_s: int) -> list[PersonToken]:
        return [token for token in self._tokens.values() if token.ended_s() + KEEP_ENDED_S > now_s]

    async def _commit(self, tokens: Sequence[PersonToken]) -> None:
        await self._save(tokens)
        self._replace(tokens)

    async def _save(self, tokens: Sequence[PersonToken]) -> None:
        text = msgspec.json.format(msgspec.json.encode(_Stored(tokens=tuple(tokens))), indent=1).decode()
        try:
            await asyncio.to_thread(write_private, self._path, text + "\n", is_flushed=True)
        except OSError as error:
            raise ClusterError(f"{self._path} cannot be written ({error.strerror}); make room and try again") from error

    def _replace(self, tokens: Sequence[PersonToken]) -> None:
        """Times of use that were noted while the file was written are kept."""
        used_s = {token.id: token.last_used_s for token in self._tokens.values()}
        self._tokens = {
            token.id: replace(token, last_used_s=max(token.last_used_s, used_s.get(token.id, 0))) for token in tokens
        }
        self._known = {}
        for token in self._tokens.values():
            self._learn(token)
        self.changed.set()
        self.changed = asyncio.Event()

    def _learn(self, token: PersonToken) -> None:
        person = Identity(token.name, token.role, token.id, token.queues, token.id, token.secret_number)
        ended_s = token.ended_s()
        self._known[bytes.fromhex(token.digest)] = KnownSecret(person, ended_s)
        if token.former_digest:
            former = replace(person, secret_number=token.secret_number - 1)
            self._known[bytes.fromhex(token.former_digest)] = KnownSecret(former, min(ended_s, token.former_until_s))


def _new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _read(path: Path) -> Sequence[PersonToken]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror}; {_WAY_OUT}") from error
    with os.fdopen(file, "rb") as content:
        status = os.fstat(content.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ClusterError(f"{path} could have been written by other users; {_WAY_OUT}")
        os.fchmod(content.fileno(), 0o600)
        try:
            stored = msgspec.json.decode(content.read(), type=_Stored)
            for token in stored.tokens:
                bytes.fromhex(token.digest + token.former_digest)
            return stored.tokens
        except (msgspec.MsgspecError, ValueError) as error:
            raise ClusterError(f"{path} is damaged ({error}); {_WAY_OUT}") from error


_WAY_OUT = "put back a copy that you trust, or remove it, which ends the tokens of everybody but the owner"
