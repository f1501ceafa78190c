"""The plugins of a running scheduler: allowed, loaded, enabled, disabled, reloaded, and set aside when they misbehave.

In:    the administrator's file, and what is installed.   Out: a registry for `decide`, and the status of each plugin.
Never: imports a plugin whose name and hash the file does not allow, or changes the registry while a cycle is decided.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import msgspec

import kaiwo
from kaiwo.model.digest import digest
from kaiwo.model.errors import ConfigError, NotFoundError, PluginError, RefusedError
from kaiwo.model.plan import Note
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import POINTS, Registry, check_plugin
from kaiwo.runtime.log import emit
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.monitoring_sinks import EVERY_S, SampledLoop, SinkPlugin, feed_sinks
from kaiwo.runtime.plugin_worker.plugin_files import FoundPlugin, installed_plugins, plugin_in, read_files
from kaiwo.runtime.plugin_worker.plugin_manifest import PluginManifest, dependents, fits_version, load_order
from kaiwo.runtime.plugin_worker.plugin_settings import PluginSetting, read_plugin_settings
from kaiwo.runtime.plugin_worker.trusted_plugin import load_trusted
from kaiwo.runtime.plugin_worker.worker_process import CallCosts, WorkerProcess
from kaiwo.snapshot.cluster_state import ClusterState

T = TypeVar("T")
FOLDER = "plugins"  # in KAIWO_HOME: copies of the files that were hashed
ACTIVE, DISABLED, SET_ASIDE, NOT_ALLOWED, REFUSED = "active", "disabled", "set-aside", "not-allowed", "refused"


class Asks(Protocol):
    """Runs a function while neither a cycle is decided nor the state changes."""

    def __call__(self, question: Callable[[ClusterState], T]) -> Awaitable[T]: ...


class WatchedLoop(Protocol):
    def changed(self, after: int) -> Awaitable[int]: ...

    def ask(self, question: Callable[[ClusterState], T]) -> Awaitable[T]: ...

    def recent_notes(self) -> Sequence[Note]: ...

    def clock(self) -> tuple[int, int]: ...


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


class _Entry:
    """What is known about one plugin that did not come with Kaiwo."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: FoundPlugin | None = None
        self.setting: PluginSetting | None = None
        self.state, self.detail, self.sha256 = NOT_ALLOWED, "", ""
        self.plugin: Plugin | None = None
        self.costs = CallCosts()  # of workers before the present one
        self.faults, self.last_fault, self.last_fault_s = 0, "", 0

    @property
    def manifest(self) -> PluginManifest | None:
        return self.found.manifest if self.found is not None else None

    @property
    def worker(self) -> WorkerProcess | None:
        return self.plugin.worker if isinstance(self.plugin, ConfinedPlugin) else None

    def close(self) -> None:
        if self.worker is not None:
            costs = self.worker.costs
            self.costs.calls += costs.calls
            self.costs.total_us += costs.total_us
            self.costs.longest_us = max(self.costs.longest_us, costs.longest_us)
            self.worker.close()
        self.plugin = None


