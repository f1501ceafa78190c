"""Describe a write to the API server for the audit: what was done to which object, and how it ended.

Not recorded: Leases, which are renewed every few seconds; Events, which are records themselves; dry runs; and reviews,
which change nothing.
"""

from typing import Any
from urllib.parse import unquote

import msgspec

from kaiwo.clusters.kubernetes.client.errors import ApiError, StandbyError, UnreachableError
from kaiwo.model.cluster_write import ClusterWrite

_UNRECORDED = ("/events", "/leases", "reviews", "?dryRun=")
_SECRET_KINDS = ("secrets", "configmaps")  # their contents are not for the audit
_SUBRESOURCE_ACTIONS = {"binding": "bind", "eviction": "evict", "status": "patch-status"}
_METHOD_ACTIONS = {"PATCH": "patch", "POST": "create", "PUT": "replace", "DELETE": "delete"}


def describe_write(
    method: str, path: str, body: bytes | None, reason: str, account: str, error: Exception | None
) -> ClusterWrite | None:
    """None: this write is not recorded."""
    if isinstance(error, StandbyError) or any(each in path for each in _UNRECORDED):
        return None
    kind, name, subresource = _object(path)
    outcome, detail = "done", ""
    if error is not None:
        outcome = "refused" if isinstance(error, ApiError) else "failed"
        detail = error.message if isinstance(error, ApiError | UnreachableError) else type(error).__name__
    new: Any = None
    if body is not None and subresource != "eviction" and kind not in _SECRET_KINDS:
        new = msgspec.Raw(body)
    return ClusterWrite(
        _SUBRESOURCE_ACTIONS.get(subresource) or _METHOD_ACTIONS.get(method, method.lower()),
        f"{kind.removesuffix('s')}/{name}",
        reason,
        new=new,
        account=account,
        outcome=outcome,
        detail=detail,
    )


def _object(path: str) -> tuple[str, str, str]:
    """Kind, name and subresource of `/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME/SUBRESOURCE`."""
    parts = [unquote(part) for part in path.partition("?")[0].split("/") if part]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    kind, name, subresource = (*parts, "", "", "")[:3]
    return kind, "/".join(filter(None, (namespace, name))), subresource
