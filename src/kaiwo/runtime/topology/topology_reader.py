"""Keep the topologies up to date: read files again when they change, and labels when nodes change.

A source that can no longer be read leaves its last topology in force; the fault is kept for the API and logged once.
Without any source, the labels of known tools and clouds are looked for on the nodes.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence

from kaiwo.model.errors import ConfigError
from kaiwo.model.events import Event, TopologyChanged, TopologyGone
from kaiwo.model.network.topology import Topology
from kaiwo.model.network.topology_source import FILE_KINDS, SourceKind, TopologySource
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.topology.read_source import adapter_guids, read_source
from kaiwo.topology.sources.node_labels import find_presets

REREAD_S = 2.0
FIRST_S = 0.05  # until the cluster's state is there


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
        if not self.sources and not have_nodes_changed:
            return []
        nodes = dict(self._live.state.node_objects)
        labels = [node.labels for node in nodes.values()]
        found: dict[str, Topology] = {}
        if not self.sources:
            found = {topology.name: topology for topology in find_presets(labels) if not self._is_covered(topology)}
        if have_nodes_changed and self.sources:
            self._guids = adapter_guids(nodes)
        for source in self.sources:
            if source.kind == SourceKind.NCCL:
                continue  # what is inside the nodes is read at the start
            topology = self._mine.get(source.name)
            if (version := _version(source, revision, self._guids)) != self._seen.get(source.name):
                topology = await self._read(source, labels)
                self._seen[source.name] = version
            if topology is not None:
                found[source.name] = topology
        self._seen_revision = revision
        events: list[Event] = [TopologyGone(name) for name in sorted(self._mine) if name not in found]
        events += [TopologyChanged(each) for name, each in sorted(found.items()) if self._mine.get(name) != each]
        self._mine = found
        return events

    async def _read(self, source: TopologySource, labels: Sequence[Mapping[str, str]]) -> Topology | None:
        before = self._mine.get(source.name)
        try:
            if before is None and source.name in self._live.state.topology_objects:
                raise ConfigError(f"topology {source.name} exists already in the cluster; name this one differently")
            topology = await asyncio.to_thread(read_source, source, labels, self._guids)
            self.faults.pop(source.name, None)
            return topology
        except ConfigError as error:
            if self.faults.get(source.name) != str(error):
                self.faults[source.name] = str(error)
                emit("topology-unreadable", level="warning", topology=source.name, error=str(error))
            return before

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
    try:
        facts = os.stat(source.path)
    except OSError as error:
        return error.errno
    known = tuple(guids.items()) if source.kind == SourceKind.IBNETDISCOVER else ()
    return (facts.st_mtime_ns, facts.st_size, facts.st_ino, known)
