"""Routes about queues."""

from kaiwo.api.clusterviews import queue_page
from kaiwo.api.problems import did_you_mean, not_found, quote
from kaiwo.api.routes import Call, Route
from kaiwo.api.views import Page, QueueView


async def list_queues(call: Call) -> Page[QueueView]:
    """Every queue, parents before children."""
    await call.context.board.fresh()
    return queue_page(call.context.board)


async def get_queue(call: Call) -> QueueView:
    """One queue."""
    name = call.path["name"]
    page = await list_queues(call)
    for view in page.items:
        if view.name == name:
            return view
    raise not_found(f"there is no queue {quote(name)}{did_you_mean(name, [view.name for view in page.items[:50]])}")


ROUTES = (
    Route("GET", "/queues", "List queues, parents before children.", list_queues, Page[QueueView]),
    Route("GET", "/queues/{name}", "One queue with its arithmetic.", get_queue, QueueView, may=(404,)),
)
