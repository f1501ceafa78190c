"""Read the audit of a home folder in tests."""

from pathlib import Path

from kaiwo.history.audit import AuditFilter, AuditRecord, read_page
from kaiwo.history.audit.verify_audit import verify_audit


def audit_of(home: Path) -> list[AuditRecord]:
    """All records in order, without those about the audit itself; the chain must be whole."""
    assert verify_audit(home / "audit").findings == ()
    records = read_page(home / "audit", AuditFilter(), 10**6).records[::-1]
    return [record for record in records if not record.action.startswith("audit-")]


def done_by_people(home: Path) -> list[tuple[str, str]]:
    """Action and object of everything that people did, in order."""
    return [
        (each.action, each.object) for each in audit_of(home) if each.person != "scheduler" and each.outcome == "done"
    ]
