"""`-w`: follow a list, and redraw it on the screen as it changes; in a pipe, print a line for each change.

Changes arrive as server-sent events, or by polling where there is no stream. A dead stream is never unnoticed: the
watcher reconnects, and reports the problem meanwhile.
"""

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import click
import msgspec

from kaiwo.api.views.answers import Page
from kaiwo.api.views.cluster import StatusView
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.client.find_server import connect
from kaiwo.cli.client.http_connection import HttpError
from kaiwo.cli.lists.object_kinds import ObjectKind
from kaiwo.cli.lists.show_list import ListRequest, filter_and_sort, list_lines, server_query
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import cut
from kaiwo.cli.verb_base import server_location
from kaiwo.model.errors import ClusterError, ConfigError, KaiwoError, NotFoundError

READ_TIMEOUT_S = 40  # the server sends a comment every 15 s
GIVE_UP_S = 30
POLL_S = 1.0
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class ListFrame(msgspec.Struct):
    """A page at one moment."""

    items: dict[str, Any]  # by key, in order
    changed: list[str]
    gone: list[str]
    total: int
    problem: str = ""  # why this frame may be old


class ListWatcher:
    """Reads in a thread, so that the screen can be redrawn and closed at any time."""

    def __init__(self, connect: Callable[[], ApiClient], view: str, query: dict[str, Any], path: str = "") -> None:
        self._connect = connect
        self._view = view
        self._query = query
        self._path = path  # if set: poll this path instead of streaming
        self._items: dict[str, Any] = {}
        self._total = 0
        self._last_id = ""
        self._frames: queue.SimpleQueue[ListFrame | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def next(self, timeout_s: float) -> ListFrame | None:
        """The next frame, or None if nothing changes before the timeout."""
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(frame, Exception):
            raise frame
        return frame

    def _run(self) -> None:
        # If the thread died silently the screen would freeze forever, so the reader gets the error.
        try:
            self._follow()
        except Exception as error:
            self._frames.put(error)

    def _follow(self) -> None:
        failing_since = 0.0
        while True:
            try:
                server = self._connect()
                for _ in self._poll(server) if self._path else self._stream(server):
                    failing_since = 0.0
                raise ClusterError(f"{server.url} closed the stream")
            except ConfigError:
                raise
            except NotFoundError:
                if self._path:
                    raise
                self._path = f"/{self._view}"  # an older server without streams
            except KaiwoError as error:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > GIVE_UP_S:
                    raise
                self._frames.put(ListFrame(dict(self._items), [], [], self._total, str(error)))
                time.sleep(1)

    def _stream(self, server: ApiClient) -> Iterator[None]:
        server.timeout_s = READ_TIMEOUT_S
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._last_id} if self._last_id else {})
        response = server.open("GET", "/stream", {"view": self._view, **self._query}, headers=headers)
        try:
            for event, event_id, data in read_events(response.lines()):
                self._apply(event, server.decode(data, dict[str, Any]))
                self._last_id = event_id or self._last_id
                yield
        except (OSError, HttpError) as error:
            raise server.connection_error(error) from error
        finally:
            response.close()

    def _poll(self, server: ApiClient) -> Iterator[None]:
        while True:
            page = server.decode(server.get(self._path, self._query), Page[dict[str, Any]])
            self._apply("reset", {"items": page.items, "total": page.total})
            yield
            time.sleep(POLL_S)

    def _apply(self, event: str, data: dict[str, Any]) -> None:
        before = self._items
        if event == "reset":
            self._items = {item_key(item): item for item in data["items"]}
        elif event == "delta":
            fresh = {item_key(item): item for item in data.get("set", ())}
            left = {key: item for key, item in before.items() if key not in set(data.get("gone", ()))} | fresh
            order = data.get("order") or left
            self._items = {key: left[key] for key in order if key in left}
        else:
            return
        self._total = data.get("total", len(self._items))
        changed = [key for key, item in self._items.items() if before.get(key) != item]
        gone = [key for key in before if key not in self._items]
        self._frames.put(ListFrame(self._items, changed, gone, self._total))


def read_events(lines: Iterable[bytes]) -> Iterator[tuple[str, str, bytes]]:
    """Parse server-sent events from their lines, as (event, id, data)."""
    event, event_id, data = "message", "", []
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            event = value.decode()
        elif field == b"id":
            event_id = value.decode()
        elif field == b"data":
            data.append(value)
        elif not line:
            if data:
                yield event, event_id, b"\n".join(data)
            event, event_id, data = "message", "", []


def item_key(item: dict[str, Any]) -> str:
    """The key of an item in the stream: its name, a GPU by `node/id`, a cycle by its number, the status `cluster`."""
    if "name" in item:
        return str(item["name"])
    if "id" in item:
        return f"{item['node']}/{item['id']}"
    return str(item.get("number", "cluster"))


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
            if frame := watcher.next(1.0) or frame:
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
    location = server_location()
    return lambda: connect(location, server.timeout_s)
