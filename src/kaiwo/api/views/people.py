"""Logins, identities and tokens."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

MAX_NAME = 63  # characters of a person's name
MAX_TOKEN_QUEUES = 100
MAX_TOKEN_S = 10 * 366 * 86_400
MAX_GRACE_S = 30 * 86_400
Lifetime = Annotated[int, Meta(ge=0, le=MAX_TOKEN_S)]


class LoginView(msgspec.Struct, frozen=True):
    """An address that logs one browser in once."""

    path: str


class SessionForm(msgspec.Struct, frozen=True):
    """The code of a login address."""

    code: str


class SessionView(msgspec.Struct, frozen=True):
    """A token for one browser."""

    token: str
    expires_in_s: int


class IdentityView(msgspec.Struct, frozen=True):
    """Who makes this request, as the server sees it."""

    name: str
    role: str
    queues: list[str]  # into which they may submit, with those below; `*`: all
    rights: list[str]
    credential: str  # the ID of the token, or the name of the login
    expires_in_s: int  # 0: never


class TokenView(msgspec.Struct, frozen=True):
    """A person's token. Its secret is shown once, when it is made."""

    id: str
    name: str  # of the person
    role: str
    state: str  # valid | expired | revoked
    queues: list[str]
    created_s: int
    created_by: str
    expires_s: int  # 0: never
    last_used_s: int  # exact to the hour; 0: never
    revoked_s: int  # 0: not
    rotations: int
    former_until_s: int  # until then the secret before the last rotation is good; 0: it is not


class NewTokenView(msgspec.Struct, frozen=True):
    """A token with its new secret, which is not stored and cannot be shown again."""

    token: TokenView
    secret: str


class TokenForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new token for a person."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+:-]*$", max_length=MAX_NAME)]
    role: Literal["viewer", "user", "operator", "admin", "scraper"]
    queues: Annotated[list[str], Meta(max_length=MAX_TOKEN_QUEUES)] = []  # for the role user; ["*"]: all
    expires_in_s: Lifetime = 90 * 86_400  # 0: never


class RotateForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the present secret stays good, and when the token ends (unset: as before)."""

    grace_s: Annotated[int, Meta(ge=0, le=MAX_GRACE_S)] = 86_400
    expires_in_s: Lifetime | UnsetType = UNSET
