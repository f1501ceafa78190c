"""Attacks before a plugin answers anything: on its files, its hash and its manifest, and while it is loaded."""

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.model.errors import ConfigError, PluginError, RefusedError
from kaiwo.model.policy import Policy
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.runtime.plugin_worker import plugin_set as plugin_set_module
from kaiwo.runtime.plugin_worker.internal_imports import internal_imports
from kaiwo.runtime.plugin_worker.plugin_files import installed_plugins, plugin_in, read_files
from kaiwo.runtime.plugin_worker.plugin_manifest import read_manifest
from kaiwo.runtime.plugin_worker.try_plugin import try_plugin
from tests.plugins.sites import CODE, Site
from tests.plugins.test_plugin_set import ask, place


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


def not_text(path: Path) -> None:
    Path(os.fsdecode(os.fsencode(path) + b"\xff")).write_text("")


def many(path: Path) -> None:
    path.mkdir()
    for number in range(1_001):
        (path / str(number)).write_text("")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (fifo, "is no plain file"),
        (sparse, "is too large"),
        (unix_socket, "cannot be read"),
        (not_text, "has a name that is no text"),
        (many, "more than 1,000 files"),
    ],
)
def test_a_strange_file_in_the_folder_is_refused_and_stops_nothing(attack: Any, words: str, site: Site) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    site.allow("favourite")
    attack(folder / "x")
    plugins = site.load()
    assert words in plugins.status("favourite").detail
    assert place(plugins) == "node-0"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("attack", [fifo, sparse])
def test_a_strange_manifest_is_refused_and_stops_nothing(attack: Any, site: Site) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    site.allow("favourite")
    (folder / "kaiwo-plugin.toml").unlink()
    attack(folder / "kaiwo-plugin.toml")
    assert site.load().status("favourite").state == "refused"


def test_a_link_that_is_put_there_between_two_looks_is_not_followed(site: Site, monkeypatch: Any) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    (folder / "secret").symlink_to("/etc/passwd")
    monkeypatch.setattr(Path, "is_symlink", lambda path: False)  # it was a file a moment ago
    with pytest.raises(PluginError, match="is a link"):
        read_files(plugin_in(str(folder)))


def test_a_manifest_that_is_exchanged_after_it_was_read_does_not_count(site: Site, monkeypatch: Any) -> None:
    """The hash is right again when it is taken; the manifest that was read first named another object."""
    site.plugin("favourite", CODE + "class Other(Favourite):\n    Config = Config\n")
    site.allow("favourite")

    def forged(path: str) -> Any:
        found = plugin_in(path)
        return found._replace(manifest=msgspec.structs.replace(found.manifest, object="subprocess:Popen", kinds=()))

    monkeypatch.setattr(plugin_set_module, "plugin_in", forged)
    plugins = site.load()
    assert plugins.status("favourite").kinds == ("score",)
    assert place(plugins) == "node-1"


def test_a_hard_link_is_hashed_like_any_file(site: Site) -> None:
    """Installers make them. Whoever changes the other end changes the hash."""
    folder, other = Path(site.plugin("favourite")) / "favourite", site.home / "other"
    other.write_text("1")
    os.link(other, folder / "data")
    site.allow("favourite")
    other.write_text("2")
    assert "does not allow" in site.load().status("favourite").detail


@pytest.mark.parametrize(
    ("object_name", "words"),
    [
        ("os:path", "its object is in the module 'os'"),
        ("kaiwo.plugins:View", "its object is in the module 'kaiwo'"),
        ("somewhere_else:Favourite", "its object is in the module 'somewhere_else'"),
    ],
)
def test_the_hash_covers_the_code_that_the_manifest_names(object_name: str, words: str, site: Site) -> None:
    manifest = Path(site.plugin("favourite")) / "favourite" / "kaiwo-plugin.toml"
    manifest.write_text(manifest.read_text().replace("favourite:Favourite", object_name))
    with pytest.raises(PluginError, match=words):
        site.allow("favourite")