class PluginSet:
    def __init__(self, home: str = "", path: str = "") -> None:
        self._home, self._path = Path(home), path
        self._builtin = builtin_registry().plugins
        self.registry: Registry = builtin_registry()
        self._entries: dict[str, _Entry] = {}
        self._order: list[str] = []
        self.problems: list[str] = []  # with packages that announce plugins
        self._faults: deque[tuple[str, str]] = deque()
        # One thread starts all workers: each worker is killed when the thread that started it ends.
        self._thread = ThreadPoolExecutor(1, "kaiwo-plugins")

    def load(self) -> None:
        """Load what the file allows. Only a file that cannot be read raises; a plugin that cannot be used is refused.

        Without a file nothing is looked for: most installations have no plugins.
        """
        if not self._path:
            return
        self._read()
        for name in self._order:
            entry = self._entries[name]
            if entry.setting is not None and entry.setting.enabled and entry.state != REFUSED:
                self._refuse_or(entry, partial(self._start, entry))
        self._publish()

    def statuses(self) -> list[PluginStatus]:
        """Those of strangers first."""
        foreign = [_status(self._entries[name]) for name in sorted(self._entries)]
        own = [
            PluginStatus(each.name, each.version, ACTIVE, tuple(sorted(check_plugin(each))), "built-in", "Kaiwo",
                         description=(type(each).__doc__ or "").strip().split("\n")[0])
            for each in sorted(self._builtin, key=lambda plugin: plugin.name)
        ]  # fmt: skip
        return foreign + own

    def status(self, name: str) -> PluginStatus:
        found = next((each for each in self.statuses() if each.name == name), None)
        if found is None:
            raise NotFoundError(f"there is no plugin '{name}'; `kaiwo plugins` lists them")
        return found

    async def enable(self, name: str, ask: Asks) -> PluginStatus:
        """Start a plugin that is disabled, refused or set aside."""
        entry = self._foreign(name)
        if entry.state != ACTIVE:
            self._check_live(entry)
            await self._on_thread(self._start_again, entry)
            await ask(lambda _: self._publish())
            emit("plugin-enabled", plugin=name)
        return self.status(name)

    async def disable(self, name: str, ask: Asks) -> PluginStatus:
        entry = self._foreign(name)
        if entry.state == ACTIVE:
            self._check_live(entry)
            needed_by = [each for each in self._dependents(name) if self._entries[each].state == ACTIVE]
            if needed_by:
                raise RefusedError(f"'{name}' is needed by {', '.join(needed_by)}; disable that first")
        await ask(lambda _: self._take_out(entry, DISABLED, "an administrator disabled it"))
        emit("plugin-disabled", plugin=name)
        return self.status(name)

    async def reload(self, name: str, ask: Asks) -> PluginStatus:
        """Read the administrator's file and the plugin's files again, and start what they are now."""
        if not self._path:
            raise RefusedError("Kaiwo runs without plugins; start it with --plugins FILE")
        before = self._entries.get(name)
        if before is not None and before.state == ACTIVE:
            self._check_live(before)
            await ask(lambda _: self._take_out(before, DISABLED, "it is being reloaded"))
        await self._on_thread(self._read)
        entry = self._foreign(name)
        await self._on_thread(self._start_again, entry)
        await ask(lambda _: self._publish())
        emit("plugin-reloaded", plugin=name, sha256=entry.sha256)
        return self.status(name)

    async def run(self, live: WatchedLoop) -> None:
        """Set aside what misbehaved in the last cycle."""
        seen, judged = -1, -1
        while True:
            seen = await live.changed(seen)
            cycle = live.clock()[1]
            # A cycle is judged once: a plugin that was enabled since must not fall for what it did before.
            notes, judged = (live.recent_notes() if cycle != judged else ()), cycle
            if found := self._new_faults(notes):
                await live.ask(lambda _, found=found: self.set_aside(found))  # type: ignore[misc]

    async def feed_sinks(self, live: SampledLoop, every_s: float = EVERY_S) -> None:
        """Give a sample to every active sink now and then."""
        await feed_sinks(live, self._home, self._sinks, lambda name, why: self.set_aside([(name, why)]), every_s)

    def close(self) -> None:
        for entry in self._entries.values():
            entry.close()
        self._thread.shutdown()

    def set_aside(self, faults: Sequence[tuple[str, str]]) -> None:
        """Take these out of the registry, with all that depend on them, until someone enables them again."""
        for name, detail in faults:
            entry = self._entries.get(name)
            if entry is None or entry.state != ACTIVE:
                continue
            entry.faults += 1
            entry.last_fault, entry.last_fault_s = detail, int(time.time())
            self._take_out(entry, SET_ASIDE, detail)
            emit("plugin-set-aside", level="error", plugin=name, detail=detail)
            for other in self._dependents(name):
                if self._entries[other].state == ACTIVE:
                    self._take_out(self._entries[other], SET_ASIDE, f"it needs '{name}', which was set aside")

    def _new_faults(self, notes: Sequence[Note]) -> list[tuple[str, str]]:
        found = [(note.subject, note.detail) for note in notes if note.code == "plugin-set-aside"]
        while self._faults:
            found.append(self._faults.popleft())
        return [each for each in found if each[0] in self._entries and self._entries[each[0]].state == ACTIVE]

    def _read(self) -> None:
        """What is installed and what the file allows. Plugins that are active stay as they are."""
        settings = {each.name: each for each in read_plugin_settings(self._path)}
        found, self.problems = installed_plugins()
        by_name = {each.manifest.name: each for each in found}
        for name in sorted({*by_name, *settings}):
            entry = self._entries.setdefault(name, _Entry(name))
            if entry.state != ACTIVE:
                entry.setting, entry.found = settings.get(name), by_name.get(name)
                self._refuse_or(entry, partial(self._examine, entry))
        for name in [name for name, entry in self._entries.items() if name not in {*by_name, *settings}]:
            if self._entries[name].state != ACTIVE:
                del self._entries[name]
        allowed = {
            name: entry.manifest
            for name, entry in self._entries.items()
            if entry.manifest is not None and entry.state not in (NOT_ALLOWED, REFUSED)
        }
        self._order, refused = load_order(allowed)
        for name, why in refused.items():
            self._entries[name].state, self._entries[name].detail = REFUSED, why

    def _examine(self, entry: _Entry) -> None:
        """Whether this plugin may be loaded; it is not imported here."""
        setting = entry.setting
        if setting is not None and setting.path:
            entry.found = plugin_in(setting.path)
            if entry.found.manifest.name != entry.name:
                raise PluginError(f"{setting.path} has the plugin '{entry.found.manifest.name}', not '{entry.name}'")
        if entry.found is None:
            raise PluginError("it is not installed; install its package, or give its folder as `path`")
        entry.sha256 = read_files(entry.found).sha256
        if setting is None:
            entry.state, entry.detail = NOT_ALLOWED, f"allow it with its name and sha256 in {self._path}"
            return
        if any(each.name == entry.name for each in self._builtin):
            raise PluginError("a built-in plugin has this name; rename it")
        if entry.sha256 != setting.sha256:
            raise PluginError(f"its files have the sha256 {entry.sha256}, which {self._path} does not allow")
        if not fits_version(entry.found.manifest, kaiwo.__version__):
            raise PluginError(f"it needs Kaiwo {entry.found.manifest.kaiwo}, and this is {kaiwo.__version__}")
        entry.state, entry.detail = DISABLED, "" if setting.enabled else f"it is disabled in {self._path}"

    def _start_again(self, entry: _Entry) -> None:
        if entry.setting is None or entry.found is None or entry.state == NOT_ALLOWED:
            raise RefusedError(f"'{entry.name}' is not allowed: {entry.detail or 'it is not installed'}")
        for other in entry.found.manifest.dependencies:
            if other not in self._entries or self._entries[other].state != ACTIVE:
                raise RefusedError(f"'{entry.name}' needs '{other}', which is not active; enable that first")
        try:
            self._examine(entry)
            self._start(entry)
        except (PluginError, PluginFaultError, OSError) as error:
            detail = error.detail if isinstance(error, PluginFaultError) else str(error)
            entry.state, entry.detail = REFUSED, detail
            raise RefusedError(f"'{entry.name}' cannot be used: {detail}") from error
        if entry.name not in self._order:
            self._order.append(entry.name)

    def _start(self, entry: _Entry) -> None:
        """Load exactly the files that are hashed here: what lies in the package's folder may change at any time."""
        found, setting = entry.found, entry.setting
        assert found is not None
        assert setting is not None
        for other in found.manifest.dependencies:
            if self._entries[other].state != ACTIVE:
                raise PluginError(f"it needs '{other}', which is not active")
        files = read_files(found)
        entry.sha256 = files.sha256
        if entry.sha256 != setting.sha256:
            raise PluginError(f"its files have the sha256 {entry.sha256}, which {self._path} does not allow")
        staged = (self._home / FOLDER / f"{entry.name}-{entry.sha256[:12]}").absolute()
        files.write(staged)
        manifest, version = found.manifest, version_of(found.manifest, entry.sha256, setting.config)
        load = Load(entry.name, str(staged), manifest.object, setting.config, setting.memory_mib)
        plugin: Plugin
        if setting.run == "trusted":
            plugin = load_trusted(load, version)
        else:
            worker = WorkerProcess(load, setting.deadline_ms, lambda name, detail: self._faults.append((name, detail)))
            plugin = ConfinedPlugin(entry.name, version, worker)
        entry.plugin = plugin
        try:
            check_kinds(manifest, check_plugin(plugin))
        except PluginError:
            entry.close()
            raise
        entry.state, entry.detail = ACTIVE, ""

    def _refuse_or(self, entry: _Entry, work: Callable[[], None]) -> None:
        """One plugin that cannot be used must not keep the scheduler from starting."""
        try:
            work()
        except (PluginError, PluginFaultError, OSError) as error:
            entry.state = REFUSED
            entry.detail = error.detail if isinstance(error, PluginFaultError) else str(error)
            emit("plugin-refused", level="error", plugin=entry.name, detail=entry.detail)

    def _take_out(self, entry: _Entry, state: str, detail: str) -> None:
        entry.close()
        entry.state, entry.detail = state, detail
        self._publish()

    def _publish(self) -> None:
        """Strangers' plugins come first: of two orders, the first counts most, and ours is the default."""
        active = [plugin for plugin in self._active() if check_plugin(plugin) & set(POINTS)]
        self.registry.replace_all((*active, *self._builtin))

    def _active(self) -> list[Plugin]:
        entries = [self._entries[name] for name in self._order if self._entries[name].state == ACTIVE]
        return [entry.plugin for entry in entries if entry.plugin is not None]

    def _sinks(self) -> list[SinkPlugin]:
        return [cast(SinkPlugin, plugin) for plugin in self._active() if "sink" in check_plugin(plugin)]

    def _foreign(self, name: str) -> _Entry:
        if any(each.name == name for each in self._builtin):
            raise RefusedError(f"'{name}' is built in; use disabledPlugins in the policy to do without it")
        if name not in self._entries:
            raise NotFoundError(f"there is no plugin '{name}'; `kaiwo plugins` lists them")
        return self._entries[name]

    def _check_live(self, entry: _Entry) -> None:
        kinds = entry.manifest.kinds if entry.manifest is not None else ()
        if "workload_order" in kinds:
            raise RefusedError(
                f"'{entry.name}' orders workloads as they arrive; change `enabled` in {self._path} and restart Kaiwo"
            )

    def _dependents(self, name: str) -> list[str]:
        known = [entry.manifest for entry in self._entries.values() if entry.manifest is not None]
        return dependents(name, known)

    async def _on_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def load_on_thread(self) -> None:
        """`load`, for programs that have no event loop yet."""
        try:
            self._thread.submit(self.load).result()
        except ConfigError:
            self.close()
            raise


