"""Attacks with names and texts: what people read about a plugin before they allow it, and other packages' metadata."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kaiwo.model.errors import PluginError
from kaiwo.runtime.plugin_worker.plugin_files import installed_plugin, installed_plugins, plugin_in
from tests.plugins.sites import CODE, Site
from tests.plugins.test_plugin_attacks import installed

CLEAR = "\x1b[2J\x1b[31m"
SAFE = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]*")  # with line breaks between sentences


def manifest_of(site: Site) -> Path:
    return Path(site.plugin("favourite")) / "favourite" / "kaiwo-plugin.toml"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('version = "1.0"', 'version = "1.0"\n"x\\u001b[2J" = 1'),
        ("dependencies = []", 'dependencies = ["\\u001b[2Jother"]'),
        ("dependencies = []", 'dependencies = ["a\\nname: trusted"]'),
        ('kinds = ["score"]', 'kinds = ["score", "score"]'),
        ('kinds = ["score"]', 'kinds = ["\\u001b[2J"]'),
        ('kaiwo = ""', 'kaiwo = ">=0.1 \\u202e"'),
        ('object = "favourite:Favourite"', 'object = "favourite:Favourite\\u001b"'),
    ],
)
def test_no_field_of_a_manifest_writes_on_a_terminal(old: str, new: str, site: Site) -> None:
    path = manifest_of(site)
    site.allow("favourite")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    status = site.load().status("favourite")
    assert status.state == "refused"
    for text in (status.detail, *status.kinds, *status.dependencies, status.source, status.version):
        assert text.isprintable(), repr(text)


def test_a_folder_with_a_name_that_is_no_text_is_refused(site: Site) -> None:
    folder = Path(site.plugin("favourite"))
    (folder / "favourite").rename(folder / f"favour{CLEAR}ite")
    with pytest.raises(PluginError, match=r"favour\\x1b\[2J.* has a name that is no text") as refused:
        plugin_in(str(folder))
    assert str(refused.value).isprintable()


def test_check_writes_nothing_of_a_strange_plugin_on_the_terminal(site: Site) -> None:
    from kaiwo.cli.verbs.operate.plugins import plugins

    path = manifest_of(site)
    path.write_text(path.read_text() + '\n"\\u001b[2J" = 1\n')
    result = CliRunner().invoke(plugins, ["check", str(path.parent)])
    assert result.exception is not None
    assert "is not a manifest" in str(result.exception)
    assert SAFE.fullmatch(result.output + str(result.exception))


def other_package(packages: Path, name: str, **files: bytes) -> None:
    info = packages / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, data in files.items():
        (info / file.replace("_txt", ".txt")).write_bytes(data)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"METADATA": b"Name: \xff\xfe"}, "cannot be read"),
        ({"entry_points_txt": b"[kaiwo.plugins]\n\xff = \xfe\n"}, "cannot be read"),
        ({"entry_points_txt": b"[kaiwo.plugins]\nno value\n"}, "cannot be read|has no kaiwo-plugin.toml"),
        ({"entry_points_txt": b"[kaiwo.plugins]\nbroken = a:b\n", "RECORD": b"\xff,,\n"}, "cannot be read"),
        (
            {"entry_points_txt": b"[kaiwo.plugins]\nbroken = a:b\n", "RECORD": b'"' * 200_000},
            "cannot be read|has no kaiwo-plugin.toml",
        ),
        ({"entry_points_txt": b"[kaiwo.plugins]\n\x1b[2J = a:b\n"}, "has no kaiwo-plugin.toml|cannot be read"),
    ],
)
def test_a_package_with_broken_metadata_hides_only_itself(
    files: dict[str, bytes], words: str, site: Site, monkeypatch: Any
) -> None:
    """Before, one such package anywhere kept the scheduler from starting."""
    packages = installed(site)
    other_package(packages, "broken", **files)
    monkeypatch.syspath_prepend(packages)
    found, problems = installed_plugins()
    assert [each.manifest.name for each in found] == ["favourite"]
    assert len(problems) == 1
    assert re.search(words, problems[0]), problems
    assert problems[0].isprintable()
    site.plugin("own", CODE)
    assert site.allow("own").load().status("own").state == "active"
    with pytest.raises(PluginError, match="no installed plugin has that name"):
        installed_plugin("broken")


def test_of_a_package_that_is_there_twice_the_first_counts(site: Site, monkeypatch: Any) -> None:
    """As Python itself would import it."""
    first, second = installed(site), site.home / "later"
    other_package(second, "Favourite", entry_points_txt=b"[kaiwo.plugins]\nfavourite = other:Thing\n")
    monkeypatch.syspath_prepend(second)
    monkeypatch.syspath_prepend(first)
    found, problems = installed_plugins()
    assert ([each.folder.parent for each in found], problems) == ([first], [])
