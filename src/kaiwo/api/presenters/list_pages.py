"""The lists that can be paged and followed: their parameters, their pages, and the keys of their items.

A plain GET and a stream of the same address show the same page, since both come from here.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from kaiwo.api.http.query_params import LABEL_PATTERN, Param, foreign_cursor, label_pairs, read_cursor
from kaiwo.api.presenters.cluster_view import status_view
from kaiwo.api.presenters.node_view import GpuQuery, NodeQuery, gpu_page, node_page
from kaiwo.api.presenters.queue_view import queue_page
from kaiwo.api.presenters.workload_view import workload_page
from kaiwo.api.views.answers import Page
from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.overview.workload_pages import SORTS, PageStart, WorkloadQuery

AFTER = Param("after", "text", "The `next` of the page before.")
LABEL_HELP = "Only with this label; repeat it for several."
LABEL = Param("label", "words", LABEL_HELP, pattern=LABEL_PATTERN, example="key=value")
STATES = tuple(WorkloadState)
SORT_CHOICES = tuple(sign + name for name in SORTS for sign in ("", "-"))
SORT_HELP = "The order; with a leading '-' the largest first. Equal ones come in the order of their names."
TEXT = Param("q", "text", "Only names that contain this.")

NODE_PARAMS = (Param("limit", "int", "Items on a page.", 50, 1, 2000), AFTER, TEXT, LABEL)
GPU_PARAMS = (
    Param("limit", "int", "Items on a page.", 50, 1, 1000),
    AFTER,
    Param("node", "text", "Only on this node."),
    Param("model", "text", "Only of this model."),
    Param("free", "flag", "true: only devices with nothing on them that can take work now; false: only the others."),
)
WORKLOAD_PARAMS = (
    Param("limit", "int", "Items on a page.", 50, 1, 500),
    AFTER,
    Param("state", "choices", "Only in this state; repeat it, or give several with commas.", choices=STATES),
    Param("queue", "text", "Only of this queue and those below it."),
    Param("user", "text", "Only of this user."),
    Param("namespace", "text", "Only in this namespace."),
    Param("node", "text", "Only what has pods on this node."),
    LABEL,
    TEXT,
    Param("ended_since", "int", "Only what ended at this time, in seconds, or later.", 0, 0, 2**40),
    Param("fold", "flag", "Show the tasks of an array as one item.", False),
    Param("sort", "choice", SORT_HELP, "-submitted", choices=SORT_CHOICES),
)


class Listing(msgspec.Struct, frozen=True):
    """One list. `to_query` turns parameters into a hashable query, which `page` answers; call `fresh` first."""

    view: str
    key: str  # how a stream names items
    params: tuple[Param, ...]
    to_query: Callable[[dict[str, Any]], Any]
    page: Callable[[ClusterOverview, Any], Page[Any]]
    key_of: Callable[[Any], str]
    needs_queues: bool = False  # to be called after `overview.fresh_queues`


COUNT_PARAMS = tuple(
    each for each in WORKLOAD_PARAMS if each.name in ("state", "queue", "user", "namespace", "node", "label", "q")
)


def workload_query(query: dict[str, Any]) -> WorkloadQuery:
    """Which workloads, without an order or a page."""
    return WorkloadQuery(
        states=tuple(WorkloadState(state) for state in query["state"]),
        queue=query["queue"] or "",
        user=query["user"] or "",
        namespace=query["namespace"] or "",
        node=query["node"] or "",
        labels=label_pairs(query["label"]),
        text=query["q"] or "",
    )


def _workload_query(query: dict[str, Any]) -> WorkloadQuery:
    after = read_cursor(query["after"], PageStart)
    if after is not None and after.sort != query["sort"]:
        raise foreign_cursor()
    return replace(
        workload_query(query),
        ended_since_s=query["ended_since"],
        sort=query["sort"],
        after=after,
        limit=query["limit"],
        folds=query["fold"],
    )


def _node_query(query: dict[str, Any]) -> NodeQuery:
    read_cursor(query["after"], str)
    return NodeQuery(query["q"] or "", label_pairs(query["label"]), query["after"], query["limit"])


def _gpu_query(query: dict[str, Any]) -> GpuQuery:
    read_cursor(query["after"], tuple[str, int])
    return GpuQuery(query["node"] or "", query["model"] or "", query["free"], query["after"], query["limit"])


def _no_query(_: dict[str, Any]) -> None:
    return None


def _name(item: Any) -> str:
    return str(item.name)


LISTINGS: dict[str, Listing] = {
    listing.view: listing
    for listing in (
        Listing(
            "status",
            "cluster",
            (),
            _no_query,
            lambda overview, _: Page([status_view(overview)], 1),
            lambda _: "cluster",
        ),
        Listing("nodes", "name", NODE_PARAMS, _node_query, node_page, _name),
        Listing("gpus", "node/id", GPU_PARAMS, _gpu_query, gpu_page, lambda gpu: f"{gpu.node}/{gpu.id}"),
        Listing("queues", "name", (), _no_query, lambda overview, _: queue_page(overview), _name, needs_queues=True),
        Listing("workloads", "name", WORKLOAD_PARAMS, _workload_query, workload_page, _name),
    )
}


async def list_page(overview: ClusterOverview, view: str, params: dict[str, Any]) -> Page[Any]:
    listing = LISTINGS[view]
    query = listing.to_query(params)
    await overview.fresh()
    return listing.page(overview, query)
