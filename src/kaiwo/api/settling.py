"""Let the picture catch up with what was just changed, so that whoever looks next sees it."""

import asyncio
import contextlib
from collections.abc import Callable

from kaiwo.runtime.board import Live

SETTLE_S = 1.0


async def settle(live: Live, is_seen: Callable[[], bool]) -> None:
    """A moment at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_S):
            while not is_seen():
                await live.changed(live.revision)
