"""The life of a plugin: allowed by name and hash, loaded, enabled, disabled, reloaded, set aside."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kaiwo.decide import decide
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.plan import Note
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from kaiwo.runtime.edge_points.monitoring import Monitoring
from kaiwo.runtime.plugin_worker import plugin_set as plugin_set_module
from kaiwo.runtime.plugin_worker.plugin_files import plugin_in, read_files
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet
from kaiwo.snapshot.cluster_state import ClusterState
from tests.plugins.sites import CODE, Site
from tests.worlds import World

T = TypeVar("T")


async def ask(question: Callable[[ClusterState], T]) -> T:
    return question(ClusterState())


def place(plugins: PluginSet) -> str:
    world = World(nodes=3, plugins=plugins.registry).submit("a", gpus_each=1)
    (start,) = decide(world.snapshot(), DEFAULT_POLICY, plugins.registry).starts
    return start.node


def test_an_allowed_plugin_takes_part_confined(site: Site) -> None:
    site.plugin("favourite")
    plugins = site.allow("favourite").load()
    status = plugins.status("favourite")
    assert (status.state, status.run, status.detail) == ("active", "confined", "")
    assert place(plugins) == "node-1"
    assert plugins.status("favourite").calls == 1
    assert dict(plugins.registry.versions)["favourite"] == f"1.0+{status.sha256[:12]}"


def test_its_configuration_is_checked_and_counts_for_its_version(site: Site) -> None:
    site.plugin("favourite")
    plugins = site.allow("favourite", config={"best": "node-2"}).load()
    assert place(plugins) == "node-2"
    version = dict(plugins.registry.versions)["favourite"]
    assert version.startswith(f"1.0+{plugins.status('favourite').sha256[:12]}.")


@pytest.mark.parametrize("run", ["confined", "trusted"])
@pytest.mark.parametrize(("config", "words"), [({"best": 7}, "Expected `str`"), ({"worst": "x"}, "unknown field")])
def test_a_configuration_that_is_not_right_is_refused(site: Site, config: Any, words: str, run: str) -> None:
    site.plugin("favourite")
    status = site.allow("favourite", config=config, run=run).load().status("favourite")
    assert status.state == "refused"
    assert words in status.detail
    assert "does not take its configuration: " in status.detail
    assert status.detail.endswith("; its fields are: best")


def test_a_trusted_plugin_runs_inside_the_scheduler(site: Site) -> None:
    site.plugin("favourite")
    plugins = site.allow("favourite", run="trusted").load()
    assert (plugins.status("favourite").run, plugins.status("favourite").grade) == ("trusted", "")
    assert place(plugins) == "node-1"


MARKED = """
import pathlib
pathlib.Path("{mark}").write_text("imported")
"""


@pytest.mark.parametrize("run", ["confined", "trusted"])
def test_changed_files_are_never_imported(site: Site, run: str) -> None:
    mark = site.home / "mark"
    folder = site.plugin("favourite")
    site.allow("favourite", run=run)
    (Path(folder) / "favourite" / "__init__.py").write_text(MARKED.replace("{mark}", str(mark)))
    status = site.load().status("favourite")
    assert status.state == "refused"
    assert "does not allow" in status.detail
    assert not mark.exists()


def test_a_new_file_changes_the_hash_and_a_compiled_one_does_not(site: Site) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    before = read_files(plugin_in(str(folder))).sha256
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("x")
    assert read_files(plugin_in(str(folder))).sha256 == before
    (folder / "more.py").write_text("")
    assert read_files(plugin_in(str(folder))).sha256 != before


def test_a_link_in_a_package_is_refused(site: Site) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    site.allow("favourite")
    (folder / "secret").symlink_to("/etc/passwd")
    assert "is a link" in site.load().status("favourite").detail


def mounted(site: Site, *, in_folder: bool) -> str:
    """What Kubernetes makes of a ConfigMap: links to a hidden folder, which is exchanged when the ConfigMap changes.
    With `items` whose paths have a folder, the folder is a link; else each file is one."""
    source, mount = Path(site.plugin("favourite")) / "favourite", site.home / "mount"
    hidden = mount / "..2026_11_18"
    target = hidden / "favourite" if in_folder else hidden
    target.mkdir(parents=True)
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    (mount / "..data").symlink_to(hidden.name)
    for each in hidden.iterdir():
        (mount / each.name).symlink_to(f"..data/{each.name}")
    return str(mount)


@pytest.mark.parametrize("path", ["", "/favourite"])
def test_a_folder_in_a_mounted_config_map_is_a_plugin(site: Site, path: str) -> None:
    mount = mounted(site, in_folder=True)
    plugins = site.allow("favourite", path=mount + path).load()
    assert (plugins.status("favourite").detail, place(plugins)) == ("", "node-1")
    assert plugins.status("favourite").source.endswith("/..2026_11_18/favourite")


def test_a_config_map_without_a_folder_is_refused_with_what_to_do(site: Site) -> None:
    mount = mounted(site, in_folder=False)
    detail = site.allow("favourite", path=mount).load().status("favourite").detail
    assert detail.startswith(f"{mount}/kaiwo-plugin.toml is a link; a plugin's package must have its own files")
    assert "give each item of a ConfigMap a `path` with the package's folder" in detail


def test_an_installed_plugin_that_is_not_allowed_is_listed_and_not_imported(site: Site, monkeypatch: Any) -> None:
    found = plugin_in(site.plugin("favourite", "raise SystemExit"))
    monkeypatch.setattr(plugin_set_module, "installed_plugins", lambda reserved: ([found], []))
    site.file.write_text("plugins: []")
    status = site.load().status("favourite")
    assert (status.state, len(status.sha256)) == ("not-allowed", 64)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kaiwo": ">=99"}, "needs Kaiwo >=99"),
        ({"kinds": '["filter"]'}, "its manifest names the kinds filter, and its code serves score"),
        ({"needs": '["nobody"]'}, "needs the plugin 'nobody'"),
        ({"code": "raise RuntimeError('no')"}, "raised RuntimeError: no"),
        ({"code": "import os; os._exit(4)"}, "ended its process with status 4"),
        ({"code": "import socket; socket.socket()"}, "tried socket"),
        ({"code": "open('/etc/passwd')"}, "tried to open /etc/passwd"),
        ({"code": "Favourite = 5"}, "no extension point"),
        ({"code": CODE.replace("100", "-1")}, "`weight` of plugin 'favourite' is -1"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_refused_and_the_rest_works(site: Site, change: Any, words: str) -> None:
    site.plugin("favourite", **change)
    plugins = site.allow("favourite").load()
    status = plugins.status("favourite")
    assert status.state == "refused"
    assert words in status.detail
    assert place(plugins) == "node-0"


def test_a_missing_folder_and_the_name_of_a_built_in_are_refused(site: Site) -> None:
    site.plugin("favourite")
    site.plugin("pack")
    site.allow("favourite", path=str(site.home / "nowhere")).allow("pack")
    plugins = site.load()
    assert "has no kaiwo-plugin.toml" in plugins.status("favourite").detail
    assert "a built-in plugin has this name" in next(each for each in plugins.statuses() if each.name == "pack").detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plugins: [{name: a, sha256: abc}]", "no valid sha256"),
        ("plugins: 5", "plugins"),
        ("plugin: []", "plugin"),
        (f"plugins: [{{name: a, sha256: {'0' * 64}, path: here}}]", "absolute"),
        (f"plugins: [{{name: a, sha256: {'0' * 64}, run: wild}}]", "wild"),
        (f"plugins: [{{name: a, sha256: {'0' * 64}, deadlineMs: 0}}]", "deadlineMs"),
        (f"plugins: [{{name: a, sha256: {'0' * 64}, memoryMib: 1}}]", "memoryMib"),
        (f"plugins: [{{name: a, sha256: {'0' * 64}}}, {{name: a, sha256: {'0' * 64}}}]", "twice"),
    ],
)
def test_a_file_that_is_not_right_stops_the_start(site: Site, text: str, words: str) -> None:
    site.file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        site.load()


def test_it_is_disabled_enabled_and_reloaded_live(site: Site) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    plugins = site.allow("favourite").load()

    async def story() -> None:
        assert (await plugins.disable("favourite", ask)).state == "disabled"
        assert place(plugins) == "node-0"
        assert (await plugins.enable("favourite", ask)).state == "active"
        assert place(plugins) == "node-1"
        (folder / "__init__.py").write_text(CODE.replace("{name}", "favourite").replace("node-1", "node-2"))
        with pytest.raises(RefusedError, match="does not allow; it goes on as it was"):
            await plugins.reload("favourite", ask)
        assert place(plugins) == "node-1", "the file still allows what runs"
        site.allow("favourite")
        assert (await plugins.reload("favourite", ask)).state == "active"
        assert place(plugins) == "node-2"

    asyncio.run(story())


def test_what_is_needed_is_not_disabled_and_falls_with_what_it_needs(site: Site) -> None:
    site.plugin("base")
    site.plugin("upper", needs='["base"]')
    plugins = site.allow("base").allow("upper").load()
    assert [plugins.status(name).state for name in ("base", "upper")] == ["active", "active"]

    async def story() -> None:
        with pytest.raises(RefusedError, match="'base' is needed by upper"):
            await plugins.disable("base", ask)
        plugins.set_aside([("base", "it hangs")])
        assert [plugins.status(name).state for name in ("base", "upper")] == ["set-aside", "set-aside"]
        assert plugins.status("base").last_fault == "it hangs"
        assert "needs 'base'" in plugins.status("upper").detail
        with pytest.raises(RefusedError, match="needs 'base', which is not active"):
            await plugins.enable("upper", ask)
        await plugins.enable("base", ask)
        assert (await plugins.enable("upper", ask)).state == "active"

    asyncio.run(story())


def test_built_in_and_unknown_plugins_are_not_switched(site: Site) -> None:
    site.file.write_text("plugins: []")
    plugins = site.load()

    async def story() -> None:
        with pytest.raises(RefusedError, match="is built in"):
            await plugins.disable("pack", ask)
        with pytest.raises(NotFoundError):
            await plugins.enable("nobody", ask)

    asyncio.run(story())


class Loop:
    """A loop whose last cycle noted something."""

    def __init__(self, notes: list[Note]) -> None:
        self.notes, self.revision = notes, 0

    def recent_notes(self) -> list[Note]:
        return self.notes

    async def ask(self, question: Callable[[ClusterState], T]) -> T:
        return question(ClusterState())

    def clock(self) -> tuple[int, int]:
        return 60, 4

    async def changed(self, after: int) -> int:
        while after >= self.revision:
            await asyncio.sleep(0.01)
        return self.revision


HANGS = CODE.replace("        return np.array", "        while True: pass\n        return np.array")


@pytest.mark.parametrize("has_notes", [True, False])
def test_a_plugin_that_hangs_is_set_aside_by_the_watcher(site: Site, has_notes: bool) -> None:
    """The watcher learns it from the cycle's notes, or from the worker, when a question was asked outside a cycle."""
    site.plugin("favourite", HANGS)
    plugins = site.allow("favourite", deadlineMs=50).load()
    world = World(nodes=3, plugins=plugins.registry).submit("a", gpus_each=1)
    plan = decide(world.snapshot(), DEFAULT_POLICY, plugins.registry)
    assert [note.code for note in plan.notes] == ["plugin-set-aside"]

    async def story() -> None:
        watcher = asyncio.create_task(plugins.run(Loop(list(plan.notes) if has_notes else [])))
        while plugins.status("favourite").state == "active":
            await asyncio.sleep(0.01)
        watcher.cancel()

    asyncio.run(asyncio.wait_for(story(), 30))
    status = plugins.status("favourite")
    assert (status.state, status.faults, status.last_fault) == ("set-aside", 1, "did not answer within 50 ms")
    assert "favourite" not in dict(plugins.registry.versions)


