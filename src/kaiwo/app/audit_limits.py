"""Read the options that say how much of the audit is kept."""

from typing import TypedDict

from kaiwo.app.options import ServerOptions
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.quantities import read_duration_s, read_memory_bytes


class AuditLimits(TypedDict):
    audit_keep_s: int
    audit_bytes: int


def audit_limits(options: ServerOptions) -> AuditLimits:
    return AuditLimits(
        audit_keep_s=read_duration_s(options.audit_keep, FieldPath("", "--audit-keep")),
        audit_bytes=read_memory_bytes(options.audit_size, FieldPath("", "--audit-size")),
    )
