"""Keep the topologies up to date: read files again when they change, and labels when nodes change.

A source that can no longer be read leaves its last topology in force; the fault is kept for the API and logged once.
Without any source, the labels of known tools and clouds are looked for on the nodes.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from kaiwo.model.errors import ConfigError
from kaiwo.model.events import Event, TopologyChanged, TopologyGone
from kaiwo.model.network.check_topology import check_topology, check_words_and_numbers
from kaiwo.model.network.topology import Topology
from kaiwo.model.network.topology_source import FILE_KINDS, SourceKind, TopologySource
from kaiwo.model.node import Node
from kaiwo.plugins.builtin.topology_sources import adapter_guids
from kaiwo.plugins.contract import Plugin
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.topology.kept_topologies import KeptTopologies
from kaiwo.runtime.topology.read_source import read_file, read_network, with_access
from kaiwo.topology.sources.node_labels import find_presets

T = TypeVar("T")
REREAD_S = 2.0
FIRST_S = 0.05  # until the cluster's state is there


class SourcePlugins(Protocol):
    """Plugins that read topologies."""

    def active_at(self, point: str) -> Sequence[Plugin]: ...

    async def call(self, plugin: Plugin, point: str, wanted: type[T], *arguments: object) -> T | None:
        """Its answer; None when it was set aside for it."""

    async def set_aside(self, name: str, why: str) -> None: ...


class ReadByPlugin(NamedTuple):
    version: object  # of what it was asked with
    topology: Topology | None


class FirstRead:
    """Nothing is decided before every source was read once: the first cycle would know no levels and access rules."""

    def __init__(self) -> None:
        self._is_done = False

    def may_decide(self) -> bool:
        return self._is_done

    async def read(self, reader: "TopologyReader", wake: Callable[[], None]) -> None:
        """The state is loaded; `wake` tells the loop that it may decide."""
        await reader.refresh()  # its events are there before the loop asks again
        self._is_done = True
        wake()


class TopologyReader:
    """The topologies that come from files and labels; those of the cluster's own objects arrive as events."""

    def __init__(self, live: LiveLoop, sources: Sequence[TopologySource] = ()) -> None:
        self._live = live
        self.sources: tuple[TopologySource, ...] = tuple(sources)
        self.faults: dict[str, str] = {}  # by topology: why the current version of its source is not in force
        self.every_s = REREAD_S
        self._mine: dict[str, Topology] = {}  # in force, by name
        self._seen: dict[str, object] = {}  # by topology: the version of its file that was read last
        self._seen_revision = -1
        self._guids: dict[str, str] = {}
        self.plugins: SourcePlugins | None = None  # None: there are none
        self.file_of: Callable[[str], str] = lambda plugin: ""  # the file that an administrator named for a plugin
        self._of_plugins: dict[str, ReadByPlugin] = {}
        self.kept: KeptTopologies | None = None  # None: a restart forgets what damaged files said before

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                if self._live.ready:
                    await self.refresh()
            except Exception as error:  # scheduling goes on with the topologies in force: log it and try again
                emit("topology-reader-failed", level="error", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(self.every_s if self._live.ready else FIRST_S)

    async def refresh(self) -> None:
        if events := await self.read_again():
            await self._live.add_events(events)

    async def read_again(self) -> list[Event]:
        """The events that bring what has changed since the last call."""
        revision = self._live.revision
        have_nodes_changed = revision != self._seen_revision
        plugins = self.plugins.active_at("topology_source") if self.plugins is not None else ()
        if not self.sources and not plugins and not self._of_plugins and not have_nodes_changed:
            return []
        nodes = tuple(self._live.state.node_objects.values())
        found: dict[str, Topology] = {}
        if not self.sources:
            presets = find_presets([node.labels for node in nodes])
            found = {topology.name: topology for topology in presets if not self._is_covered(topology)}
        if have_nodes_changed and self.sources:
            self._guids = adapter_guids(nodes)
        for source in self.sources:
            if source.kind == SourceKind.NCCL:
                continue  # what is inside the nodes is read at the start
            topology = self._mine.get(source.name)
            if (version := _version(source, revision, self._guids)) != self._seen.get(source.name):
                topology = await self._read(source, nodes)
                self._seen[source.name] = version
            if topology is not None:
                found[source.name] = topology
        self._seen_revision = revision
        found |= await self._read_plugins(plugins, nodes, found)
        events: list[Event] = [TopologyGone(name) for name in sorted(self._mine) if name not in found]
        events += [TopologyChanged(each) for name, each in sorted(found.items()) if self._mine.get(name) != each]
        self._mine = found
        return events

    async def _read_plugins(
        self, plugins: Sequence[Plugin], nodes: tuple[Node, ...], others: Mapping[str, Topology]
    ) -> dict[str, Topology]:
        """The topologies of plugins, each under the plugin's name. One that misbehaves is set aside."""
        if self.plugins is None:
            return {}
        seen = tuple(sorted((node.name, id(node)) for node in nodes))
        known, self._of_plugins = self._of_plugins, {}
        for plugin in plugins:
            path = self.file_of(plugin.name)
            version = (plugin, seen, _file_version(path) if path else 0)
            before = known.get(plugin.name)
            if before is None or before.version != version:
                before = ReadByPlugin(version, await self._ask_plugin(plugin, nodes, path))
            self._of_plugins[plugin.name] = before
        found = {name: each.topology for name, each in self._of_plugins.items() if each.topology is not None}
        return {name: topology for name, topology in found.items() if name not in others}

    async def _ask_plugin(self, plugin: Plugin, nodes: tuple[Node, ...], path: str) -> Topology | None:
        assert self.plugins is not None
        try:
            text = await asyncio.to_thread(read_file, path) if path else ""
        except ConfigError as error:
            self._report(plugin.name, error)
            return self._mine.get(plugin.name)
        topology = await self.plugins.call(plugin, "topology_source", Topology | None, nodes, text)  # type: ignore[arg-type]
        if topology is None:
            return None
        topology = replace(topology, name=plugin.name, source=f"plugin {plugin.name}")
        try:
            check_words_and_numbers(topology, "its topology")
            check_topology(topology, "its topology")
        except ConfigError as error:
            await self.plugins.set_aside(plugin.name, f"topology_source: {error}"[:300])
            return None
        self.faults.pop(plugin.name, None)
        return topology

    def _report(self, name: str, error: ConfigError) -> None:
        if self.faults.get(name) != str(error):
            self.faults[name] = str(error)
            emit("topology-unreadable", level="warning", topology=name, error=str(error))

    async def _read(self, source: TopologySource, nodes: tuple[Node, ...]) -> Topology | None:
        before = self._mine.get(source.name)
        try:
            if before is None and source.name in self._live.state.topology_objects:
                raise ConfigError(f"topology {source.name} exists already in the cluster; name this one differently")
            topology = await asyncio.to_thread(self._read_and_keep, source, nodes)
            self.faults.pop(source.name, None)
            return topology
        except ConfigError as error:
            self._report(source.name, error)
            return before if before is not None else self._kept_before(source)

    def _read_and_keep(self, source: TopologySource, nodes: tuple[Node, ...]) -> Topology | None:
        network = read_network(source, nodes)
        topology = with_access(network, source) if network is not None else None
        if network is not None and self.kept is not None and source.kind in FILE_KINDS:
            self.kept.keep(source, network)
        return topology

    def _kept_before(self, source: TopologySource) -> Topology | None:
        """The last good version, from before the start; None: there is none to which the rules of today belong."""
        is_taken = source.name in self._live.state.topology_objects
        network = self.kept.of(source) if self.kept is not None and not is_taken else None
        if network is None or source.kind not in FILE_KINDS:
            return None
        with contextlib.suppress(ConfigError):
            return with_access(network, source)
        return None

    def _is_covered(self, topology: Topology) -> bool:
        """The cluster has a topology of its own with this name, or from all of these labels."""
        others = [each for name, each in self._live.state.topology_objects.items() if name not in self._mine]
        keys = {level.node_label for level in topology.levels}
        return any(each.name == topology.name or keys <= {level.node_label for level in each.levels} for each in others)


def _version(source: TopologySource, revision: int, guids: dict[str, str]) -> object:
    """Changes when the source may read differently."""
    if source.kind == SourceKind.WRITTEN:
        return 0
    if source.kind not in FILE_KINDS:
        return revision
    known = tuple(guids.items()) if source.kind == SourceKind.IBNETDISCOVER else ()
    return (_file_version(source.path), known)


def _file_version(path: str) -> object:
    try:
        facts = os.stat(path)
    except OSError as error:
        return error.errno
    return (facts.st_mtime_ns, facts.st_size, facts.st_ino)
