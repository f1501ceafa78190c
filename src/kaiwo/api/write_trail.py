"""The audit of one write through the API: that it began, what it changed, and how it ended.

In:    the request's person, and the changes that its endpoint reports.   Out: records of the audit.
Never: records a request's body, or a secret.

A write is recorded before it is done, so that no change is without a record wherever Kaiwo is killed; one that cannot
be recorded is refused.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from kaiwo.api.context import Context
from kaiwo.api.http.query_params import Param
from kaiwo.api.security.roles import NOBODY, Identity
from kaiwo.history.audit import AuditEntry
from kaiwo.history.audit.audit_record import BEGUN, FAILED, REFUSED

REASON = Param("reason", "text", "Why you make this change, for the audit.", "", pattern=r"^[^\x00-\x1f\x7f]*$",
               example="one line of text")  # fmt: skip
MANY = 50  # records from which on they are written on a thread
_ACTIONS = {
    "POST /workloads": "submit",
    "DELETE /workloads/{namespace}/{name}": "cancel",
    "POST /manifests": "apply",
    "POST /manifests/delete": "delete",
    "POST /reservations": "put-reservation",
    "DELETE /reservations/{name}": "remove-reservation",
    "POST /partitions/policy": "set-partition-policy",
    "DELETE /demo": "clear-demo",
    "POST /plugins/{name}/enable": "enable-plugin",
    "POST /plugins/{name}/disable": "disable-plugin",
    "POST /plugins/{name}/reload": "reload-plugin",
    "POST /what-if": "ask-what-if",
    "POST /defragmentation/plan": "plan-moves",
    "POST /defragmentation/run": "run-moves",
    "POST /defragmentation/abort": "abort-moves",
    "POST /alerts/silences": "silence-alerts",
    "DELETE /alerts/silences/{id}": "end-silence",
    "POST /alerts/channels/{name}/test": "test-alert-channel",
    "POST /logins": "create-login",
    "DELETE /logins": "log-out",
    "POST /sessions": "log-in",
    "POST /api/agents/{node}/reports": "report",
    "POST /tokens/{id}/rotate": "rotate-token",
    "DELETE /tokens/{id}": "revoke-token",
}


class WriteTrail:
    """What one request writes into the audit."""

    def __init__(self, context: Context, method: str, path: str, params: Mapping[str, str]) -> None:
        self._context = context
        self.action = action_of(method, path)
        self.person: Identity = NOBODY
        self.reason = ""
        self._object = object_of(path, params)
        self._begun = 0
        self._has_begun = False
        self._entries: list[AuditEntry] = []

    def begin(self, reason: str) -> None:
        """Record that this write begins. Raises ClusterError when the audit cannot be written."""
        self.reason = reason
        self._context.audit.check_writable()
        self._begun = self._context.audit.record(self._entry(outcome=BEGUN))
        self._has_begun = True
        self._context.audit.check_writable()  # also when the disk was found full only now

    def changed(self, name: str, old: Any = None, new: Any = None, action: str = "") -> None:
        """One object that was changed; of structs, only the fields that differ are recorded."""
        before, after = differences(old, new)
        self._entries.append(self._entry(object=name, old=before, new=after, action=action or self.action))

    def refused(self, name: str, why: str) -> None:
        """One of several objects that was not changed."""
        self._entries.append(self._entry(object=name, outcome=REFUSED, detail=why))

    async def end(self, status: int, problem: str) -> None:
        """Record how it ended: what was changed, or why nothing was."""
        entries = self._entries
        if status >= 400:
            entries = [*entries, self._entry(outcome=REFUSED if status < 500 else FAILED, detail=problem)]
        if not self._has_begun:
            return self._refused_early(entries)
        entries = entries or [self._entry()]
        if len(entries) > MANY:
            await asyncio.to_thread(self._context.audit.record, *entries)
        else:
            self._context.audit.record(*entries)

    def record_now(self, **fields: Any) -> None:
        """Something that is not the end of this request."""
        self._context.audit.record(self._entry(**fields))

    def _refused_early(self, entries: list[AuditEntry]) -> None:
        """It never began. Strangers cannot fill the audit: of many such requests, some are recorded and all counted."""
        if not entries:
            return
        refusals = self._context.refusals
        if not refusals.take():
            self._context.unrecorded_refusals += 1
            return
        count, self._context.unrecorded_refusals = self._context.unrecorded_refusals, 0
        more = [self._entry(action="refused-requests", object="", new=count, outcome=REFUSED)] if count else []
        self._context.audit.record(*more, *entries)

    def _entry(self, **fields: Any) -> AuditEntry:
        person = self.person
        known = person is not NOBODY
        return AuditEntry(**{
            "action": self.action,
            "object": self._object,
            "person": person.name,
            "role": person.role.value if known else "",
            "credential": person.credential,
            "reason": self.reason,
            "of": self._begun,
            **fields,
        })  # fmt: skip


def action_of(method: str, path: str) -> str:
    """`drain` for POST /nodes/{name}/drain; `delete-token` for DELETE /tokens/{id}."""
    if known := _ACTIONS.get(f"{method} {path}"):
        return known
    parts = [part for part in path.split("/") if part]
    if len(parts) > 1 and not parts[-1].startswith("{"):
        return parts[-1]
    verb = {"POST": "create", "PUT": "put", "PATCH": "change", "DELETE": "delete"}.get(method, method.lower())
    return f"{verb}-{parts[0].removesuffix('s')}"


def object_of(path: str, params: Mapping[str, str]) -> str:
    """`node/node-3` for /nodes/{name}/drain."""
    parts = [part for part in path.removeprefix("/api").split("/") if part]
    names = [params.get(part[1:-1], "") for part in parts if part.startswith("{")]
    kind = parts[0]
    return "/".join((kind.removesuffix("s"), *names)) if names else kind


def differences(old: Any, new: Any) -> tuple[Any, Any]:
    """Both as plain values; of two structs of one kind, the fields in which they differ."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    if isinstance(old, msgspec.Struct) and type(old) is type(new):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}
    return before, after