def test_a_plugin_that_was_enabled_again_does_not_fall_for_what_it_did_before(site: Site) -> None:
    site.plugin("favourite")
    plugins = site.allow("favourite").load()
    loop = Loop([Note("plugin-set-aside", "favourite", "it did something")])

    async def story() -> None:
        watcher = asyncio.create_task(plugins.run(loop))
        while plugins.status("favourite").state == "active":
            await asyncio.sleep(0.01)
        await plugins.enable("favourite", ask)
        loop.revision += 1  # something changed, but no cycle was decided
        await asyncio.sleep(0.1)
        watcher.cancel()

    asyncio.run(asyncio.wait_for(story(), 60))
    assert plugins.status("favourite").state == "active"
    assert plugins.status("favourite").faults == 1


ORDERS = CODE.replace("def score(self, view, want, nodes):", "def workload_order(self, workload, policy):").replace(
    "return np.array([1000 * (view.nodes.names[row] == self.config.best) for row in nodes])",
    "return (len(workload.name),)",
)


def test_a_workload_order_is_used_from_the_start(site: Site) -> None:
    site.plugin("favourite", ORDERS, kinds='["workload_order"]')
    plugins = site.allow("favourite").load()
    world = World(nodes=1, gpus_per_node=1, plugins=plugins.registry).submit("long-name", gpus_each=1)
    world.submit("b", gpus_each=1, priority=-5)
    plan = decide(world.snapshot(), DEFAULT_POLICY, plugins.registry)
    assert [start.workload for start in plan.starts] == ["default/b"]


