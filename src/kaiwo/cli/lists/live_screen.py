"""`-w`: redraw a list on the screen as it changes; in a pipe, print a line for each change."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import click
import msgspec

from kaiwo.api.views import StatusView
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.lists.list_stream import ListFrame, ListWatcher
from kaiwo.cli.lists.object_kinds import ObjectKind
from kaiwo.cli.lists.show_list import ListRequest, filter_and_sort, list_lines, server_query
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import cut
from kaiwo.cli.verb_base import server_location

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class ClusterClock:
    """The cluster's time, extrapolated from one reading."""

    def __init__(self, server: ApiClient) -> None:
        cluster = server.decode(server.get("/status"), StatusView).cluster
        self._start_s, self._speed, self._since = cluster.now_s, cluster.speed or 1.0, time.monotonic()

    def now(self) -> float:
        return self._start_s + (time.monotonic() - self._since) * self._speed


def watch_list(server: ApiClient, kind: ObjectKind, request: ListRequest) -> None:
    query = server_query(kind, request)
    if kind.page_limit:
        query["limit"] = min(request.limit or kind.page_limit, kind.page_limit)
    clock = ClusterClock(server)
    watcher = ListWatcher(reconnector(server), kind.plural, query, "" if kind.is_streamed else kind.path)

    def views(items: Iterable[Any]) -> list[Any]:
        return filter_and_sort(kind, request, server.convert(list(items), list[kind.view]))  # type: ignore[name-defined]

    def draw(frame: ListFrame) -> list[str]:
        lines = list_lines(kind, request, views(frame.items.values()), clock.now(), printing.terminal_width())
        return lines or [f"no {kind.noun}"]

    if printing.is_terminal() and request.output in ("table", "wide", "name"):
        redraw(watcher, draw, lambda frame: f"{frame.total} {kind.noun}")
    for frame in frames_without_problem(watcher):
        changed = views(frame.items[key] for key in frame.changed)
        _print_changes(kind, request, changed, frame.gone, clock.now())
        request = msgspec.structs.replace(request, no_headers=True)


def _print_changes(kind: ObjectKind, request: ListRequest, changed: list[Any], gone: list[str], now: float) -> None:
    if request.output in ("json", "yaml"):
        for view in changed:
            printing.print_document(view, request.output)
        return
    for line in list_lines(kind, request, changed, now, 0):
        click.echo(line)
    for key in gone:
        click.echo(f"{key} is gone")
    sys.stdout.flush()


def redraw(
    watcher: ListWatcher, draw: Callable[[ListFrame], list[str]], summary: Callable[[ListFrame], str]
) -> NoReturn:
    """Draw each frame over the last, at least once a second so that ages grow. The last one stays on the screen."""
    out, lines = sys.stdout, []
    out.write(ENTER)
    try:
        frame = None
        while True:
            frame = watcher.next(1.0) or frame
            if frame is None:
                continue
            lines = _draw_lines(draw(frame), frame.problem or f"live: {summary(frame)}; Ctrl-C to stop")
    finally:
        out.write(LEAVE)
        out.write("".join(line + "\n" for line in lines))
        out.flush()


def _draw_lines(lines: list[str], footer: str) -> list[str]:
    """Draw the lines that fit, and return them."""
    width, height = printing.terminal_size()
    room = max(1, height - 2)
    if len(lines) > room:
        footer = f"{len(lines) - room} more lines below; {footer}"
    shown = [*lines[:room], cut(footer, width)]
    sys.stdout.write(HOME + "\n".join(line + CLEAR_LINE for line in shown) + CLEAR_BELOW)
    sys.stdout.flush()
    return lines[:room]


def frames_without_problem(watcher: ListWatcher) -> Iterator[ListFrame]:
    """Yield frames; a problem is printed once, on stderr."""
    printed = ""
    while True:
        frame = watcher.next(3600)
        if frame is None:
            continue
        if frame.problem and frame.problem != printed:
            printing.hint(f"kaiwo: {frame.problem}; retrying")
        printed = frame.problem
        if not frame.problem:
            yield frame


def reconnector(server: ApiClient) -> Callable[[], ApiClient]:
    """Connect from scratch each time: a restarted server may have another port."""
    from kaiwo.cli.client.find_server import connect

    location = server_location()
    return lambda: connect(location, server.timeout_s)