@pytest.mark.parametrize("name", ["json", "numpy", "kaiwo"])
def test_a_package_with_the_name_of_a_module_is_refused(name: str, site: Site) -> None:
    site.plugin(name)
    with pytest.raises(PluginError, match="has the name of another module"):
        site.allow(name)


def installed(site: Site, *more: str) -> Path:
    """A folder of installed packages with one that has a plugin, as pip leaves it."""
    packages = site.home / "site-packages"
    source = Path(site.plugin("favourite", "raise SystemExit('it was imported')")) / "favourite"
    target = packages / "favourite"
    target.mkdir(parents=True)
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    info = packages / "favourite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: favourite\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kaiwo.plugins]\nfavourite = favourite:boom\n")
    for name in more:
        if not name.startswith(".."):
            (packages / name).write_text("")
    names = ["favourite/__init__.py", "favourite/kaiwo-plugin.toml", "favourite-1.0.dist-info/METADATA", *more]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    return packages


def test_a_package_that_is_only_its_plugin_is_found(site: Site, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(installed(site, "../../../bin/favourite"))
    found, problems = installed_plugins()
    assert ([each.source for each in found], problems) == (["package favourite 1.0"], [])


@pytest.mark.parametrize("name", ["favourite.pth", "sitecustomize.py", "favourite_more.py", "fast.cpython-311.so"])
def test_a_package_that_installs_code_beside_what_is_hashed_is_not_used(
    name: str, site: Site, monkeypatch: Any
) -> None:
    monkeypatch.syspath_prepend(installed(site, name))
    found, problems = installed_plugins()
    assert found == []
    assert problems[0].startswith(f"package favourite 1.0 also installs {name}")


def announced(site: Site, monkeypatch: Any, name: str, needs: str = "[]") -> None:
    """An installed package whose plugin has this name; nothing of it is allowed."""
    packages = installed(site)
    manifest = packages / "favourite" / "kaiwo-plugin.toml"
    text = manifest.read_text().replace('name = "favourite"', f'name = "{name}"')
    manifest.write_text(text.replace("dependencies = []", f'dependencies = {needs}\ndescription = "trust me"'))
    entries = packages / "favourite-1.0.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text().replace("favourite =", f"{name} ="))
    monkeypatch.syspath_prepend(packages)


@pytest.mark.parametrize("name", ["start-rate", "pack"])
def test_a_package_with_the_name_of_a_built_in_plugin_says_nothing_about_it(
    name: str, site: Site, monkeypatch: Any
) -> None:
    """Its manifest would be shown as Kaiwo's, and its dependencies would keep Kaiwo's own from being used."""
    announced(site, monkeypatch, name, needs='["nothing"]')
    site.file.write_text("plugins: [{name: start-rate, config: {podsPerMinute: 5}}]")
    plugins = site.load()
    (status,) = [each for each in plugins.statuses() if each.name == name]
    assert (status.state, status.source, status.dependencies) == ("active", "Kaiwo", ())
    assert "trust" not in status.description
    assert plugins.problems == [f"package favourite 1.0: Kaiwo has a plugin '{name}' of its own; rename this one"]


def test_a_name_in_the_metadata_does_not_reach_the_terminal(site: Site, monkeypatch: Any) -> None:
    packages = installed(site)
    metadata = packages / "favourite-1.0.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: favourite\nVersion: 1.0\x1b[2J\n")
    monkeypatch.syspath_prepend(packages)
    (found,) = installed_plugins()[0]
    assert found.source == r"package favourite 1.0\x1b[2J"


