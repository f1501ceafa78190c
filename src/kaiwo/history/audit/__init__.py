"""The audit: who changed what, as records that hold the hash of the record before them."""

from kaiwo.history.audit.audit_log import AuditLog
from kaiwo.history.audit.audit_record import AuditEntry, AuditRecord
from kaiwo.history.audit.read_audit import AuditFilter, AuditPage, read_page
from kaiwo.history.audit.verify_audit import AuditFinding, AuditReport, verify_audit

__all__ = [
    "AuditEntry",
    "AuditFilter",
    "AuditFinding",
    "AuditLog",
    "AuditPage",
    "AuditRecord",
    "AuditReport",
    "read_page",
    "verify_audit",
]
