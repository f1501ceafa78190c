"""Routes about queues and their fair shares."""

import asyncio
from typing import Any, NoReturn

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import did_you_mean, not_found, quote
from kaiwo.api.presenters.queue_view import QueueHeads, queue_page, share_page
from kaiwo.api.views.answers import Page
from kaiwo.api.views.queues import QueueView, ShareView
from kaiwo.manifests.write_manifest import queue_document


async def list_queues(call: EndpointCall) -> Page[QueueView]:
    await call.context.overview.fresh_queues()
    return queue_page(call.context.overview)


async def get_queue(call: EndpointCall) -> QueueView:
    views = {view.name: view for view in (await list_queues(call)).items}
    return views.get(call.path["name"]) or _not_found(call.path["name"], list(views))


async def get_queue_manifest(call: EndpointCall) -> dict[str, Any]:
    queues = call.context.live.state.queue_objects
    found = queues.get(call.path["name"])
    return queue_document(found) if found is not None else _not_found(call.path["name"], list(queues))


async def list_shares(call: EndpointCall) -> Page[ShareView]:
    await call.context.overview.fresh_queues()
    queues = call.context.overview.queue_shares.queues
    heads = QueueHeads(call.context.live.state, [each.queue.name for each in queues])
    return await asyncio.to_thread(share_page, queues, heads)


async def get_share(call: EndpointCall) -> ShareView:
    await call.context.overview.fresh_queues()
    rows = {each.queue.name: each for each in call.context.overview.queue_shares.queues}
    found = rows.get(call.path["name"])
    if found is None:
        _not_found(call.path["name"], list(rows))
    above = [rows[found.queue.parent]] if found.queue.parent in rows else []
    return share_page([*above, found], QueueHeads(call.context.live.state, [found.queue.name])).items[-1]


def _not_found(name: str, names: list[str]) -> NoReturn:
    raise not_found(f"there is no queue {quote(name)}{did_you_mean(name, names[:50])}")


ROUTES = (
    Route("GET", "/queues", "List queues, parents before children.", list_queues, Page[QueueView]),
    Route("GET", "/queues/{name}", "One queue with its numbers.", get_queue, QueueView, errors=(404,)),
    Route("GET", "/queues/{name}/manifest", "Its manifest, which can be applied again.", get_queue_manifest,
          dict[str, Any], errors=(404, 409)),
    Route("GET", "/shares", "The fair shares of all queues, every term of them.", list_shares, Page[ShareView]),
    Route("GET", "/shares/{name}", "The fair share of one queue, every term of it.", get_share, ShareView,
          errors=(404,)),
)  # fmt: skip