SINKS = CODE.replace("def score(self, view, want, nodes):", "def sink(self, sample):").replace(
    "return np.array([1000 * (view.nodes.names[row] == self.config.best) for row in nodes])",
    "return f'{sample.nodes} nodes'",
)


class Sampled(Loop):
    ready = True


def test_a_confined_sink_writes_through_kaiwo_and_takes_part_in_no_decision(site: Site) -> None:
    site.plugin("favourite", SINKS, kinds='["sink"]')
    plugins = site.allow("favourite").load()
    assert plugins.status("favourite").state == "active"
    assert "favourite" not in dict(plugins.registry.versions)
    path = site.home / "sinks" / "favourite.log"

    async def story() -> None:
        live = Sampled([])
        await Monitoring(EdgeCalls(plugins, live.ask), live, site.home).sample()

    asyncio.run(asyncio.wait_for(story(), 60))
    assert path.read_text() == "0 nodes\n"


def test_a_plugin_of_others_without_a_hash_is_refused(site: Site) -> None:
    site.plugin("favourite")
    status = site.allow("favourite", sha256="").load().status("favourite")
    assert status.state == "refused"
    assert "has no sha256 for it" in status.detail


@pytest.mark.parametrize(
    "policy",
    [
        Policy(gpu_strategy="favourite"),
        Policy(topology_strategy="plugin:favourite"),
        Policy(replica_strategy="favourite"),
        Policy(score_weights={"favourite": 3}),
        Policy(disabled_plugins=("favourite",)),
    ],
)
def test_a_policy_that_names_a_plugin_is_served_while_it_is_set_aside(site: Site, policy: Policy) -> None:
    """A plugin that fails must not take the scheduler with it, whatever the policy says."""
    site.plugin("favourite")
    plugins = site.allow("favourite").load()
    plugins.set_aside([("favourite", "it failed")])
    world = World(nodes=2, plugins=plugins.registry).submit("a", gpus_each=1)
    assert len(decide(world.snapshot(), policy, plugins.registry).starts) == 1


