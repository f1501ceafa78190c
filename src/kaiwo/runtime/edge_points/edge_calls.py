"""Call a plugin at the edge: off the event loop, with a deadline, and with a check of what it answers.

A plugin that raises, answers nonsense or misses its deadline is set aside; the caller goes on without its answer.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from kaiwo.plugins.builtin import SWITCHED
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.guarded_calls import PluginFaultError, PluginStoppedError, call_for_value
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.plugin_set import Asks

T = TypeVar("T")
LATE_S = 30.0  # a plugin inside the scheduler that takes longer is left behind; a worker has its own deadline


class EdgePlugins(Protocol):
    """The part of the plugin set that the edge needs."""

    def active_at(self, point: str) -> Sequence[Plugin]: ...

    def add_cost(self, name: str, took_us: int) -> None: ...

    def set_aside(self, faults: Sequence[tuple[str, str]]) -> None: ...


class EdgeCalls:
    def __init__(self, plugins: EdgePlugins, ask: Asks) -> None:
        self._plugins, self._ask = plugins, ask
        self.late_s = LATE_S

    def active_at(self, point: str) -> Sequence[Plugin]:
        return self._plugins.active_at(point)

    async def call(self, plugin: Plugin, point: str, wanted: type[T], *arguments: Any) -> T | None:
        """Its answer; None when it was set aside for it, or stopped meanwhile."""
        began = time.perf_counter_ns()
        method = getattr(plugin, point)
        try:
            async with asyncio.timeout(self.late_s):
                on_thread: Callable[..., Awaitable[T]] = asyncio.to_thread if _ends(plugin) else _on_own_thread
                answer = await on_thread(call_for_value, plugin.name, method, wanted, *arguments)
        except PluginStoppedError:
            return None
        except PluginFaultError as fault:
            await self._blame(plugin, point, fault.detail)
            return None
        except TimeoutError:
            await self._blame(plugin, point, f"did not answer within {self.late_s:g} s")
            return None
        self._plugins.add_cost(plugin.name, (time.perf_counter_ns() - began) // 1000)
        return answer

    async def _blame(self, plugin: Plugin, point: str, why: str) -> None:
        """Unless it was replaced while it was asked: the next one must not fall for it."""
        if any(each is plugin for each in self.active_at(point)):
            await self.set_aside(plugin.name, f"{point}: {why}")

    async def set_aside(self, name: str, why: str) -> None:
        await self._ask(lambda _: self._plugins.set_aside([(name, why)]))


def _ends(plugin: Plugin) -> bool:
    """Kaiwo's own do, and a worker has a deadline. One of others inside the scheduler may never come back."""
    return isinstance(plugin, (ConfinedPlugin, *SWITCHED))


def _on_own_thread(work: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    """On a thread that nobody waits for: one that never comes back takes no place of others, and lets Kaiwo end."""
    events = asyncio.get_running_loop()
    future: asyncio.Future[T] = events.create_future()

    def settle(answer: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # it came too late
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, answer))

    def run() -> None:
        try:
            told: tuple[T | None, BaseException | None] = (work(*arguments), None)
        except Exception as error:  # it is raised where somebody waits
            told = (None, error)
        with contextlib.suppress(RuntimeError):  # Kaiwo has ended
            events.call_soon_threadsafe(settle, *told)

    threading.Thread(target=run, name="kaiwo-edge", daemon=True).start()
    return future
