"""Roles, and the rights that each has. Every route names the right that it needs.

`Identity` is who made a request: it is in the audit, and its name owns what it submits.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

ALL_QUEUES = "*"
TOKEN = "token"  # the credential of the one who can read KAIWO_HOME/token


class Right(StrEnum):
    """What a route requires."""

    NONE = "none"  # probes, and the exchange of a login code
    SCRAPE = "scrape"  # metrics
    REPORT = "report"  # a node agent's stream
    READ = "read"
    SUBMIT = "submit"  # submit work, and change one's own
    OPERATE = "operate"  # change nodes, reservations, and everybody's work
    ADMINISTER = "administer"  # change queues, partition policies, and who may do what


class AccessRole(StrEnum):
    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"
    SCRAPER = "scraper"
    AGENT = "agent"


_VIEWER = frozenset({Right.NONE, Right.SCRAPE, Right.READ})
RIGHTS: dict[AccessRole, frozenset[Right]] = {
    AccessRole.VIEWER: _VIEWER,
    AccessRole.USER: _VIEWER | {Right.SUBMIT},
    AccessRole.OPERATOR: _VIEWER | {Right.SUBMIT, Right.OPERATE},
    AccessRole.ADMIN: frozenset(Right),
    AccessRole.SCRAPER: frozenset({Right.NONE, Right.SCRAPE}),
    AccessRole.AGENT: frozenset({Right.NONE, Right.REPORT}),
}


GIVEN_TO_PEOPLE = (AccessRole.VIEWER, AccessRole.USER, AccessRole.OPERATOR, AccessRole.ADMIN, AccessRole.SCRAPER)
# What a refusal calls the right that was missing, and the roles that have it.
RIGHT_WORDS: dict[Right, str] = {
    Right.SCRAPE: "read metrics",
    Right.REPORT: "report for nodes",
    Right.READ: "read",
    Right.SUBMIT: "submit or change work",
    Right.OPERATE: "change nodes, reservations or other people's work",
    Right.ADMINISTER: "change queues, policies or tokens",
}


class Identity(msgspec.Struct, frozen=True):
    """Who made a request, and how they proved it."""

    name: str  # of the person
    role: AccessRole
    credential: str  # for the log and the audit: `token`, the ID of a person's token, or the name of a session
    queues: tuple[str, ...] = (ALL_QUEUES,)  # into which they may submit; with each, those below it
    token_id: str = ""  # of the person's token with which they came, or logged in; empty: it was another credential
    secret_number: int = 0  # which secret of that token: each rotation makes the next one
    rights: frozenset[Right] | None = None  # as Kubernetes grants them; None: those of the role

    def has(self, right: Right) -> bool:
        return right in (RIGHTS[self.role] if self.rights is None else self.rights)

    @property
    def is_owner(self) -> bool:
        """Whether they can read KAIWO_HOME/token: nobody else may slow them down."""
        return self.credential == TOKEN

    @property
    def is_of_kubernetes(self) -> bool:
        """Whether Kubernetes knows this person and grants their rights."""
        return self.rights is not None

    def owns(self, user: str) -> bool:
        """Whether work of this user is their own. Work of an unknown user is nobody's."""
        return bool(user) and user == self.name


NOBODY = Identity("", AccessRole.SCRAPER, "")  # of a request that needs no right


def role_with(rights: frozenset[Right]) -> AccessRole:
    """The role of people that comes closest to these rights without having more."""
    found = [role for role in GIVEN_TO_PEOPLE if RIGHTS[role] - {Right.REPORT} <= rights]
    return max(found, key=lambda role: len(RIGHTS[role]), default=AccessRole.SCRAPER)


def roles_with(right: Right) -> Sequence[AccessRole]:
    """The roles of people that have this right."""
    return [role for role in GIVEN_TO_PEOPLE if right in RIGHTS[role]]
