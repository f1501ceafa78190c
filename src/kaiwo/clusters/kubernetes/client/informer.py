"""Keep one kind of object in sync: list it page by page, then watch it, for as long as the program runs.

Never: loses a change. A watch that breaks continues where it was; when the server has forgotten that version (410), the
       objects are listed again, and the handler finds out what is gone.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.client.connection import Client
from kaiwo.clusters.kubernetes.client.errors import ApiError, UnreachableError, status_error
from kaiwo.clusters.kubernetes.client.resource import Resource, name_of

T = TypeVar("T")
V = TypeVar("V")

PAGE = 500  # objects, as in client-go
PAGE_S = 60.0
WATCH_S = (300, 600)  # how long a watch lasts, drawn at random each time, so that watches do not end together
SILENCE_S = 150.0  # the server sends a bookmark about once a minute; after two missed ones the connection is dead
HEALTHY_WATCH_S = 0.5  # a watch that lasted this long has worked, even without an event and however it ended
LONGEST_PAUSE_S = 5.0  # short: one scheduler is little load, and must see soon that the server is back
LINES_PER_TURN = 200  # lines decoded before the event loop gets a turn: about 2 ms


class Change(NamedTuple, Generic[T]):
    """One object is new, changed, or gone."""

    object: T
    is_gone: bool = False


class ObjectHandler(Protocol):
    """Receives the objects of one kind from an Informer, which calls it on the event loop, one call at a time."""

    resource: Resource[Any]
    is_listed: bool

    def on_list_start(self) -> None:
        """Before the first page of each list: forget the pages of a list that broke off."""

    def on_page(self, items: Sequence[Any]) -> None: ...

    def on_list_end(self, version: str) -> None:
        """`version`: that of the list; empty for a kind that the server does not have."""

    def on_changes(self, changes: Sequence[Change[Any]]) -> None: ...


class _ExpiredError(Exception):
    """The server no longer has the requested version."""


class Informer:
    """Follows one kind. `on_change` is called after each list and each batch of changes.

    `is_optional`: the server may not have the kind; `on_not_found` is called each time it says so.
    """

    def __init__(
        self,
        client: Client,
        handler: ObjectHandler,
        *,
        on_change: Callable[[], None] = lambda: None,
        report: Callable[..., None] = lambda *_, **__: None,
        is_optional: bool = False,
        on_not_found: Callable[[], None] = lambda: None,
    ) -> None:
        self.resource, self.version = handler.resource, ""
        self.lists = 0
        self._client, self._handler, self._report = client, handler, report
        self._is_optional, self._on_change, self._on_not_found = is_optional, on_change, on_not_found
        self._has_worked = False  # the last watch

    async def run(self) -> None:
        """Run until cancelled. Whatever the server does, try again."""
        backoff = Backoff(longest_s=LONGEST_PAUSE_S)
        while True:
            at_least_s, has_failed, self._has_worked = 0.0, True, False
            try:
                if not self.version:
                    await self._list()
                await self._watch()
                has_failed = False
            except _ExpiredError:
                self.version, self._has_worked = "", False  # a whole list comes next: pause before it
            except (ApiError, UnreachableError) as error:
                self._fail(error)
                at_least_s = error.retry_after_s
            except Exception as error:  # nothing would notice a watch that ended: report it and list again
                self.version, self._has_worked = "", False
                self._fail(error)
            if self._has_worked:
                backoff.reset()
                if not has_failed:
                    continue
            # A server that expires versions or ends watches at once must not be asked without a pause.
            await asyncio.sleep(backoff.next_s(at_least_s))

    def _fail(self, error: Exception) -> None:
        if self._is_optional and isinstance(error, ApiError) and error.is_not_found:
            self._on_not_found()
            return  # asked again later: it may be installed while we run
        self._report("kubernetes-watch-failed", level="warning", kind=self.resource.path, error=str(error)[:300])

    async def _list(self) -> None:
        params = {"limit": str(PAGE)}
        self._handler.on_list_start()
        try:
            while True:
                body = await self._client.read(self.resource.path, params, PAGE_S, tries=1)
                page = self.resource.read_page(body)
                self._handler.on_page(page.items or ())
                if not page.metadata.continue_:
                    break
                params["continue"] = page.metadata.continue_
                await asyncio.sleep(0)
        except ApiError as error:
            if error.is_gone:  # the list's own version expired between two pages: start again
                self._report("kubernetes-list-expired", level="info", kind=self.resource.path)
                raise _ExpiredError from None
            if error.is_not_found and self._is_optional:
                self._end_list("")
            raise
        self.lists += 1
        self._end_list(page.metadata.resource_version)
        self.version = page.metadata.resource_version

    def _end_list(self, version: str) -> None:
        self._handler.on_list_end(version)
        self._on_change()

    async def _watch(self) -> None:
        params = {
            "watch": "true",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_S)),
        }
        try:
            async with self._client.stream(self.resource.path, params, SILENCE_S) as content:
                await self._read(content)
        except ApiError as error:
            if error.is_gone:
                raise _ExpiredError from None
            raise

    async def _read(self, content: Any) -> None:
        began_s = time.monotonic()
        try:
            async for lines in _lines(content):
                for start in range(0, len(lines), LINES_PER_TURN):
                    self._take(lines[start : start + LINES_PER_TURN])
                    await asyncio.sleep(0)
        finally:
            self._has_worked |= time.monotonic() - began_s >= HEALTHY_WATCH_S

    def _take(self, lines: Sequence[bytes]) -> None:
        """Apply the changes up to the first error."""
        changes: list[Change[Any]] = []
        try:
            for each in lines:
                line = self.resource.read_line(each)
                if line is None:
                    continue
                if line.type == "ERROR":
                    raise status_error(line.object, f"watch {self.resource.path}")
                self._has_worked = True
                if line.type == "BOOKMARK":
                    self.version = line.object
                else:
                    changes.append(Change(line.object, line.type == "DELETED"))
                    self.version = self.resource.version(line.object)
        finally:
            if changes:
                self._handler.on_changes(changes)
                self._on_change()


async def _lines(content: Any) -> AsyncIterator[list[bytes]]:
    """Complete lines, as many as have arrived. One object may arrive in several pieces."""
    rest: list[bytes] = []
    while chunk := await content.readany():
        if b"\n" not in chunk:
            rest.append(chunk)
            continue
        *complete, last = b"".join((*rest, chunk)).split(b"\n")
        rest = [last] if last else []
        yield [line for line in complete if line]


class KindHandler(Generic[T, V]):
    """Calls `upsert` and `delete`. Keeps what `read` makes of each object, to find what vanished between two lists."""

    def __init__(
        self,
        resource: Resource[T],
        read: Callable[[T], V | None],
        upsert: Callable[[V], None],
        delete: Callable[[V], None],
    ) -> None:
        self.resource, self._read, self._upsert, self._delete = resource, read, upsert, delete
        self._known: dict[str, V] = {}
        self._listed: dict[str, V] = {}
        self.is_listed = False

    def on_list_start(self) -> None:
        self._listed = {}

    def on_page(self, items: Sequence[T]) -> None:
        for item in items:
            with leaving_out(self.resource, item):
                if (value := self._read(item)) is not None:
                    self._listed[name_of(item)] = value
                    self._upsert(value)

    def on_list_end(self, version: str) -> None:
        """Delete what is not in the list."""
        before, self._known, self._listed = self._known, self._listed, {}
        for name, value in before.items():
            if name not in self._known:
                self._delete(value)
        self.is_listed = True

    def on_changes(self, changes: Sequence[Change[T]]) -> None:
        for item, is_gone in changes:
            with leaving_out(self.resource, item):
                value = self._read(item)
                if value is None:
                    continue
                if is_gone:
                    self._known.pop(name_of(item), None)
                    self._delete(value)
                else:
                    self._known[name_of(item)] = value
                    self._upsert(value)


def as_is(item: T) -> T:
    """For kinds whose objects are used as they are decoded."""
    return item


@contextmanager
def leaving_out(resource: Resource[Any], item: Any) -> Iterator[None]:
    """If the block fails, leave this one object out and log it; what was known of it before stays."""
    try:
        yield
    except Exception as error:  # an error that ended the watch would silently stop the whole kind
        resource.leave_out(name_of(item), error)
