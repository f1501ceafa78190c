"""Routes about the whole cluster: version, status, cycles."""

import asyncio

from kaiwo import __version__
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.query_params import Param, read_cursor, write_cursor
from kaiwo.api.presenters.cluster_view import cycle_view, status_view
from kaiwo.api.presenters.cycle_detail_view import cycle_detail
from kaiwo.api.presenters.list_pages import AFTER
from kaiwo.api.views.answers import Page
from kaiwo.api.views.cluster import CycleView, StatusView, VersionView
from kaiwo.api.views.cycle_detail import CycleDetailView
from kaiwo.model.errors import NotFoundError

CYCLE_PARAMS = (Param("limit", "int", "Items on a page.", 50, 1, 500), AFTER)


async def version(call: EndpointCall) -> VersionView:
    return VersionView(__version__, "v1")


async def status(call: EndpointCall) -> StatusView:
    await call.context.overview.fresh()
    return status_view(call.context.overview)


async def cycles(call: EndpointCall) -> Page[CycleView]:
    """Cycles from the journal. Idle ones are not in it, so `total` is the newest number."""
    journal, limit = call.context.live.journal, call.query["limit"]
    before = read_cursor(call.query["after"], int)
    heads = await asyncio.to_thread(journal.cycles, limit + 1, before)
    items = [cycle_view(head) for head in heads[:limit]]
    more = write_cursor(items[-1].number) if len(heads) > limit else ""
    newest = call.context.live.last_cycle
    return Page(items, newest.number if newest else len(items), more)


async def cycle(call: EndpointCall) -> CycleDetailView:
    """The cycle is decided again in a worker, one question of each person at a time."""
    text = call.path["number"]
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise NotFoundError(f"'{text[:40]}' is not the number of a cycle; list them with: kaiwo get cycles")
    async with call.context.turns.of(call.person):
        answer = await call.context.replays.decide_again(int(text), call.person.is_owner)
    return cycle_detail(int(text), answer)


ROUTES = (
    Route("GET", "/version", "The versions of Kaiwo and of its API.", version, VersionView, needs_state=False),
    Route("GET", "/status", "The cluster on one screen.", status, StatusView),
    Route("GET", "/cycles", "Scheduling cycles, the newest first.", cycles, Page[CycleView], params=CYCLE_PARAMS),
    Route(
        "GET",
        "/cycles/{number}",
        "What a cycle saw and decided, decided again, with the scores of nodes.",
        cycle,
        CycleDetailView,
        errors=(404,),
    ),
)
