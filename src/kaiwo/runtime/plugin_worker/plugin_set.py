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
from typing import Any, Protocol, TypeVar

import kaiwo
from kaiwo.model.errors import ConfigError, NotFoundError, PluginError, RefusedError
from kaiwo.model.plan import Note
from kaiwo.plugins.builtin import SWITCHED, builtin_registry
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import POINTS, Registry, check_plugin
from kaiwo.runtime.log import emit
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.plugin_entry import (
    ACTIVE,
    BUILT_IN,
    DISABLED,
    NOT_ALLOWED,
    NOT_LISTED,
    REFUSED,
    SET_ASIDE,
    PluginEntry,
    PluginStatus,
    check_kinds,
    own_entry,
    own_manifest,
    status_of,
    version_of,
)
from kaiwo.runtime.plugin_worker.plugin_files import FoundPlugin, installed_plugins, plugin_in, read_files
from kaiwo.runtime.plugin_worker.plugin_manifest import dependents, fits_version, load_order
from kaiwo.runtime.plugin_worker.plugin_object import make_own
from kaiwo.runtime.plugin_worker.plugin_settings import PluginSetting, read_plugin_settings
from kaiwo.runtime.plugin_worker.trusted_plugin import load_trusted
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess
from kaiwo.snapshot.cluster_state import ClusterState

T = TypeVar("T")
LOOK_S = 5.0  # how often somebody looks whether workers rest
FOLDER = "plugins"  # in KAIWO_HOME: copies of the files that were hashed


class Asks(Protocol):
    """Runs a function while neither a cycle is decided nor the state changes."""

    def __call__(self, question: Callable[[ClusterState], T]) -> Awaitable[T]: ...


class WatchedLoop(Protocol):
    def changed(self, after: int) -> Awaitable[int]: ...

    def ask(self, question: Callable[[ClusterState], T]) -> Awaitable[T]: ...

    def recent_notes(self) -> Sequence[Note]: ...

    def clock(self) -> tuple[int, int]: ...


