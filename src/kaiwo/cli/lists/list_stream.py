"""Follow a list as it changes, by server-sent events, or by polling where there is no stream.

In:    a kind and a query.   Out: frames, each with the current page and what changed in it.
Never: leaves a dead stream unnoticed: it reconnects, and reports the problem meanwhile.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from kaiwo.api.views import Page
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.client.http_connection import HttpError
from kaiwo.model.errors import ClusterError, ConfigError, KaiwoError, NotFoundError

READ_TIMEOUT_S = 40  # the server sends a comment every 15 s
GIVE_UP_S = 30
POLL_S = 1.0


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
        failing_since = 0.0
        while True:
            try:
                server = self._connect()
                for _ in self._poll(server) if self._path else self._stream(server):
                    failing_since = 0.0
                raise ClusterError(f"{server.url} closed the stream")
            except (NotFoundError, ConfigError) as error:
                if self._path or not isinstance(error, NotFoundError):
                    self._frames.put(error)
                    return
                self._path = f"/{self._view}"  # an older server without streams
            except KaiwoError as error:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > GIVE_UP_S:
                    self._frames.put(error)
                    return
                self._frames.put(ListFrame(dict(self._items), [], [], self._total, str(error)))
                time.sleep(1)
            # If the thread died silently the screen would freeze forever, so the reader gets the error.
            except Exception as error:
                self._frames.put(error)
                return

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
        self._frames.put(
            ListFrame(self._items, changed, [key for key in before if key not in self._items], self._total)
        )


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
