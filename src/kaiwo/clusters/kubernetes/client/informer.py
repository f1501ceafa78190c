"""Keep one kind of object in sync: list it page by page, then watch it, for as long as the program runs.

In:    a Client and a Resource.   Out: `on_page` for each page, then `on_list_end`; then `on_changes` with every change.
Never: loses a change. A watch that breaks continues where it was; when the server has forgotten that version (410), the
       objects are listed again and the handler works out what is gone.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.client.connection import Client
from kaiwo.clusters.kubernetes.client.errors import ApiError, Status, UnreachableError, status_error
from kaiwo.clusters.kubernetes.client.resource import Line, Resource

T = TypeVar("T")

PAGE = 500  # objects; what client-go asks for
PAGE_S = 60.0
WATCH_S = (300, 600)  # a watch's life, drawn anew each time so that watches do not end together
SILENCE_S = 150.0  # the server sends a bookmark about once a minute; two missed ones: the line is dead
LIVED_S = 0.5  # a watch that stood so long worked, whatever it brought and however it ended
LONGEST_PAUSE_S = 5.0  # one scheduler is no crowd, and must see the server again soon after it is back
TURN = 200  # lines decoded before the event loop gets a turn: about 2 ms


class Change(NamedTuple, Generic[T]):
    """One object is new, changed, or gone."""

    object: T
    is_gone: bool = False


class _ExpiredError(Exception):
    """The server no longer has the version."""


class Informer(Generic[T]):
    """Follows one kind. `begun`, `page`, `listed` and `changed` are called on the event loop, one at a time.

    `begun` comes before the first page of each list, also of one that begins anew. `listed` gets the version that the
    list shows; it is empty for a kind that the server does not have.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        on_page: Callable[[Sequence[T]], None],
        on_list_end: Callable[[str], None],
        on_changes: Callable[[Sequence[Change[T]]], None],
        on_list_start: Callable[[], None] = lambda: None,
        report: Callable[..., None] = lambda *_, **__: None,
        selector: dict[str, str] | None = None,
        is_optional: bool = False,
        on_not_found: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self.resource = client, resource
        self._on_list_start, self._on_page, self._on_list_end, self._on_changes = (
            on_list_start,
            on_page,
            on_list_end,
            on_changes,
        )
        self._report = report
        self._selector = selector or {}
        self._is_optional = is_optional  # a kind that the server may not have: then there are none of it
        self._on_not_found = on_not_found  # called each time when the server says that it has not
        self.version = ""
        self.lists = self.watches = self.failures = 0
        self._has_worked = False  # the watch that ended last

    async def run(self) -> None:
        """Until cancelled. Whatever the server does, try again."""
        backoff = Backoff(most_s=LONGEST_PAUSE_S)
        while True:
            at_least_s, has_failed, self._has_worked = 0.0, True, False
            try:
                if not self.version:
                    await self._list()
                await self._watch()
                has_failed = False
            except _ExpiredError:
                self.version, self._has_worked = "", False  # the next one is a whole list: not again and again at once
            except (ApiError, UnreachableError) as error:
                self._fail(error)
                at_least_s = getattr(error, "retry_after_s", 0)
            except Exception as error:  # a watch that ended would never be missed: it is told, and all is listed anew
                self.version, self._has_worked = "", False
                self._fail(error)
            if self._has_worked:
                backoff.reset()
                if not has_failed:
                    continue
            # A server that forgets or ends at once, again and again, must not be asked without a pause.
            await asyncio.sleep(backoff.next_s(at_least_s))

    def _fail(self, error: Exception) -> None:
        if self._is_optional and isinstance(error, ApiError) and error.is_not_found:
            self._on_not_found()
            return  # asked again later: it may be installed while we run
        self.failures += 1
        self._report("kubernetes-watch-failed", level="warning", kind=self.resource.path, error=str(error)[:300])

    async def _list(self) -> None:
        params = {"limit": str(PAGE), **self._selector}
        self._on_list_start()
        try:
            while True:
                body = await self._client.read(self.resource.path, params, PAGE_S, tries=1)
                items, meta = self.resource.read_page(body)
                self._on_page(items)
                if not meta.continue_:
                    break
                params["continue"] = meta.continue_
                await asyncio.sleep(0)
        except ApiError as error:
            if error.is_gone:  # the list's own version grew too old between two pages: begin anew
                self._report("kubernetes-list-expired", level="info", kind=self.resource.path)
                raise _ExpiredError from None
            if not (error.is_not_found and self._is_optional):
                raise
            self._on_list_end("")
            raise
        self.lists += 1
        self._on_list_end(meta.resource_version)
        self.version = meta.resource_version

    async def _watch(self) -> None:
        """Until the watch ends."""
        params = {
            "watch": "true",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_S)),
            **self._selector,
        }
        try:
            async with self._client.stream(self.resource.path, params, SILENCE_S) as content:
                self.watches += 1
                await self._read(content)
        except ApiError as error:
            if error.is_gone:
                raise _ExpiredError from None
            raise

    async def _read(self, content: Any) -> None:
        began_s = time.monotonic()
        try:
            async for lines in _lines(content):
                for start in range(0, len(lines), TURN):
                    self._take(lines[start : start + TURN])
                    await asyncio.sleep(0)
        finally:
            self._has_worked |= time.monotonic() - began_s >= LIVED_S

    def _take(self, lines: Sequence[bytes]) -> None:
        """Changes up to the first error are kept, whatever comes after."""
        changes: list[Change[T]] = []
        try:
            for each in lines:
                line = self.resource.read_line(each)
                if line is None:
                    continue
                self._has_worked |= line.type != "ERROR"
                if line.type == "BOOKMARK":
                    self.version = str(line.object)
                elif line.type == "ERROR":
                    _refuse(line, self.resource.path)
                else:
                    found: Any = line.object
                    changes.append(Change(found, line.type == "DELETED"))
                    self.version = self.resource.version(found)
        finally:
            if changes:
                self._on_changes(changes)


def _refuse(line: Line[Any], path: str) -> None:
    status: Status = line.object
    error = status_error(status, f"watch {path}")
    if error.is_gone:
        raise _ExpiredError
    raise error


async def _lines(content: Any) -> AsyncIterator[list[bytes]]:
    """Whole lines, as many as have arrived. One object may come in several pieces."""
    rest: list[bytes] = []
    while chunk := await content.readany():
        if b"\n" not in chunk:
            rest.append(chunk)
            continue
        *whole, last = b"".join((*rest, chunk)).split(b"\n")
        rest = [last] if last else []
        yield list(_filled(whole))


def _filled(lines: Sequence[bytes]) -> Iterator[bytes]:
    return (line for line in lines if line)
