"""The audit log."""

import msgspec


class AuditRecordView(msgspec.Struct, frozen=True):
    """One change: who made it, and how it ended. `old` and `new` are JSON; empty: there was none."""

    n: int
    at: str
    person: str
    role: str
    credential: str
    action: str
    object: str
    old: str
    new: str
    reason: str
    outcome: str  # done | refused | failed | begun: nothing says how it ended
    detail: str


class AuditPageView(msgspec.Struct, frozen=True):
    """Records of the audit, the newest first. `next` is `before` of the next page; 0 at the end."""

    items: list[AuditRecordView]
    next: int
    count: int  # number of the last record of all
    head: str  # its hash