MANIFEST = 'name = "{name}"\nversion = "{version}"\nkinds = ["score"]\nobject = "a:B"\ndescription = "{about}"\n'


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "prefer-che\u0430p-nodes"}, "use lower-case letters"),  # a Cyrillic letter
        ({"name": "pack\\n"}, "use lower-case letters"),
        ({"name": "\u2170i"}, "use lower-case letters"),
        ({"version": "1.0\\u001b[2J"}, "version is"),
        ({"version": "1" * 100}, "version is"),
        ({"about": "good\\u001b[8m"}, "description"),
        ({"about": "x" * 301}, "description"),
    ],
)
def test_a_manifest_that_would_deceive_people_is_refused(fields: dict[str, str], words: str) -> None:
    text = MANIFEST.format(**{"name": "a", "version": "1", "about": ""} | fields)
    with pytest.raises(PluginError, match=words):
        read_manifest(text.encode(), "here")


def test_a_deeply_nested_manifest_is_refused() -> None:
    with pytest.raises(PluginError, match="is not a manifest"):
        read_manifest(b"kinds = " + b"[" * 20_000 + b"]" * 20_000, "here")


def test_a_deeply_nested_configuration_is_refused(site: Site) -> None:
    site.plugin("favourite")
    site.allow("favourite")
    site.file.write_text(site.file.read_text() + "  config: " + "{a: " * 5_000 + "1" + "}" * 5_000)
    with pytest.raises(ConfigError):
        site.load()
    nested: Any = "node-2"
    for _ in range(40):
        nested = [nested]
    assert "Expected `str`" in site.allow("favourite", config={"best": nested}).load().status("favourite").detail


# While it is imported a plugin can reach the worker's own object, and say what it likes in its name.
FORGED = """
import os, struct, sys
frame = sys._getframe()
while "_tables" not in getattr(frame.f_locals.get("self"), "__dict__", {}):
    frame = frame.f_back
frame.f_locals["self"]._answer(2, DATA)
import time
time.sleep(60)
"""


def forged(**fields: Any) -> bytes:
    return msgspec.msgpack.encode({"points": ["score"], "declared": {"weight": 1}, "methods": []} | fields)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (forged(points=["ask"]), "it declares 'ask'"),
        (forged(points=["nothing_of_the_kind"]), "it declares"),
        (forged(methods=["worker"]), "it declares 'worker'"),
        (forged(declared={"weight": 1, "name": "pack"}), "it declares 'name'"),
        (forged(declared={"weight": 1, "_charge": 5}), "it declares '_charge'"),
        (forged(declared={"weight": 1, "reason": "because"}), "is not a valid Reason"),
        (forged(declared={"weight": {"a": 1}}), "does not say what it is"),
        (forged(grade={"measures": ["everything"]}), "unknown field `grade`"),
        (forged(points=["score"] * 20_000), "bytes of declarations"),
        (b"\x91" * 60_000, "does not say what it is"),
        (b"", "does not say what it is"),
    ],
)
def test_forged_declarations_are_refused_and_the_scheduler_starts(data: bytes, words: str, site: Site) -> None:
    site.plugin("favourite", FORGED.replace("DATA", repr(data)))
    plugins = site.allow("favourite").load()
    status = plugins.status("favourite")
    assert status.state == "refused"
    assert words in status.detail
    assert status.grade in ("", "full")
    assert [each.name for each in plugins.registry.plugins] == [each.name for each in builtin_registry().plugins]


def test_a_worker_that_ends_while_it_is_loaded_is_refused(site: Site) -> None:
    site.plugin("favourite", f"import os\nos.write(3, {struct.pack('<QBQ', 9, 9, 9)!r})\nos._exit(1)")
    assert site.allow("favourite").load().status("favourite").state == "refused"


def test_a_failed_reload_leaves_what_was_allowed_and_takes_out_what_is_not(site: Site) -> None:
    site.plugin("base")
    site.plugin("upper", needs='["base"]')
    plugins = site.allow("base").allow("upper").load()

    async def story() -> None:
        site.allow("base", config={"worst": 1})
        with pytest.raises(RefusedError, match=r"unknown field `worst`.* it goes on as it was"):
            await plugins.reload("base", ask)
        assert plugins._new_faults(()) == [], "the plugin that goes on is not blamed for the one that failed"
        assert [plugins.status(name).state for name in ("base", "upper")] == ["active", "active"]
        assert place(plugins) == "node-1"
        site.plugin("base", "raise RuntimeError('no')")
        site.allow("base")  # the file has another hash now: what runs is no longer allowed
        with pytest.raises(RefusedError, match="raised RuntimeError: no"):
            await plugins.reload("base", ask)
        assert [plugins.status(name).state for name in ("base", "upper")] == ["refused", "set-aside"]
        assert place(plugins) == "node-0"

    asyncio.run(story())