def version_of(manifest: PluginManifest, sha256: str, config: dict[str, Any]) -> str:
    """What the journal records: other files or another configuration may give other answers."""
    return f"{manifest.version}+{sha256[:12]}" + (f".{digest(config)[:8]}" if config else "")


def check_kinds(manifest: PluginManifest, served: frozenset[str]) -> None:
    if set(manifest.kinds) != served:
        said, does = ", ".join(sorted(manifest.kinds)), ", ".join(sorted(served))
        raise PluginError(f"its manifest names the kinds {said}, and its code serves {does}; make them agree")


def _status(entry: _Entry) -> PluginStatus:
    manifest, setting, worker = entry.manifest, entry.setting, entry.worker
    calls = entry.costs.calls + (worker.costs.calls if worker else 0)
    total = entry.costs.total_us + (worker.costs.total_us if worker else 0)
    return PluginStatus(
        name=entry.name,
        version=manifest.version if manifest else "",
        state=entry.state,
        kinds=manifest.kinds if manifest else (),
        run=setting.run if setting else "confined",
        source=entry.found.source if entry.found else "",
        sha256=entry.sha256,
        grade=worker.loaded.grade.words if worker else "",
        detail=entry.detail,
        calls=calls,
        mean_us=total // calls if calls else 0,
        longest_us=max(entry.costs.longest_us, worker.costs.longest_us if worker else 0),
        faults=entry.faults,
        last_fault=entry.last_fault,
        last_fault_s=entry.last_fault_s,
        dependencies=manifest.dependencies if manifest else (),
        description=manifest.description if manifest else "",
    )
