"""One plugin as the scheduler knows it: what the administrator allows, its state, and its costs and faults."""

from typing import Any

import msgspec

from kaiwo.model.digest import digest
from kaiwo.model.errors import PluginError
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.registry import ALL_POINTS
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.plugin_files import FoundPlugin
from kaiwo.runtime.plugin_worker.plugin_manifest import PluginManifest
from kaiwo.runtime.plugin_worker.plugin_settings import PluginSetting
from kaiwo.runtime.plugin_worker.worker_process import CallCosts, WorkerProcess

ACTIVE, DISABLED, SET_ASIDE, NOT_ALLOWED, REFUSED = "active", "disabled", "set-aside", "not-allowed", "refused"
BUILT_IN = "built-in"
NOT_LISTED = (DISABLED, "list it in the file of --plugins to use it")


class PluginStatus(msgspec.Struct, frozen=True):
    """One plugin, as people see it."""

    name: str
    version: str
    state: str  # active | disabled | set-aside | not-allowed | refused
    kinds: tuple[str, ...]
    run: str  # built-in | confined | trusted
    source: str = ""
    sha256: str = ""
    grade: str = ""  # of its confinement
    detail: str = ""  # why it is not active
    calls: int = 0
    mean_us: int = 0
    longest_us: int = 0
    faults: int = 0
    last_fault: str = ""
    last_fault_s: int = 0
    dependencies: tuple[str, ...] = ()
    description: str = ""


class PluginEntry:
    """What is known about one plugin that an administrator can switch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: FoundPlugin | None = None
        self.built_in: type | None = None  # of Kaiwo's own that an administrator switches on
        self.setting: PluginSetting | None = None
        self.state, self.detail, self.sha256 = NOT_ALLOWED, "", ""
        self.grade = ""  # of its last worker
        self.plugin: Plugin | None = None
        self.costs = CallCosts()  # of workers before the present one
        self.faults, self.last_fault, self.last_fault_s = 0, "", 0

    @property
    def kinds(self) -> tuple[str, ...]:
        if self.built_in is not None:
            return tuple(point for point in ALL_POINTS if hasattr(self.built_in, point))
        return self.manifest.kinds if self.manifest is not None else ()

    @property
    def manifest(self) -> PluginManifest | None:
        return self.found.manifest if self.found is not None else None

    @property
    def worker(self) -> WorkerProcess | None:
        return self.plugin.worker if isinstance(self.plugin, ConfinedPlugin) else None

    def successor(self, setting: PluginSetting | None, found: FoundPlugin | None) -> "PluginEntry":
        """The same plugin as it is to become: other files or another configuration."""
        other = PluginEntry(self.name)
        other.built_in, other.setting, other.found = self.built_in, setting, found
        other.faults, other.last_fault, other.last_fault_s = self.faults, self.last_fault, self.last_fault_s
        return other

    def close(self) -> None:
        if self.worker is not None:
            self.costs.add_all(self.worker.costs)
            self.worker.close()
        self.plugin = None


def own_entry(plugin: type) -> PluginEntry:
    """One of Kaiwo's own that an administrator can switch on."""
    entry = PluginEntry(plugin.name)  # type: ignore[attr-defined]
    entry.built_in = plugin
    entry.state, entry.detail = NOT_LISTED
    return entry


def own_manifest(entry: PluginEntry) -> PluginManifest:
    return PluginManifest(entry.name, "1", entry.kinds, "kaiwo:none")


def version_of(manifest: PluginManifest, sha256: str, config: dict[str, Any]) -> str:
    """What the journal records: other files or another configuration may give other answers."""
    return f"{manifest.version}+{sha256[:12]}" + (f".{digest(config)[:8]}" if config else "")


def check_kinds(manifest: PluginManifest, served: frozenset[str]) -> None:
    if set(manifest.kinds) != served:
        said, does = ", ".join(sorted(manifest.kinds)), ", ".join(sorted(served))
        raise PluginError(f"its manifest names the kinds {said}, and its code serves {does}; make them agree")


def check_version(manifest: PluginManifest, said: str) -> None:
    if said not in ("", manifest.version):
        raise PluginError(
            f"its manifest has the version {manifest.version}, and its class {said!r:.80}; "
            "that of the manifest counts: make them agree"
        )


def status_of(entry: PluginEntry) -> PluginStatus:
    manifest, setting, worker, own = entry.manifest, entry.setting, entry.worker, entry.built_in
    about = (own.__doc__ or "").strip().split("\n")[0] if own is not None else ""
    calls = entry.costs.calls + (worker.costs.calls if worker else 0)
    total = entry.costs.total_us + (worker.costs.total_us if worker else 0)
    return PluginStatus(
        name=entry.name,
        version=manifest.version if manifest else str(getattr(own, "version", "")),
        state=entry.state,
        kinds=entry.kinds,
        run=BUILT_IN if own is not None else setting.run if setting else "confined",
        source="Kaiwo" if own is not None else entry.found.source if entry.found else "",
        sha256=entry.sha256,
        grade=entry.grade,
        detail=entry.detail,
        calls=calls,
        mean_us=total // calls if calls else 0,
        longest_us=max(entry.costs.longest_us, worker.costs.longest_us if worker else 0),
        faults=entry.faults,
        last_fault=entry.last_fault,
        last_fault_s=entry.last_fault_s,
        dependencies=manifest.dependencies if manifest else (),
        description=manifest.description if manifest else about,
    )