def test_two_reloads_at_once_leave_one_worker(site: Site) -> None:
    site.plugin("favourite")
    plugins = site.allow("favourite").load()

    async def story() -> None:
        await asyncio.gather(*(plugins.reload("favourite", ask) for _ in range(3)))

    asyncio.run(story())
    worker = plugins._entries["favourite"].worker
    assert worker is not None
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    running = {pid for each in children for pid in each.read_text().split()}
    assert str(worker.pid) in running
    ours = [pid for pid in running if "worker_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert ours == [str(worker.pid)]


def test_a_plugin_that_was_loaded_live_and_set_aside_is_still_expected_by_the_policy(site: Site) -> None:
    """A policy that names it must not make every cycle fail."""
    site.file.write_text("plugins: []")
    plugins = site.load()
    site.plugin("favourite")
    site.allow("favourite")
    asyncio.run(_reload(plugins, "favourite"))
    policy = Policy(score_weights={"favourite": 5})
    plugins.registry.active(policy)
    plugins.set_aside([("favourite", "it hangs")])
    plugins.registry.active(policy)


async def _reload(plugins: Any, name: str) -> None:
    await plugins.reload(name, ask)


SLOW = (
    CODE.replace("    def score", "    def score_of").replace("class Favourite", "import time\nclass Favourite")
    + """
    def score(self, view, want, nodes):
        time.sleep(0.3)
        return np.zeros(len(nodes), np.int64)
"""
)


def test_a_trusted_plugin_that_takes_too_long_is_reported(site: Site) -> None:
    site.plugin("favourite", SLOW)
    plugins = site.allow("favourite", run="trusted", deadlineMs=20).load()
    place(plugins)
    ((name, why),) = plugins._new_faults(())
    assert name == "favourite"
    assert "20 ms is the most" in why


def test_what_was_set_aside_stays_so_when_another_plugin_is_reloaded(site: Site) -> None:
    site.plugin("favourite")
    site.plugin("other")
    plugins = site.allow("favourite").allow("other").load()
    plugins.set_aside([("favourite", "it hangs")])
    asyncio.run(_reload(plugins, "other"))
    assert (plugins.status("favourite").state, plugins.status("favourite").detail) == ("set-aside", "it hangs")
    asyncio.run(_reload(plugins, "favourite"))
    assert plugins.status("favourite").state == "active"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from kaiwo.plugins import View", []),
        ("from kaiwo.plugins.testing import view_of", []),
        ("import kaiwo.snapshot.view", ["kaiwo.snapshot.view in a.py"]),
        ("def f():\n    from kaiwo.model.node import Node", ["kaiwo.model.node in a.py"]),
        ("from kaiwo import decide", ["kaiwo.decide in a.py"]),
        ("from kaiwo.plugins import registry", ["kaiwo.plugins.registry in a.py"]),
        ("this is no python", []),
    ],
)
def test_imports_of_internals_are_found_without_running_anything(code: str, found: list[str]) -> None:
    assert internal_imports({"a.py": code.encode(), "b.txt": b"import kaiwo.decide"}) == found


def test_a_plugin_that_imports_internals_does_not_pass_the_check(site: Site) -> None:
    folder = site.plugin("favourite", "from kaiwo.model.node import Node\n" + CODE)
    with pytest.raises(PluginError, match=r"imports kaiwo\.model\.node in favourite/__init__\.py"):
        try_plugin(plugin_in(folder), {})
