"""`-w`: redraw a list on the screen as it changes; in a pipe, print a line for each change."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import click
import msgspec

from kaiwo.api.views import StatusView
from kaiwo.cli.client.api_client import Server
from kaiwo.cli.lists.list_options import Wish
from kaiwo.cli.lists.list_stream import Follower, Frame
from kaiwo.cli.lists.object_kinds import Kind
from kaiwo.cli.lists.show_list import finish, lines_of, server_query
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import cut
from kaiwo.cli.verb_base import this_place

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Clock:
    """The cluster's time, extrapolated from one reading."""

    def __init__(self, server: Server) -> None:
        cluster = server.decode(server.get("/status"), StatusView).cluster
        self._start_s, self._speed, self._since = cluster.now_s, cluster.speed or 1.0, time.monotonic()

    def now(self) -> float:
        return self._start_s + (time.monotonic() - self._since) * self._speed


@contextlib.contextmanager
def until_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the watch; it is not an error."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


def watch_listing(server: Server, kind: Kind, wish: Wish) -> None:
    """Show the list until Ctrl-C."""
    query = server_query(kind, wish)
    if kind.page_limit:
        query["limit"] = min(wish.limit or kind.page_limit, kind.page_limit)
    clock = Clock(server)
    follower = Follower(connect_again(server), kind.plural, query, "" if kind.is_streamed else kind.path)

    def views(items: Iterable[Any]) -> list[Any]:
        return finish(kind, wish, server.convert(list(items), list[kind.view]))  # type: ignore[name-defined]

    def draw(frame: Frame) -> list[str]:
        lines = lines_of(kind, wish, views(frame.items.values()), clock.now(), printing.terminal_width())
        return lines or [f"no {kind.words}"]

    if printing.is_terminal() and wish.output in ("table", "wide", "name"):
        redraw(follower, draw, lambda frame: f"{frame.total} {kind.words}")
    for frame in frames_of(follower):
        changed = views(frame.items[key] for key in frame.changed)
        _print_changes(kind, wish, changed, frame.gone, clock.now())
        wish = msgspec.structs.replace(wish, no_headers=True)


def _print_changes(kind: Kind, wish: Wish, changed: list[Any], gone: list[str], now: float) -> None:
    if wish.output in ("json", "yaml"):
        for view in changed:
            printing.print_line(view, wish.output)
        return
    for line in lines_of(kind, wish, changed, now, 0):
        click.echo(line)
    for key in gone:
        click.echo(f"{key} is gone")
    sys.stdout.flush()


def redraw(follower: Follower, draw: Callable[[Frame], list[str]], summary: Callable[[Frame], str]) -> NoReturn:
    """Draw each frame over the last, at least once a second so that ages grow. The last one stays on the screen."""
    out, lines = sys.stdout, []
    out.write(ENTER)
    try:
        frame = None
        while True:
            frame = follower.next(1.0) or frame
            if frame is None:
                continue
            lines = _paint(draw(frame), frame.trouble or f"live: {summary(frame)}; Ctrl-C to stop")
    finally:
        out.write(LEAVE)
        out.write("".join(line + "\n" for line in lines))
        out.flush()


def _paint(lines: list[str], footer: str) -> list[str]:
    """Draw the lines that fit, and return them."""
    width, height = printing.terminal_size()
    room = max(1, height - 2)
    if len(lines) > room:
        footer = f"{len(lines) - room} more lines below; {footer}"
    shown = [*lines[:room], cut(footer, width)]
    sys.stdout.write(HOME + "\n".join(line + CLEAR_LINE for line in shown) + CLEAR_BELOW)
    sys.stdout.flush()
    return lines[:room]


def frames_of(follower: Follower) -> Iterator[Frame]:
    """Yield frames; a problem is printed once, on stderr."""
    told = ""
    while True:
        frame = follower.next(3600)
        if frame is None:
            continue
        if frame.trouble and frame.trouble != told:
            printing.hint(f"kaiwo: {frame.trouble}; retrying")
        told = frame.trouble
        if not frame.trouble:
            yield frame


def connect_again(server: Server) -> Callable[[], Server]:
    """Connect from scratch each time: a restarted server may have another port."""
    from kaiwo.cli.client.find_server import connect

    place = this_place()
    return lambda: connect(place, server.timeout_s)
