"""Show a list of objects: its options, the request to the API, and the table, JSON, YAML or names.

An option that makes no sense for the kind of object is a ConfigError that names it.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from kaiwo.api.views.answers import Page
from kaiwo.cli.client.api_client import ApiClient, object_path
from kaiwo.cli.lists.columns import columns_with_room, shown_columns, table_row
from kaiwo.cli.lists.object_kinds import QUEUES, WORKLOADS, ObjectKind
from kaiwo.cli.lists.read_object import server_time
from kaiwo.cli.name_completion import ARRAY_LABEL, complete_queue
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import FINISHED_STATES, UNFINISHED_STATES, one_of, parse_pair
from kaiwo.cli.output.table_layout import lay_out, natural_width
from kaiwo.cli.verb_base import add_options, connect_server
from kaiwo.model.errors import ConfigError
from kaiwo.model.reservation import ReservationPhase
from kaiwo.model.workload_record import WorkloadState

DEFAULT_LIMIT = 500
STATES: dict[str, tuple[str, ...]] = {
    "workload": tuple(state.value for state in WorkloadState),
    "node": ("ready", "cordoned", "not-ready"),
    "gpu": ("free", "shared", "full", "unhealthy", "draining", "changing"),
    "reservation": tuple(phase.value for phase in ReservationPhase),
}


class ListRequest(msgspec.Struct, frozen=True):
    """What to list and how to print it."""

    output: str = "table"
    watch: bool = False
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    queue: str = ""
    sort_by: str = ""
    limit: int = DEFAULT_LIMIT  # 0: all
    no_headers: bool = False
    tasks: bool = False  # every task of an array, not one row for the array
    query: dict[str, str] = {}  # more filters of the API

    @property
    def folds(self) -> bool:
        """Tables show an array as one row, unless its tasks were asked for; other formats show what the API has."""
        is_one_array = any(label.startswith(ARRAY_LABEL) for label in self.labels)
        return self.output in ("table", "wide") and not self.tasks and not is_one_array


def list_options(kind: ObjectKind | None = None) -> Callable[[Any], Any]:
    """Add the options for lists of this kind; without a kind, those of all kinds."""
    known = STATES.get(kind.singular, ()) if kind else ()
    filters = {
        "label": click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE",
                              help="Only with this label. Repeatable."),
        "state": click.option("--state", "states", multiple=True, metavar="STATE",
                              help=f"Only {one_of(known) if known else 'in this state'}; several as a,b."),
        "queue": click.option("-q", "--queue", metavar="QUEUE", default="", shell_complete=complete_queue,
                              help="Only this queue and those below it."),
    }  # fmt: skip
    return add_options(
        printing.output_option(),
        click.option("-w", "--watch", is_flag=True, help="Keep it up to date; Ctrl-C to stop."),
        *(option for name, option in filters.items() if kind is None or name in kind.filters),
        click.option("--sort-by", default="", metavar="COLUMN", help="Sort by this column; -COLUMN reverses it."),
        click.option("--limit", metavar="N", default=DEFAULT_LIMIT, show_default=True, type=click.IntRange(0),
                     help="Show at most N; 0 for all."),
        click.option("--no-headers", is_flag=True, help="Omit the header row."),
        *([click.option("--tasks", is_flag=True, help="List every task of an array, not the array as one row.")]
          if kind is None or kind is WORKLOADS else []),
    )  # fmt: skip


def make_list_request(kind: ObjectKind, query: dict[str, str] | None = None, **options: Any) -> ListRequest:
    """Check the options against the kind; an option that it does not support is an error."""
    states = tuple(part for text in options.pop("states", ()) for part in text.split(",") if part)
    request = ListRequest(states=_check_states(kind, states), query=query or {}, **options)
    for name, given in (("label", request.labels), ("state", request.states), ("queue", request.queue)):
        if given and name not in kind.filters:
            raise ConfigError(f"{kind.plural} can't be selected by {name}; leave out --{name}")
    for label in request.labels:
        parse_pair(label, "label")
    sorts = [*kind.sorts, *kind.server_sorts]
    if request.sort_by and request.sort_by.removeprefix("-").lower() not in sorts:
        raise ConfigError(f"{kind.plural} can't be sorted by '{request.sort_by}'; choose from {', '.join(sorts)}")
    return request


def _check_states(kind: ObjectKind, states: tuple[str, ...]) -> tuple[str, ...]:
    known = STATES.get(kind.singular, ())
    found: list[str] = []
    for state in (text.lower() for text in states):
        if kind is WORKLOADS and state in ("living", "over"):
            found += UNFINISHED_STATES if state == "living" else FINISHED_STATES
        elif state in known or not known:
            found.append(state)
        else:
            more = ", living, over" if kind is WORKLOADS else ""
            raise ConfigError(f"'{state}' is not a state of {kind.plural}; choose from {', '.join(known)}{more}")
    return tuple(found)


def show_list(kind: ObjectKind, query: dict[str, str] | None = None, **options: Any) -> None:
    """Print the list that the options ask for, or watch it. `query`: more filters of the API."""
    request, server = make_list_request(kind, query, **options), connect_server()
    if request.watch:
        from kaiwo.cli.lists.watch_list import watch_list

        with contextlib.suppress(KeyboardInterrupt):
            watch_list(server, kind, request)
        return
    items, total = fetch_list(server, kind, request)
    views = filter_and_sort(kind, request, server.convert(items, list[kind.view]))  # type: ignore[name-defined]
    if not views:
        _check_named(server, request)
    if request.output in ("json", "yaml"):
        printing.print_data(_as_page(kind, request, items, views, total), request.output)
        return
    print_list(server, kind, request, views)
    if not views and request.output != "name":
        chosen_by = request.labels or request.states or request.queue or request.query
        printing.hint(f"no {kind.noun} match" if chosen_by else f"there are no {kind.noun}")
    elif request.limit and len(views) == request.limit < total:
        printing.hint(f"the first {len(views):,} of {total:,} {kind.noun}; --limit 0 shows all")


def _check_named(server: ApiClient, request: ListRequest) -> None:
    """An empty list because of a queue or a node that does not exist is an error, with the nearest name."""
    for plural, name in (("queues", request.queue), ("nodes", request.query.get("node", ""))):
        if name:
            server.get(object_path(plural, name))


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
        if request.folds:
            query["fold"] = "true"
        if request.sort_by:
            order = kind.server_sorts[request.sort_by.removeprefix("-").lower()]
            is_reversed = order.startswith("-") != request.sort_by.startswith("-")
            query["sort"] = ("-" if is_reversed else "") + order.removeprefix("-")
    return query


def filter_and_sort(kind: ObjectKind, request: ListRequest, views: Sequence[Any]) -> list[Any]:
    """Apply what the server does not support: some filters and orders, and the queue tree."""
    shown = list(views)
    if request.states and (state_of := kind.sorts.get("state")):
        shown = [view for view in shown if state_of(view) in request.states]
    if kind is QUEUES:
        shown = _queue_tree(shown, request.queue)
    if request.sort_by and kind.sorts:
        name = request.sort_by.removeprefix("-").lower()
        shown.sort(key=kind.sorts[name], reverse=request.sort_by.startswith("-"))
    return shown[: request.limit] if request.limit else shown


def print_list(server: ApiClient, kind: ObjectKind, request: ListRequest, views: Sequence[Any]) -> None:
    now = 0 if request.output == "name" else server_time(server)
    for line in list_lines(kind, request, views, now, printing.terminal_width()):
        click.echo(line)


def list_lines(
    kind: ObjectKind,
    request: ListRequest,
    views: Sequence[Any],
    now: float,
    width: int,
    paint: Callable[[str], str] = printing.paint_state,
) -> list[str]:
    """The lines of the table, or the names."""
    if request.output == "name":
        return [kind.key(view) for view in views]
    if not views:
        return []
    columns = shown_columns(kind.columns, request.output)
    rows = [table_row(columns, view, now) for view in views]
    more = columns_with_room(kind.columns)
    if width and request.output == "table" and len(more) > len(columns):
        more_rows = [table_row(more, view, now) for view in views]
        if natural_width(more, more_rows) <= width:
            columns, rows = more, more_rows
    return lay_out(columns, rows, width, not request.no_headers, paint)


def _as_page(kind: ObjectKind, request: ListRequest, items: list[Any], views: list[Any], total: int) -> Any:
    if not _is_filtered_here(kind, request):
        return {"items": items, "total": total, "next": ""}
    chosen_by = request.states or request.queue
    return {"items": msgspec.to_builtins(views), "total": len(views) if chosen_by else total, "next": ""}


def _is_filtered_here(kind: ObjectKind, request: ListRequest) -> bool:
    return kind is QUEUES or bool(kind.sorts and request.sort_by) or (kind is not WORKLOADS and bool(request.states))


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