@pytest.mark.parametrize("run", ["confined", "trusted"])
def test_enabling_goes_by_what_the_file_allows_now(site: Site, run: str) -> None:
    """What it allowed when Kaiwo started counts no more: a right that was taken away stays away."""
    site.plugin("favourite")
    plugins = site.allow("favourite", run=run).load()

    async def story() -> None:
        await plugins.disable("favourite", ask)
        text = site.file.read_text()
        site.file.write_text("plugins: []\n")
        with pytest.raises((RefusedError, NotFoundError)):
            await plugins.enable("favourite", ask)
        assert place(plugins) == "node-0"
        site.file.unlink()
        with pytest.raises(ConfigError):
            await plugins.enable("favourite", ask)
        site.file.write_text(text.replace("run: trusted", "run: confined"))
        assert (await plugins.enable("favourite", ask)).run == "confined"
        assert place(plugins) == "node-1"
        site.file.write_text(re.sub("sha256: .*", "", text))
        with pytest.raises(RefusedError):
            await plugins.reload("favourite", ask)
        assert place(plugins) == "node-0", "the file no longer has its hash"

    asyncio.run(story())


def test_a_trusted_plugin_that_exits_while_it_is_imported_is_refused(site: Site) -> None:
    site.plugin("favourite", "import sys\nsys.exit(7)\n")
    status = site.allow("favourite", run="trusted").load().status("favourite")
    assert status.state == "refused"
    assert "raised SystemExit: 7" in status.detail
