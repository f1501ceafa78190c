"""The route that lists the audit, from the newest record to the oldest."""

import asyncio
import datetime

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import invalid
from kaiwo.api.http.query_params import Param
from kaiwo.api.views.audit import AuditPageView, AuditRecordView
from kaiwo.history.audit import AuditFilter, AuditRecord, read_page

PARAMS = (
    Param("person", "text", "Only what this person did."),
    Param("object", "text", "Only writes to this object, such as node/node-3, or to objects of this kind."),
    Param("action", "text", "Only this action, such as drain."),
    Param("since", "text", "Only from this time on, such as 2026-01-31T18:00:00Z."),
    Param("newer_than", "int", "Only records with a higher number.", 0, 0, 10**15),
    Param("before", "int", "Only records with a lower number: `next` of the page before.", 0, 0, 10**15),
    Param("limit", "int", "At most this many records.", 100, 1, 1000),
)


async def list_audit(call: EndpointCall) -> AuditPageView:
    """A page reads a bounded part of the audit: it may have fewer records than asked for, and still a next page."""
    query = call.query
    chosen = AuditFilter(
        person=query["person"] or "",
        action=query["action"] or "",
        object=query["object"] or "",
        since=_utc(query["since"]) if query["since"] else "",
        after=query["newer_than"],
        before=query["before"],
    )
    page = await asyncio.to_thread(read_page, call.context.audit.folder, chosen, query["limit"])
    return AuditPageView([_view(record) for record in page.records], page.next, page.head.count, page.head.hash)


def _view(record: AuditRecord) -> AuditRecordView:
    return AuditRecordView(
        n=record.n,
        at=record.at,
        person=record.person,
        role=record.role,
        credential=record.credential,
        action=record.action,
        object=record.object,
        old=_json(record.old),
        new=_json(record.new),
        reason=record.reason,
        outcome=record.outcome,
        detail=record.detail,
    )


def _json(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _utc(text: str) -> str:
    """As the records have it, so that the texts can be compared."""
    try:
        at = datetime.datetime.fromisoformat(text)
        at = at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
        return at.astimezone(datetime.UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        raise invalid("since must be a time, such as 2026-01-31T18:00:00Z", "since") from None


ROUTES = (
    Route(
        "GET", "/audit", "Who changed what, newest first.", list_audit, AuditPageView, params=PARAMS,
        needs_state=False,
    ),
)  # fmt: skip