class PluginSet:
    def __init__(self, home: str = "", path: str = "") -> None:
        self._home, self._path = Path(home), path
        self._builtin = builtin_registry().plugins
        self.registry: Registry = builtin_registry()
        self._entries: dict[str, PluginEntry] = {plugin.name: own_entry(plugin) for plugin in SWITCHED}
        self._own_names = {*self._entries, *(plugin.name for plugin in self._builtin)}
        self._order: list[str] = []
        self._settings: dict[str, PluginSetting] = {}  # what the file allows
        self._installed: dict[str, FoundPlugin] = {}
        self.problems: list[str] = []  # with packages that announce plugins
        self._faults: deque[tuple[PluginEntry, WorkerProcess | None, str]] = deque()
        self.on_set_aside: Callable[[str, str], None] = lambda name, detail: None
        self._one_change = asyncio.Lock()  # two at once would leave a worker that nobody knows
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
        switched = [status_of(self._entries[name]) for name in sorted(self._entries)]
        own = [
            PluginStatus(each.name, each.version, ACTIVE, tuple(sorted(check_plugin(each))), BUILT_IN, "Kaiwo",
                         description=(type(each).__doc__ or "").strip().split("\n")[0])
            for each in sorted(self._builtin, key=lambda plugin: plugin.name)
        ]  # fmt: skip
        return sorted(switched, key=lambda each: each.run == BUILT_IN) + own

    def find(self, name: str) -> PluginStatus | None:
        return next((each for each in self.statuses() if each.name == name), None)

    def status(self, name: str) -> PluginStatus:
        found = self.find(name)
        if found is None:
            raise self._unknown(name)
        return found

    async def enable(self, name: str, ask: Asks) -> PluginStatus:
        """Start a plugin that is disabled, refused, set aside, or new in the administrator's file."""
        async with self._one_change:
            known = self.find(name)
            if self._path and (known is None or known.state != ACTIVE):
                await self._on_thread(self._read)  # what the file allows now, not what it allowed once
            entry = self._foreign(name)
            if entry.state != ACTIVE:
                await self._on_thread(self._start_again, entry)
                await ask(lambda _: self._publish())
                emit("plugin-enabled", plugin=name)
            return self.status(name)

    async def disable(self, name: str, ask: Asks) -> PluginStatus:
        async with self._one_change:
            entry = self._foreign(name)
            if entry.state == ACTIVE:
                needed_by = [each for each in self._dependents(name) if self._entries[each].state == ACTIVE]
                if needed_by:
                    raise RefusedError(f"'{name}' is needed by {', '.join(needed_by)}; disable that first")
            await ask(lambda _: self._take_out(entry, DISABLED, "an administrator disabled it"))
            emit("plugin-disabled", plugin=name)
            return self.status(name)

    async def reload(self, name: str, ask: Asks) -> PluginStatus:
        """Read the administrator's file and the plugin's files again, and start what they are now.

        The plugin takes part as it was until the new one is ready; when that cannot be used, it stays, if the file
        still allows it.
        """
        async with self._one_change:
            if not self._path:
                raise RefusedError("Kaiwo runs without plugins; start it with --plugins FILE")
            before = self._entries.get(name)
            if before is None or before.state != ACTIVE:
                await self._on_thread(self._read)
                entry = self._foreign(name)
                await self._on_thread(self._start_again, entry)
                await ask(lambda _: self._publish())
            else:
                entry = await self._replace(before, ask)
            emit("plugin-reloaded", plugin=name, sha256=entry.sha256)
            return self.status(name)

    async def _replace(self, before: PluginEntry, ask: Asks) -> PluginEntry:
        await self._on_thread(self._read)
        entry = before.successor(self._settings.get(before.name), self._installed.get(before.name))
        try:
            await self._on_thread(self._start_anew, entry)
        except RefusedError as error:
            if entry.setting is not None and entry.setting.sha256 == before.sha256:
                raise RefusedError(f"{error}; it goes on as it was") from error
            await ask(lambda _: self._drop(before, entry.state, entry.detail))
            raise
        await ask(lambda _: self._swap(before, entry))
        return entry

    def _start_anew(self, entry: PluginEntry) -> None:
        self._refuse_or(entry, partial(self._examine, entry))
        self._start_again(entry)

    def _swap(self, before: PluginEntry, entry: PluginEntry) -> None:
        before.close()
        entry.costs.add_all(before.costs)
        self._entries[entry.name] = entry
        self._publish()

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

    async def watch(self, live: WatchedLoop) -> None:
        """Set aside what computes while nobody asks it. No cycle would notice: there may be none for hours."""
        while True:
            await asyncio.sleep(LOOK_S)
            for worker in [entry.worker for entry in self._entries.values() if entry.worker is not None]:
                worker.look()
            if found := self._new_faults(()):
                await live.ask(lambda _, found=found: self.set_aside(found))  # type: ignore[misc]

    def active_at(self, point: str) -> list[Plugin]:
        """The active plugins that serve a point at the edge, in the order of their dependencies."""
        return [plugin for plugin in self._active() if callable(getattr(plugin, point, None))]

    def add_cost(self, name: str, took_us: int) -> None:
        """Of a call into a plugin without a worker, which measures its own."""
        entry = self._entries.get(name)
        if entry is not None and entry.worker is None:
            entry.costs.add(took_us)

    def setting_of(self, name: str) -> PluginSetting | None:
        entry = self._entries.get(name)
        return entry.setting if entry is not None else None

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
            self.on_set_aside(name, detail)
            self._drop_dependents(name)

    def _drop(self, entry: PluginEntry, state: str, detail: str) -> None:
        self._take_out(entry, state, detail)
        self._drop_dependents(entry.name)

    def _drop_dependents(self, name: str) -> None:
        for other in self._dependents(name):
            if self._entries[other].state == ACTIVE:
                self._take_out(
                    self._entries[other], SET_ASIDE, f"it needs '{name}', which is {self._entries[name].state}"
                )

    def _on_fault(self, entry: PluginEntry, worker: WorkerProcess | None, detail: str) -> None:
        """On any thread. Only the worker that answers now is blamed: not one that an administrator replaced since."""
        self._faults.append((entry, worker, detail))

    def _new_faults(self, notes: Sequence[Note]) -> list[tuple[str, str]]:
        found = [(note.subject, note.detail) for note in notes if note.code == "plugin-set-aside"]
        while self._faults:
            entry, worker, detail = self._faults.popleft()
            if self._entries.get(entry.name) is entry and entry.worker is worker:
                found.append((entry.name, detail))
        return [each for each in found if each[0] in self._entries and self._entries[each[0]].state == ACTIVE]

    def _read(self) -> None:
        """What is installed and what the file allows. Plugins that are active stay as they are."""
        settings = self._settings = {each.name: each for each in read_plugin_settings(self._path)}
        found, self.problems = installed_plugins(self._own_names)
        for problem in self.problems:
            emit("plugin-package-not-used", level="error", detail=problem)
        by_name = self._installed = {each.manifest.name: each for each in found}
        for name in sorted({*by_name, *settings, *self._entries}):
            entry = self._entries.setdefault(name, PluginEntry(name))
            if entry.state != ACTIVE:
                entry.setting, entry.found = settings.get(name), by_name.get(name)
                if entry.built_in is None and entry.setting is None and entry.found is None:
                    continue
                before = entry.state, entry.detail
                self._refuse_or(entry, partial(self._examine, entry))
                if before[0] in (SET_ASIDE, DISABLED) and entry.state == DISABLED and before[1]:
                    entry.state, entry.detail = before  # people read why, until someone enables it
        for name in [name for name, entry in self._entries.items() if name not in {*by_name, *settings}]:
            if self._entries[name].state != ACTIVE and self._entries[name].built_in is None:
                del self._entries[name]
        allowed = {
            name: entry.manifest or own_manifest(entry)
            for name, entry in self._entries.items()
            if entry.state not in (NOT_ALLOWED, REFUSED)
        }
        self._order, refused = load_order(allowed)
        for name, why in refused.items():
            self._entries[name].state, self._entries[name].detail = REFUSED, why

    def _examine(self, entry: PluginEntry) -> None:
        """Whether this plugin may be loaded; it is not imported here."""
        setting = entry.setting
        if entry.built_in is not None:
            if setting is not None and (setting.path or setting.sha256):
                raise PluginError("it comes with Kaiwo; leave out its path and its sha256")
            entry.state, entry.detail = (DISABLED, "") if setting is not None else NOT_LISTED
            return
        if setting is not None and not setting.sha256:
            raise PluginError(f"{self._path} has no sha256 for it; `kaiwo plugins check` prints that of its files")
        if setting is not None and setting.path:
            entry.found = plugin_in(setting.path)
            if entry.found.manifest.name != entry.name:
                raise PluginError(f"{setting.path} has the plugin '{entry.found.manifest.name}', not '{entry.name}'")
        if entry.found is None:
            raise PluginError("it is not installed; install its package, or give its folder as `path`")
        files = read_files(entry.found)
        entry.sha256, entry.found = files.sha256, entry.found._replace(manifest=files.manifest)
        if entry.found.manifest.name != entry.name:
            raise PluginError(f"its manifest says '{entry.found.manifest.name}' now")
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

    def _start_again(self, entry: PluginEntry) -> None:
        if entry.built_in is None and (entry.found is None or entry.state == NOT_ALLOWED):
            raise RefusedError(f"'{entry.name}' is not allowed: {entry.detail or 'it is not installed'}")
        if entry.setting is None:
            raise RefusedError(f"'{entry.name}' is not allowed: {entry.detail or 'it is not in the file of --plugins'}")
        for other in entry.manifest.dependencies if entry.manifest is not None else ():
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

    def _start(self, entry: PluginEntry) -> None:
        """Load exactly the files that are hashed here: what lies in the package's folder may change at any time."""
        found, setting = entry.found, entry.setting
        assert setting is not None
        if entry.built_in is not None:
            entry.plugin = make_own(entry.built_in, setting.config)
            entry.state, entry.detail = ACTIVE, ""
            return
        assert found is not None
        files = read_files(found)
        entry.sha256 = files.sha256
        if entry.sha256 != setting.sha256:
            raise PluginError(f"its files have the sha256 {entry.sha256}, which {self._path} does not allow")
        entry.found = found = found._replace(manifest=files.manifest)  # the one that the hash covers
        for other in found.manifest.dependencies:
            if other not in self._entries or self._entries[other].state != ACTIVE:
                raise PluginError(f"it needs '{other}', which is not active")
        staged = (self._home / FOLDER / f"{entry.name}-{entry.sha256[:12]}").absolute()
        files.write(staged)
        manifest, version = found.manifest, version_of(found.manifest, entry.sha256, setting.config)
        load = Load(entry.name, str(staged), manifest.object, setting.config, setting.memory_mib)
        plugin: Plugin
        entry.grade = ""
        if setting.run == "trusted":
            plugin = load_trusted(load, version, entry.costs, setting.deadline_ms, partial(self._on_fault, entry, None))
        else:
            worker = WorkerProcess(load, setting.deadline_ms)
            worker.on_fault = partial(self._on_fault, entry, worker)
            plugin = ConfinedPlugin(entry.name, version, worker)
            entry.grade = worker.grade.words
        entry.plugin = plugin
        try:
            check_kinds(manifest, check_plugin(plugin))
        except PluginError:
            entry.close()
            raise
        entry.state, entry.detail = ACTIVE, ""

    def _refuse_or(self, entry: PluginEntry, work: Callable[[], None]) -> None:
        """One plugin that cannot be used must not keep the scheduler from starting."""
        try:
            work()
        except (PluginError, PluginFaultError, OSError) as error:
            entry.state = REFUSED
            entry.detail = error.detail if isinstance(error, PluginFaultError) else str(error)
            emit("plugin-refused", level="error", plugin=entry.name, detail=entry.detail)

    def _take_out(self, entry: PluginEntry, state: str, detail: str) -> None:
        entry.close()
        entry.state, entry.detail = state, detail
        self._publish()

    def _publish(self) -> None:
        """Strangers' plugins come first: of two orders, the first counts most, and ours is the default."""
        self.registry.expect(self._settings)
        active = [plugin for plugin in self._active() if check_plugin(plugin) & set(POINTS)]
        self.registry.replace_all((*active, *self._builtin))

    def _active(self) -> list[Plugin]:
        entries = [self._entries[name] for name in self._order if self._entries[name].state == ACTIVE]
        return [entry.plugin for entry in entries if entry.plugin is not None]

    def _foreign(self, name: str) -> PluginEntry:
        if any(each.name == name for each in self._builtin):
            raise RefusedError(f"'{name}' is built in; use disabledPlugins in the policy to do without it")
        if name not in self._entries:
            raise self._unknown(name)
        return self._entries[name]

    def _unknown(self, name: str) -> NotFoundError:
        where = f"it is not installed, and not in {self._path}; " if self._path else ""
        return NotFoundError(f"there is no plugin '{name}': {where}`kaiwo plugins` lists them")

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
