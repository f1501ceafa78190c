"""The routes of the past of workloads: one in all details, and the list of those that ended."""

import asyncio
from typing import Annotated

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import quote
from kaiwo.api.http.query_params import Param, read_cursor, write_cursor
from kaiwo.api.presenters.list_pages import AFTER, TEXT
from kaiwo.api.presenters.past_view import ended_work_view, history_view
from kaiwo.api.routes.workloads import NAMED, find_record
from kaiwo.api.views.answers import Page
from kaiwo.api.views.past import EndedWorkView, HistoryView
from kaiwo.history.past.happenings import LifeKey
from kaiwo.history.past.past_reader import PastQuery
from kaiwo.history.past.timeline import read_timeline
from kaiwo.model.errors import NotFoundError
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState

LATEST_S = 2**40
StoredInt = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # the file has no larger ones
OVER = tuple(state.value for state in WorkloadState if state.is_over)
SUBMISSION = Param("submission", "int", "Number of the submission of this name (default: latest).", None, 1, LATEST_S)
LIST_PARAMS = (
    Param("limit", "int", "Items on a page.", 50, 1, 500),
    AFTER,
    Param("since", "int", "Only what ended at this time, in seconds, or later.", 0, 0, LATEST_S),
    Param("last", "int", "Only what ended in so many last seconds.", None, 1, LATEST_S),
    Param("queue", "text", "Only of this queue and those below it."),
    Param("user", "text", "Only of this user."),
    Param("state", "choices", "Only what ended so; repeat it, or give several with commas.", choices=OVER),
    TEXT,
)


async def get_history(call: EndpointCall) -> HistoryView:
    async with call.context.turns.of(call.person):  # all readers share one file, and threads with everybody else
        return await _history(call)


async def _history(call: EndpointCall) -> HistoryView:
    live, past = call.context.live, call.context.past
    await past.flush()
    name, asked = f"{call.path['namespace']}/{call.path['name']}", call.query["submission"]
    numbers = await asyncio.to_thread(past.reader.numbers_of, name)
    record = _record(call, name, asked, bool(numbers))
    kept = live.cluster.abilities.past
    if record is not None and kept is not None:
        number = record.submission
        numbers = sorted({*numbers, *kept.submissions_of(name)})
        attempts = kept.attempts_of(name, number)
    else:
        number = asked or (record.workload.submitted_s if record is not None else numbers[-1])
        attempts = None
    now_s = live.cluster.now_s()
    timeline = await asyncio.to_thread(read_timeline, past.reader, LifeKey(name, number), now_s)
    if timeline is None and (record is None or (kept is None and asked not in (None, record.workload.submitted_s))):
        raise NotFoundError(f"there is no submission {number} of workload {quote(name)}; there are: {_listed(numbers)}")
    return history_view(record, timeline, attempts, numbers, now_s, live.cluster.kind)


def _record(call: EndpointCall, name: str, asked: int | None, is_past: bool) -> WorkloadRecord | None:
    """What the cluster itself says of this submission; None: only the past knows of it."""
    past = call.context.live.cluster.abilities.past
    try:
        record = find_record(call)
        if past is not None:
            return record if asked is None else past.submission(name, asked)
        return record if asked in (None, record.workload.submitted_s) else None
    except NotFoundError:
        if not is_past:
            raise
        return None


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


async def list_ended(call: EndpointCall) -> Page[EndedWorkView]:
    query, past, overview = call.query, call.context.past, call.context.overview
    since_s = query["since"] if query["last"] is None else call.context.live.cluster.now_s() - query["last"]
    asked = PastQuery(
        since_s=max(0, since_s),
        queues=sorted({query["queue"], *overview.queues_below(query["queue"])}) if query["queue"] else (),
        user=query["user"] or "",
        states=query["state"],
        text=query["q"] or "",
        before=read_cursor(query["after"], tuple[StoredInt, StoredInt]),
        limit=query["limit"],
    )
    async with call.context.turns.of(call.person):
        await past.flush()
        found = await asyncio.to_thread(past.reader.ended, asked)
    items = [ended_work_view(life) for life in found.lives]
    return Page(items, found.total, "" if found.next is None else write_cursor(found.next))


ROUTES = (
    Route("GET", "/history", "Workloads that have ended, the last one first.", list_ended, Page[EndedWorkView],
          params=LIST_PARAMS),
    Route("GET", NAMED + "/history", "All that is known of its past.", get_history, HistoryView,
          params=(SUBMISSION,), errors=(404,)),
)  # fmt: skip
