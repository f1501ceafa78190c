"""The scheduling policy."""

from typing import Any

import msgspec


class PolicyFieldView(msgspec.Struct, frozen=True):
    """A field that differs, as the policy file writes it."""

    field: str
    before: str
    after: str


class PolicyChangeView(msgspec.Struct, frozen=True):
    """One change of the policy while Kaiwo runs."""

    at_s: int
    by: str
    reason: str
    fields: list[PolicyFieldView]


class PolicyView(msgspec.Struct, frozen=True):
    """The policy in force: the fields of docs/policy.md that are not as by default."""

    policy: dict[str, Any]
    source: str  # where it comes from: a file, the default, or a change
    changes: list[PolicyChangeView]  # the newest first; those that can be undone


class PolicyChangeForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either a whole policy file, or single fields."""

    file: str = ""  # YAML: replaces the whole policy
    set: dict[str, str] = {}  # by field, such as `topology.strategy`; an empty value: its default
    dry_run: bool = False  # only check, and say what would change


class PolicyOutcome(msgspec.Struct, frozen=True):
    """What changed, or would."""

    fields: list[PolicyFieldView]
    message: str
