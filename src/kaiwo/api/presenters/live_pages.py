"""Pages that clients follow as streams: each is computed once for all its readers.

In:    the overview, and which pages have readers.   Out: encoded events with rising numbers, kept for a while.
Changes are kept in a bounded ring, however slow a reader is; a page without readers is not computed.
"""

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from kaiwo.api.presenters.list_pages import Listing
from kaiwo.api.views.answers import Page, StreamDelta, StreamReset
from kaiwo.runtime.overview.cluster_overview import ClusterOverview

PERIOD_S = 0.25  # at most four changes a second
REST_FACTOR = 4  # a round that keeps the event loop busy is followed by a rest of this many times as long
REST_MAX_S = 2.0
RING_EVENTS = 64
RING_BYTES = 1024 * 1024
IDLE_PAGES = 64  # kept for readers who come back


class LivePage:
    def __init__(self, listing: Listing, query: Any) -> None:
        self.listing = listing
        self.query = query
        self.epoch = secrets.token_hex(6)
        self.seq = 0
        self.readers = 0
        self.refreshed_at = float("-inf")
        self.revision = -1  # the cluster's revision that it shows
        self.changed = asyncio.Event()  # set and replaced at each change
        self._items: dict[str, Any] = {}
        self._page: Page[Any] | None = None
        self._ring: deque[tuple[int, bytes]] = deque()
        self._ring_bytes = 0
        self._reset: tuple[int, bytes] | None = None

    def update(self, page: Page[Any]) -> None:
        """Set the page's content. When it differs, all readers wake up."""
        items = {self.listing.key_of(item): item for item in page.items}
        before, self._page = self._page, page
        self.refreshed_at = time.monotonic()
        if before is None:
            self._items = items
            return
        delta = make_delta(before, page, self._items, items)
        self._items = items
        if delta is not None:
            self._append(delta)

    def events_after(self, event_id: str) -> list[bytes]:
        """The changes since this event, or the whole page if they are no longer kept."""
        epoch, _, number = event_id.rpartition("-")
        if epoch == self.epoch and number.isdecimal():
            seen = int(number)
            missed = [event for seq, event in self._ring if seq > seen]
            if seen <= self.seq and len(missed) == self.seq - seen:
                return missed
        return [self._reset_event()]

    @property
    def event_id(self) -> str:
        return f"{self.epoch}-{self.seq}"

    def _append(self, delta: StreamDelta) -> None:
        self.seq += 1
        event = encode_event("delta", self.event_id, delta)
        self._ring.append((self.seq, event))
        self._ring_bytes += len(event)
        while len(self._ring) > RING_EVENTS or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(self._ring.popleft()[1])
        self.changed.set()
        self.changed = asyncio.Event()

    def _reset_event(self) -> bytes:
        """Encoded once for all readers who need it."""
        page = self._page
        assert page is not None
        if self._reset is None or self._reset[0] != self.seq:
            data = StreamReset(self.listing.view, page.items, page.total, page.next, self.listing.key)
            self._reset = (self.seq, encode_event("reset", self.event_id, data))
        return self._reset[1]


class LivePages:
    """All pages with readers, and the task that keeps them up to date."""

    def __init__(self, overview: ClusterOverview, report: Callable[[Exception, str], None]) -> None:
        self._overview = overview
        self._report = report
        self._pages: OrderedDict[Hashable, LivePage] = OrderedDict()
        self._has_readers = asyncio.Event()
        self._changed = asyncio.Event()  # the cluster changed, or a page has a new reader
        self._lock = asyncio.Lock()

    async def subscribe(self, listing: Listing, query: Any) -> LivePage:
        key = (listing.view, query)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = LivePage(listing, query)
        page.readers += 1
        self._pages.move_to_end(key)
        try:
            # A page with other readers is kept up to date; one without readers missed what happened meanwhile.
            is_behind = page.readers == 1 and page.revision != self._overview.live.revision
            if is_behind or time.monotonic() - page.refreshed_at > PERIOD_S:
                await self._refresh(page)
        except BaseException:
            self.unsubscribe(page)
            raise
        self._has_readers.set()
        self._changed.set()
        return page

    def unsubscribe(self, page: LivePage) -> None:
        """The page is kept for a while, for readers who come back."""
        page.readers -= 1
        idle = [key for key, each in self._pages.items() if not each.readers]
        for key in idle[: max(0, len(idle) - IDLE_PAGES)]:
            del self._pages[key]
        if len(idle) == len(self._pages):
            self._has_readers.clear()

    async def run(self) -> None:
        """Forever: recompute every followed page that is older than the cluster's state."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            while True:
                await self._has_readers.wait()
                began, busy_s = time.monotonic(), 0.0
                for page in await self._outdated():
                    busy_s += await self._try_refresh(page)
                    await asyncio.sleep(0)
                await asyncio.sleep(max(PERIOD_S - (time.monotonic() - began), min(REST_FACTOR * busy_s, REST_MAX_S)))

    async def _watch(self) -> None:
        seen = -1
        while True:
            seen = await self._overview.live.changed(seen)
            self._changed.set()

    async def _outdated(self) -> list[LivePage]:
        """Wait until followed pages are older than the cluster. A page may have been computed from older rows than
        those that woke us: then it is outdated again.
        """
        while True:
            self._changed.clear()
            revision = self._overview.live.revision
            if found := [each for each in self._pages.values() if each.readers and each.revision != revision]:
                return found
            await self._changed.wait()

    async def _try_refresh(self, page: LivePage) -> float:
        # The edge of the streams: one page that cannot be made must not stop the others.
        revision = self._overview.live.revision
        try:
            return await self._refresh(page)
        except Exception as error:
            page.revision = revision  # tried again only at the next change
            self._report(error, f"stream of {page.listing.view}")
            return 0.0

    async def _refresh(self, page: LivePage) -> float:
        """Returns how long the event loop was busy with it."""
        async with self._lock:
            await (self._overview.fresh_queues() if page.listing.needs_queues else self._overview.fresh())
            began = time.thread_time()
            page.revision = self._overview.shown_revision
            page.update(page.listing.page(self._overview, page.query))
            return time.thread_time() - began


def make_delta(before: Page[Any], now: Page[Any], old: dict[str, Any], new: dict[str, Any]) -> StreamDelta | None:
    # A row that is the same object is not compared: with a thousand nodes that would cost more than all the rest.
    changed = [item for key, item in new.items() if (was := old.get(key)) is not item and was != item]
    gone = [key for key in old if key not in new]
    order = list(new) if list(new) != list(old) else msgspec.UNSET
    more = now.next if now.next != before.next else msgspec.UNSET
    if not changed and not gone and order is msgspec.UNSET and more is msgspec.UNSET and now.total == before.total:
        return None
    return StreamDelta(changed, gone, now.total, order, more)


def encode_event(event: str, event_id: str, data: Any) -> bytes:
    """One server-sent event. JSON has no line breaks, so one data line is enough."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (event.encode(), event_id.encode(), msgspec.json.encode(data))
