"""Decide which connections of one listener are open, so that strangers cannot use up Kaiwo's room, time or memory.

A connection is waiting, from its beginning to the end of a request's head and again after the answer, or it is being
served. Waiting needs no login, so anybody can have many of those: they have a bound of their own, and the one that has
waited longest is closed for a new one. Being served for long needs a login, or reading an answer slowly, which has a
time limit.

In:    what happens to connections.   Out: which may stay, and the counts for metrics and the log.
Never: closes a connection in favour of another while it is served and reads its answer.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from kaiwo.api.http.connection_counts import CloseCause, ConnectionCounts
from kaiwo.runtime.log import emit_limited

HEAD_S = 10.0  # from the first byte, or the beginning of a connection, to the end of a request's head; also for TLS
REST_S = 10.0  # for the rest of a request that was answered before it was complete
REST_BYTES = 8_000_000  # so that a client which sends too much reads the answer that says so
UNREAD_S = 20.0  # how long a client may read nothing of its answer
UNREAD_BYTES_PER_S = 16_384  # and more slowly than this it may not read the end of one
CROWDED_S = 1.5  # an honest client sends its request sooner; nobody is closed for another before that
STALLED_S = 2.0  # a client that reads nothing for this long is closed when there is no other place
SWEEP_S = 0.5
DROP_S = 0.02
DROPPED_AT_ONCE = 4  # parts of requests that were answered already, up to 256 KB each: about 50 MB a second
BEGUN_AT_ONCE = 16  # requests that begin in one turn of the event loop; each takes about a millisecond


class Limits(msgspec.Struct, frozen=True):
    """How many connections one listener has."""

    open: int
    waiting: int
    of_address: int


class Place:
    """What the gate knows of one connection."""

    __slots__ = ("address", "cause", "close", "deadline_s", "stalled_s", "unread_bytes", "waits_since_s")

    def __init__(self, address: str, now_s: float) -> None:
        self.address = address
        self.close: Callable[[], object] = lambda: None  # at once
        self.unread_bytes: Callable[[], int] = lambda: 0  # of an answer
        self.waits_since_s = now_s
        self.stalled_s: float | None = None  # since when it reads nothing; None: it reads
        self.deadline_s: float | None = now_s + HEAD_S  # for what it should do next; None: there is no limit
        self.cause = CloseCause.SILENT  # why it is closed at its deadline


class ConnectionGate:
    def __init__(self, limits: Limits, counts: ConnectionCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self.counts = limits, counts
        self._clock = clock
        self._open: set[Place] = set()
        self._waiting: dict[Place, None] = {}  # those that have waited longest first
        self._timed: set[Place] = set()  # those with a deadline, or that read nothing
        self._of_address: Counter[str] = Counter()
        self._begun = 0  # requests in this turn of the event loop
        self._delayed: deque[Callable[[], None]] = deque()
        self._dropped = 0  # parts in the last DROP_S
        self._paused: deque[Callable[[], None]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether to accept another connection now, after closing one if necessary; otherwise the kernel keeps it."""
        return len(self._waiting) < self.limits.waiting or self._make_room(lambda place: place in self._waiting)

    def admit(self, address: str) -> Place | None:
        """A place for a new connection; None: it is refused."""
        if not self._has_room_for(address):
            self.note(CloseCause.REFUSED)
            return None
        place = Place(address, self._clock())
        self._open.add(place)
        self._waiting[place] = None
        self._timed.add(place)
        self._of_address[address] += 1
        self.counts.open += 1
        return place

    def release(self, place: Place) -> None:
        """Its connection is closed. Harmless when repeated."""
        if place not in self._open:
            return
        self._open.discard(place)
        self._waiting.pop(place, None)
        self._timed.discard(place)
        self._of_address[place.address] -= 1
        if not self._of_address[place.address]:
            del self._of_address[place.address]
        self.counts.open -= 1

    def waits(self, place: Place, cause: CloseCause, within_s: float | None) -> None:
        """It waits for its next request, or, with a limit, should end this one."""
        if place not in self._open:
            return
        now_s = self._clock()
        place.waits_since_s = now_s
        self._waiting.pop(place, None)
        self._waiting[place] = None
        self._set_deadline(place, cause, within_s, now_s)

    def sends_head(self, place: Place) -> None:
        """The first bytes of its next request have arrived."""
        if place in self._waiting and place.deadline_s is None:
            self._set_deadline(place, CloseCause.SILENT, HEAD_S, self._clock())

    def is_served(self, place: Place) -> None:
        self._waiting.pop(place, None)
        place.deadline_s = None
        if place.stalled_s is None:
            self._timed.discard(place)

    def reads(self, place: Place, does_read: bool) -> None:
        place.stalled_s = None if does_read else self._clock()
        if not does_read and place in self._open:
            self._timed.add(place)

    def begin(self, request: Callable[[], None]) -> bool:
        """Begin a request in this turn of the event loop, or in a later one, so that other work has its turns, too.

        Returns whether it has begun.
        """
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._begun < BEGUN_AT_ONCE and not self._delayed:
            self._begun += 1
            request()
            return True
        self._delayed.append(request)
        return False

    def _next_turn(self) -> None:
        self._begun = min(len(self._delayed), BEGUN_AT_ONCE)
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next_turn)
        for _ in range(self._begun):
            self._delayed.popleft()()

    def drop(self, read_on: Callable[[], None]) -> bool:
        """Drop a part of a request that was answered already. Returns False if the next may only come later."""
        if not self._dropped:
            asyncio.get_running_loop().call_later(DROP_S, self._drop_more)
        self._dropped += 1
        if self._dropped <= DROPPED_AT_ONCE and not self._paused:
            return True
        self._paused.append(read_on)
        return False

    def _drop_more(self) -> None:
        self._dropped = min(len(self._paused), DROPPED_AT_ONCE)
        if self._dropped:
            asyncio.get_running_loop().call_later(DROP_S, self._drop_more)
        for _ in range(self._dropped):
            self._paused.popleft()()

    def note(self, cause: CloseCause) -> None:
        self.counts.closed[cause] += 1
        emit_limited("connection-closed", level="warning", cause=cause.value, open=len(self._open))

    def free_descriptor(self) -> None:
        """There is none left: close the connection that has waited longest."""
        self.note(CloseCause.NO_DESCRIPTORS)
        self._make_room(lambda place: True)

    def sweep(self) -> None:
        """Close the connections whose time is up."""
        now_s = self._clock()
        for place in list(self._timed):
            if place.deadline_s is not None and now_s >= place.deadline_s:
                self._end_wait(place)
            elif place.stalled_s is not None and now_s >= place.stalled_s + UNREAD_S:
                self._close(place, CloseCause.SLOW_READER)
            elif place.deadline_s is None and place.stalled_s is None:
                self._timed.discard(place)

    def _end_wait(self, place: Place) -> None:
        if place.cause is CloseCause.SLOW_READER and not place.unread_bytes():
            place.deadline_s = None  # it has read all of its answer
        else:
            self._close(place, place.cause)

    def _set_deadline(self, place: Place, cause: CloseCause, within_s: float | None, now_s: float) -> None:
        place.cause = cause
        place.deadline_s = None if within_s is None else now_s + within_s
        if within_s is not None:
            self._timed.add(place)

    def _has_room_for(self, address: str) -> bool:
        if self._of_address[address] >= self.limits.of_address:
            return self._make_room(lambda place: place.address == address)
        return len(self._open) < self.limits.open or self._make_room(lambda place: True)

    def _make_room(self, is_candidate: Callable[[Place], bool]) -> bool:
        """Close the connection that has waited longest, else one that does not read."""
        now_s = self._clock()
        for place in self._waiting:
            if now_s - place.waits_since_s < CROWDED_S:
                break
            if is_candidate(place):
                self._close(place, CloseCause.CROWDED)
                return True
        for place in self._timed:
            if place.stalled_s is not None and now_s - place.stalled_s >= STALLED_S and is_candidate(place):
                self._close(place, CloseCause.SLOW_READER)
                return True
        return False

    def _close(self, place: Place, cause: CloseCause) -> None:
        self.note(cause)
        self.release(place)
        place.close()
