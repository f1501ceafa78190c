"""Fetch a list from the API and print it as a table, JSON, YAML or names."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from kaiwo.api.views import Page
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.lists.columns import gpu_state, shown_columns, table_row
from kaiwo.cli.lists.list_options import ListRequest
from kaiwo.cli.lists.object_kinds import GPUS, NODES, QUEUES, RESERVATIONS, WORKLOADS, ObjectKind
from kaiwo.cli.lists.read_object import server_time
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import lay_out


def fetch_list(server: ApiClient, kind: ObjectKind, request: ListRequest) -> tuple[list[Any], int]:
    """The items as plain data, and how many there are in total."""
    query = server_query(kind, request)
    wanted = request.limit if not _is_filtered_here(kind, request) else 0
    items: list[Any] = []
    while True:
        if kind.page_limit:
            query["limit"] = min(kind.page_limit, wanted - len(items)) if wanted else kind.page_limit
        page = server.decode(server.get(kind.path, query), Page[Any])
        items += page.items
        if not page.next or not page.items or (wanted and len(items) >= wanted):
            return items, page.total
        query["after"] = page.next


def server_query(kind: ObjectKind, request: ListRequest) -> dict[str, Any]:
    """The query for what the server filters and sorts."""
    query: dict[str, Any] = dict(request.query)
    if request.labels:
        query["label"] = list(request.labels)
    if kind is WORKLOADS:
        if request.states:
            query["state"] = ",".join(request.states)
        if request.queue:
            query["queue"] = request.queue
        if request.sort_by:
            query["sort"] = _server_sort(kind, request.sort_by)
    return query


def filter_and_sort(kind: ObjectKind, request: ListRequest, views: Sequence[Any]) -> list[Any]:
    """Apply what the server does not support: some filters and orders, and the queue tree."""
    shown = list(views)
    if kind is NODES and request.states:
        shown = [node for node in shown if node.state in request.states]
    if kind is GPUS and request.states:
        shown = [gpu for gpu in shown if gpu_state(gpu) in request.states]
    if kind is RESERVATIONS and request.states:
        shown = [reservation for reservation in shown if reservation.phase in request.states]
    if kind is QUEUES:
        shown = _queue_tree(shown, request.queue)
    if request.sort_by and kind.sorts:
        name = request.sort_by.removeprefix("-").lower()
        shown.sort(key=kind.sorts[name], reverse=request.sort_by.startswith("-"))
    return shown[: request.limit] if request.limit else shown


def show_list(server: ApiClient, kind: ObjectKind, request: ListRequest) -> None:
    if request.watch:
        from kaiwo.cli.lists.live_screen import until_ctrl_c, watch_list

        with until_ctrl_c():
            watch_list(server, kind, request)
        return
    items, total = fetch_list(server, kind, request)
    views = filter_and_sort(kind, request, server.convert(items, list[kind.view]))  # type: ignore[name-defined]
    if request.output in ("json", "yaml"):
        printing.print_data(_as_page(kind, request, items, views, total), request.output)
        return
    now = 0 if request.output == "name" else server_time(server)
    for line in list_lines(kind, request, views, now, printing.terminal_width()):
        click.echo(line)
    _print_note(kind, request, len(views), total)


def list_lines(kind: ObjectKind, request: ListRequest, views: Sequence[Any], now: float, width: int) -> list[str]:
    """The lines of the table, or the names."""
    if request.output == "name":
        return [kind.key(view) for view in views]
    if not views:
        return []
    columns = shown_columns(kind.columns, request.output)
    rows = [table_row(columns, view, now) for view in views]
    return lay_out(columns, rows, width, not request.no_headers, printing.paint_state)


def _print_note(kind: ObjectKind, request: ListRequest, shown: int, total: int) -> None:
    if not shown and request.output != "name":
        chosen_by = request.labels or request.states or request.queue or request.query
        printing.hint(f"no {kind.noun} match" if chosen_by else f"there are no {kind.noun}")
    elif request.limit and shown == request.limit and shown < total:
        printing.hint(f"the first {shown} of {total} {kind.noun}; --limit 0 shows all")


def _as_page(kind: ObjectKind, request: ListRequest, items: list[Any], views: list[Any], total: int) -> Any:
    if not _is_filtered_here(kind, request):
        return {"items": items, "total": total, "next": ""}
    chosen_by = request.states or request.queue
    return {"items": msgspec.to_builtins(views), "total": len(views) if chosen_by else total, "next": ""}


def _is_filtered_here(kind: ObjectKind, request: ListRequest) -> bool:
    return kind is QUEUES or bool(kind.sorts and request.sort_by) or (kind is not WORKLOADS and bool(request.states))


def _server_sort(kind: ObjectKind, sort_by: str) -> str:
    name = kind.server_sorts[sort_by.removeprefix("-").lower()]
    if not sort_by.startswith("-"):
        return name
    return name.removeprefix("-") if name.startswith("-") else f"-{name}"


def _queue_tree(queues: Sequence[Any], root: str) -> list[Any]:
    """Parents before their children, siblings by name; with `root` only what is below it."""
    children: dict[str, list[Any]] = {}
    names = {queue.name for queue in queues}
    for queue in sorted(queues, key=lambda q: q.name):
        children.setdefault(queue.parent if queue.parent in names else "", []).append(queue)
    ordered: list[Any] = []
    stack = children.get("", [])[::-1]
    while stack:
        queue = stack.pop()
        ordered.append(queue)
        stack += children.get(queue.name, [])[::-1]
    if not root:
        return ordered
    below = {root}
    for queue in ordered:
        if queue.parent in below:
            below.add(queue.name)
    return [queue for queue in ordered if queue.name in below]
