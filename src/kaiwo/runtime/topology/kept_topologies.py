"""The last good topology of each file, so that a file that is damaged during a restart changes nothing either.

In the home folder, which no other process writes. What the cluster file says beside a source, such as its access rules,
is not kept: it is read at every start.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from kaiwo.model.network.topology import Topology
from kaiwo.model.network.topology_source import SourceKind, TopologySource

FILE = "topologies.msgpack"


class KeptTopology(msgspec.Struct, frozen=True):
    kind: SourceKind
    path: str  # absolute
    topology: Topology


class KeptTopologies:
    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE
        self._kept: dict[tuple[SourceKind, str, str], KeptTopology] | None = None  # None: not loaded yet

    def of(self, source: TopologySource) -> Topology | None:
        """What this file said last. None: it was never read, or only under another name or as another kind."""
        kept = self._load().get(_key(source))
        return kept.topology if kept is not None else None

    def keep(self, source: TopologySource, topology: Topology) -> None:
        """If the disk is full, the next start knows the version before."""
        kept, key = self._load(), _key(source)
        now = KeptTopology(source.kind, key[1], topology)
        if kept.get(key) == now:
            return
        kept[key] = now
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.touch(mode=0o600)
            temporary.write_bytes(msgspec.msgpack.encode(list(kept.values())))
            os.replace(temporary, self._path)

    def _load(self) -> dict[tuple[SourceKind, str, str], KeptTopology]:
        if self._kept is None:
            found: list[KeptTopology] = []
            with contextlib.suppress(OSError, msgspec.MsgspecError):  # none, or another version wrote it
                found = msgspec.msgpack.decode(self._path.read_bytes(), type=list[KeptTopology])
            self._kept = {(each.kind, each.path, each.topology.name): each for each in found}
        return self._kept


def _key(source: TopologySource) -> tuple[SourceKind, str, str]:
    return source.kind, os.path.abspath(source.path), source.name
