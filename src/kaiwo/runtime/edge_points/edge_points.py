"""All points at the edge of one running scheduler, joined to its loop."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from kaiwo.plugins.edge_contract import Metric, Notice
from kaiwo.runtime.edge_points.counted_resources import ResourceCounter
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from kaiwo.runtime.edge_points.monitoring import Monitoring
from kaiwo.runtime.edge_points.notifications import Notifications
from kaiwo.runtime.edge_points.plugin_start_gate import PluginStartGate
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet

RELEASE_S = 1.0


class EdgePoints:
    """The plugins at the edge, and what they said."""

    def __init__(self, plugins: PluginSet, live: LiveLoop, home: str) -> None:
        self.plugins, self._live = plugins, live
        self.calls = EdgeCalls(plugins, live.ask)
        self.monitoring = Monitoring(self.calls, live, Path(home))
        self.resources = ResourceCounter(self.calls, live)
        self.notifications = Notifications(self.calls, live, self.monitoring.files, self._address_of)
        self._event_loop: asyncio.AbstractEventLoop | None = None  # while it runs

    def attach(self) -> None:
        """From now on the loop asks the plugins about starts. Call it before the loop runs."""
        self._live.gate = PluginStartGate(self.calls)

    async def run(self) -> None:
        """Until cancelled."""
        self._event_loop = asyncio.get_running_loop()
        self.plugins.on_set_aside = self._tell_set_aside
        await asyncio.gather(
            self.plugins.run(self._live), self.plugins.watch(self._live), self.monitoring.run(), self.resources.run(),
            self.notifications.watch(), self.notifications.deliver(), self._release(),
        )  # fmt: skip

    async def _release(self) -> None:
        """Let work go on that a plugin refused which no longer takes part."""
        while True:
            await asyncio.sleep(RELEASE_S)
            active = {each.name for point in ("reserve", "permit") for each in self.calls.active_at(point)}
            refused = self._live.state.refused_starts.values()
            if over := [replace(each, until_s=0) for each in refused if each.plugin not in active]:
                await self._live.add_events(over)

    @property
    def metrics(self) -> dict[str, list[Metric]]:
        """By plugin: the numbers that it adds to `/metrics`."""
        return self.monitoring.values

    def _address_of(self, plugin: str) -> str:
        setting = self.plugins.setting_of(plugin)
        return setting.deliver_to if setting is not None else ""

    def file_of(self, plugin: str) -> str:
        """The file whose text a topology source gets; empty: none."""
        setting = self.plugins.setting_of(plugin)
        return setting.file if setting is not None else ""

    def _tell_set_aside(self, name: str, detail: str) -> None:
        """On the thread that decides."""
        notice = Notice("plugin-set-aside", name, self._live.clock()[0], detail)
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self.notifications.add, notice)
