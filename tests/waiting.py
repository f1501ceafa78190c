"""How tests wait: until a condition holds, for as long as a busy machine may need. A quiet machine never waits."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 90.0


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine to its end."""
    return asyncio.run(asyncio.wait_for(work, 3 * PATIENCE_S))


def wait_until(condition: Callable[[], object], what: str = "it") -> float:
    """Return how many seconds it took."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < PATIENCE_S, f"waited too long for {what}"
        time.sleep(0.01)
    return time.monotonic() - began_s


async def until(condition: Callable[[], object], what: str = "it") -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited too long for {what}"
        await asyncio.sleep(0.01)


async def until_answer(ask: Callable[[], Awaitable[T]], is_right: Callable[[T], object], what: str = "it") -> T:
    """Ask again until the answer is right; views follow the cluster a moment later."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_right(answer := await ask()):
        assert time.monotonic() < deadline_s, f"waited too long for {what}; the last answer was {answer}"
        await asyncio.sleep(0.02)
    return answer


def is_in_time(took_s: float, limit_s: float) -> bool:
    """A quiet machine gets no more time than the limit, a busy one as much more as its other work takes from us."""
    return took_s < limit_s or took_s < limit_s * _slowdown()


def _slowdown() -> float:
    """How many times longer work takes now than if no other process used the processors."""
    spin = "import time; b = time.perf_counter(); c = time.process_time()\nwhile time.process_time() - c < 0.2: pass\n"
    command = [sys.executable, "-c", f"{spin}print(time.perf_counter() - b)"]
    spinners = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(os.cpu_count() or 1)]
    return max(1.0, *(float(spinner.communicate()[0]) / 0.2 for spinner in spinners))
