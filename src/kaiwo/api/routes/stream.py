"""GET /stream: follow a page of a list as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.query_params import Param, read_query
from kaiwo.api.http.streaming_response import Streaming
from kaiwo.api.presenters.list_pages import LISTINGS
from kaiwo.api.presenters.live_pages import LivePage
from kaiwo.api.security.roles import AccessRole

HEARTBEAT_S = 15.0
EVENTS = "text/event-stream"
VIEW = Param("view", "choice", "Which list to follow.", choices=tuple(LISTINGS), required=True)


async def follow(call: EndpointCall) -> Streaming:
    """The first event is the whole page, or what was missed since Last-Event-ID; then every change."""
    context = call.context
    listing = LISTINGS[call.query["view"]]
    params = read_query(call.request.query_params, (VIEW, *listing.params))
    query = listing.to_query(params)
    context.streams.check_limit(call.user, call.person.role is AccessRole.ADMIN)
    page = await context.live_pages.subscribe(listing, query)
    seen = call.request.headers.get("last-event-id", "")
    leave = partial(context.live_pages.unsubscribe, page)
    return Streaming(context.streams, call.user, events(page, seen), EVENTS, leave, call.until_over)


async def events(page: LivePage, seen: str) -> AsyncGenerator[bytes, None]:
    """A reader who is too slow skips changes and gets the whole page again."""
    yield b"retry: 1000\n\n"
    while True:
        missed, seen = page.events_after(seen), page.event_id
        if missed:
            yield b"".join(missed)
        if page.event_id != seen:
            continue
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await page.changed.wait()
        except TimeoutError:
            yield b": still here\n\n"


def _all_params() -> tuple[Param, ...]:
    """Every list's parameters, each once and as wide as the widest; `follow` applies each view's own."""
    found: dict[str, Any] = {VIEW.name: VIEW}
    for view in ("workloads", "nodes", "gpus"):
        for param in LISTINGS[view].params:
            if param.name not in found or param.high > found[param.name].high:
                found[param.name] = param
    return tuple(found.values())


SUMMARY = "Follow a page: the first event is `reset` with the whole page, then `delta` with what changed."
ROUTES = (Route("GET", "/stream", SUMMARY, follow, EVENTS, params=_all_params()),)
