"""Fetch a list from the API and print it as a table, JSON, YAML or names."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from kaiwo.api.views import Page
from kaiwo.cli.client.api_client import Server
from kaiwo.cli.lists.columns import chosen, gpu_state, row
from kaiwo.cli.lists.list_options import Wish
from kaiwo.cli.lists.object_kinds import GPUS, NODES, QUEUES, RESERVATIONS, WORKLOADS, Kind
from kaiwo.cli.lists.read_object import server_time
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import lay_out


def fetch(server: Server, kind: Kind, wish: Wish) -> tuple[list[Any], int]:
    """The items as plain data, and how many there are in total."""
    query = server_query(kind, wish)
    wanted = wish.limit if not _is_finished_here(kind, wish) else 0
    items: list[Any] = []
    while True:
        if kind.page_limit:
            query["limit"] = min(kind.page_limit, wanted - len(items)) if wanted else kind.page_limit
        page = server.decode(server.get(kind.path, query), Page[Any])
        items += page.items
        if not page.next or not page.items or (wanted and len(items) >= wanted):
            return items, page.total
        query["after"] = page.next


def server_query(kind: Kind, wish: Wish) -> dict[str, Any]:
    """The query for what the server filters and sorts."""
    query: dict[str, Any] = dict(wish.query)
    if wish.labels:
        query["label"] = list(wish.labels)
    if kind is WORKLOADS:
        if wish.states:
            query["state"] = ",".join(wish.states)
        if wish.queue:
            query["queue"] = wish.queue
        if wish.sort_by:
            query["sort"] = _server_sort(kind, wish.sort_by)
    return query


def finish(kind: Kind, wish: Wish, views: Sequence[Any]) -> list[Any]:
    """Apply what the server does not support: some filters and orders, and the queue tree."""
    shown = list(views)
    if kind is NODES and wish.states:
        shown = [node for node in shown if node.state in wish.states]
    if kind is GPUS and wish.states:
        shown = [gpu for gpu in shown if gpu_state(gpu) in wish.states]
    if kind is RESERVATIONS and wish.states:
        shown = [reservation for reservation in shown if reservation.phase in wish.states]
    if kind is QUEUES:
        shown = _tree(shown, wish.queue)
    if wish.sort_by and kind.sorts:
        name = wish.sort_by.removeprefix("-").lower()
        shown.sort(key=kind.sorts[name], reverse=wish.sort_by.startswith("-"))
    return shown[: wish.limit] if wish.limit else shown


def show(server: Server, kind: Kind, wish: Wish) -> None:
    """Print the list, or watch it."""
    if wish.watch:
        from kaiwo.cli.lists.live_screen import until_ctrl_c, watch_listing

        with until_ctrl_c():
            watch_listing(server, kind, wish)
        return
    items, total = fetch(server, kind, wish)
    views = finish(kind, wish, server.convert(items, list[kind.view]))  # type: ignore[name-defined]
    if wish.output in ("json", "yaml"):
        printing.print_data(_as_page(kind, wish, items, views, total), wish.output)
        return
    now = 0 if wish.output == "name" else server_time(server)
    for line in lines_of(kind, wish, views, now, printing.terminal_width()):
        click.echo(line)
    _remark(kind, wish, len(views), total)


def lines_of(kind: Kind, wish: Wish, views: Sequence[Any], now: float, width: int) -> list[str]:
    """The lines of the table, or the names."""
    if wish.output == "name":
        return [kind.key(view) for view in views]
    if not views:
        return []
    columns = chosen(kind.columns, wish.output)
    rows = [row(columns, view, now) for view in views]
    return lay_out(columns, rows, width, not wish.no_headers, printing.paint_state)


def _remark(kind: Kind, wish: Wish, shown: int, total: int) -> None:
    if not shown and wish.output != "name":
        chosen_by = wish.labels or wish.states or wish.queue or wish.query
        printing.hint(f"no {kind.words} match" if chosen_by else f"there are no {kind.words}")
    elif wish.limit and shown == wish.limit and shown < total:
        printing.hint(f"the first {shown} of {total} {kind.words}; --limit 0 shows all")


def _as_page(kind: Kind, wish: Wish, items: list[Any], views: list[Any], total: int) -> Any:
    if not _is_finished_here(kind, wish):
        return {"items": items, "total": total, "next": ""}
    chosen_by = wish.states or wish.queue
    return {"items": msgspec.to_builtins(views), "total": len(views) if chosen_by else total, "next": ""}


def _is_finished_here(kind: Kind, wish: Wish) -> bool:
    return kind is QUEUES or bool(kind.sorts and wish.sort_by) or (kind is not WORKLOADS and bool(wish.states))


def _server_sort(kind: Kind, sort_by: str) -> str:
    name = kind.server_sorts[sort_by.removeprefix("-").lower()]
    if not sort_by.startswith("-"):
        return name
    return name.removeprefix("-") if name.startswith("-") else f"-{name}"


def _tree(queues: Sequence[Any], root: str) -> list[Any]:
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
