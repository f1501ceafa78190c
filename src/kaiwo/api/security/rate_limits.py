"""How often something may be done: in all, by each person, and by the owner, whom nobody else can slow down."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kaiwo.api.http.problems import too_many
from kaiwo.api.security.roles import Identity

PART_OF_ONE = 4  # one person has a quarter of what all together have
MAX_QUESTIONS = 50  # of one person, that wait for their turn
MAX_PEOPLE = 1000  # whose rates are remembered; whoever wrote longest ago is forgotten first


class RateLimit:
    """A token bucket: `burst` uses at once, then `per_s` a second."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self.burst = burst
        self._clock = clock
        self._left = burst
        self._at = clock()

    def take(self) -> bool:
        if not self.has_one():
            return False
        self._left -= 1
        return True

    def has_one(self) -> bool:
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._at) * self.per_s)
        self._at = now
        return self._left >= 1

    @property
    def wait_s(self) -> int:
        """When to try again, in whole seconds."""
        return max(1, math.ceil((1 - self._left) / self.per_s))


class WriteRates:
    """All people together have one limit, each of them a part of it, and the owner as much again, alone."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._owner = RateLimit(per_s, burst, clock)
        self._all = RateLimit(per_s, burst, clock)
        self._people: OrderedDict[str, RateLimit] = OrderedDict()

    def take(self, name: str) -> int:
        """0 if this person may write now, else the seconds after which to try again. The owner has no name."""
        if not name:
            return 0 if self._owner.take() else self._owner.wait_s
        mine = self._of(name)
        # Both are looked at first: a refusal takes nothing from anybody.
        for limit in (mine, self._all):
            if not limit.has_one():
                return limit.wait_s
        mine.take()
        self._all.take()
        return 0

    def _of(self, name: str) -> RateLimit:
        found = self._people.get(name)
        if found is None:
            part = max(1.0, self._all.burst / PART_OF_ONE)
            found = self._people[name] = RateLimit(self._all.per_s / PART_OF_ONE, part, self._clock)
        self._people.move_to_end(name)
        if len(self._people) > MAX_PEOPLE:
            self._people.popitem(last=False)
        return found


class QuestionTurns:
    """One question of each person at a time is with the scheduler's thread, however many they ask at once."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Lock] = {}
        self._asked: dict[str, int] = {}  # questions that wait or are being answered

    @asynccontextmanager
    async def of(self, person: Identity) -> AsyncIterator[None]:
        name = room_of(person)
        if self._asked.get(name, 0) > MAX_QUESTIONS:
            raise too_many("too many questions at once; try again when some are answered", 1)
        self._asked[name] = self._asked.get(name, 0) + 1
        try:
            async with self._turns.setdefault(name, asyncio.Lock()):
                yield
        finally:
            self._asked[name] -= 1
            if not self._asked[name]:
                del self._asked[name], self._turns[name]


def room_of(person: Identity) -> str:
    """Whose room a request takes: that of the owner, who has no name here, or of a person, whatever their token."""
    return "" if person.is_owner else person.name or person.credential
