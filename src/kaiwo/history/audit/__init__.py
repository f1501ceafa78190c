"""The audit: who changed what, as records that hold the hash of the record before them.

`verify_audit` is imported from its module: only the CLI and tests check the chain, and every start would load it.
"""

from kaiwo.history.audit.audit_log import AuditLog
from kaiwo.history.audit.audit_record import AuditEntry, AuditRecord
from kaiwo.history.audit.read_audit import AuditFilter, AuditPage, read_page

__all__ = [
    "AuditEntry",
    "AuditFilter",
    "AuditLog",
    "AuditPage",
    "AuditRecord",
    "read_page",
]
