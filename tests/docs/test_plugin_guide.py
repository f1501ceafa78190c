"""The plugin guide, followed literally: every command of it is typed, in its order, in an empty folder."""

import inspect
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import kaiwo.plugins
import kaiwo.plugins.testing
from kaiwo.plugins.builtin import SWITCHED, builtin_registry
from kaiwo.plugins.registry import ALL_POINTS, check_plugin
from kaiwo.runtime.edge_points.notifications import NOTICE_CODES
from kaiwo.runtime.plugin_worker.internal_imports import internal_imports
from kaiwo.runtime.plugin_worker.messages import NODE_COLUMNS
from kaiwo.runtime.plugin_worker.plugin_manifest import PluginManifest, read_manifest
from kaiwo.runtime.plugin_worker.plugin_object import make_own
from kaiwo.runtime.plugin_worker.plugin_settings import PluginSetting, read_plugin_settings
from kaiwo.runtime.plugin_worker.try_plugin import QUESTIONS, sample_view
from kaiwo.runtime.plugin_worker.worker_main import ViewTables
from tests.conftest import ROOT
from tests.docs.fresh_clone import fresh_clone
from tests.docs.markdown import blocks, code_words, table

GUIDE = ROOT / "docs" / "plugins.md"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_newcomer_who_types_the_guide_has_a_working_plugin(tmp_path: Path) -> None:
    """Every command of the page, in its order, in one shell that begins in a fresh clone and ends at an error."""
    script = "\n".join(["set -e", *(block.text for block in blocks(GUIDE, "guide"))])
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path / "ada")}
    done = subprocess.run(
        ["bash", "-c", script], cwd=fresh_clone(tmp_path / "kaiwo"), env=env, capture_output=True, text=True
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert said.count("1 passed") == 2
    assert said.count("prefer-quiet-nodes 0.1.0+") == 1
    assert "median" in said
    assert len(set(re.findall(r"node-\d+", said.split("kaiwo plugins info")[-1]))) >= 3, "each pod has a quiet node"
    assert [line.split()[-1] for line in said.splitlines() if line.startswith("plugin ")] == [
        "active", "disabled", "active",
    ]  # fmt: skip


def test_the_guide_shows_the_file_that_it_writes(tmp_path: Path) -> None:
    """The lines that a newcomer sees are those that the command prints, but for the hash and the folder."""
    (tmp_path / "plugins.yaml").write_text(blocks(GUIDE, "plugins")[0].text)
    (setting,) = read_plugin_settings(str(tmp_path / "plugins.yaml"))
    assert list(yaml.safe_load(blocks(GUIDE, "plugins")[0].text)["plugins"][0]) == ["name", "sha256", "path", "config"]
    assert setting.config == {"busy_at": 10}


def test_what_the_guide_lists_is_what_a_plugin_sees() -> None:
    """Also in a confined one, whose view has less."""
    named = [word for row in table(GUIDE, "attribute") for word in code_words(row[0])]
    assert len(named) > 10
    confined = ViewTables()
    shown = {f"view.nodes.{name}" for name in confined_node_names()} | {
        f"view.queues.{name}" for name in vars(confined._queues)
    }
    for name in named:
        view: Any = sample_view(3)
        for part in name.split(".")[1:]:
            view = getattr(view, part)
        assert name in shown or name.count(".") == 1, f"{name} is missing in a confined plugin"


def confined_node_names() -> set[str]:
    return {*NODE_COLUMNS, "names", "row", "nodes", "column", "models", "profiles", "extended_names", "vendors"}


def test_no_example_imports_what_is_not_public() -> None:
    """Nor its tests: what strangers copy must keep working."""
    projects = ROOT / "examples" / "plugins"
    files = {str(path): path.read_bytes() for path in projects.rglob("*.py")}
    pages = {f"{block}.py": block.text.encode() for kind in ("python", "points") for block in blocks(GUIDE, kind)}
    typed = [text.split("EOF\n")[0] for block in blocks(GUIDE, "guide") for text in block.text.split("<<'EOF'\n")[1:]]
    assert len(files) >= 10
    assert len(typed) == 2
    assert internal_imports(files | pages | {f"{at}.py": text.encode() for at, text in enumerate(typed)}) == []


def test_the_file_in_the_guide_can_be_read(tmp_path: Path) -> None:
    found = []
    for block in blocks(GUIDE, "plugins"):
        (tmp_path / "plugins.yaml").write_text(block.text)
        found.append(read_plugin_settings(str(tmp_path / "plugins.yaml")))
    ((strange,), own) = found
    assert strange.config == {"busy_at": 10}
    classes: dict[str, Any] = {plugin.name: plugin for plugin in SWITCHED}
    assert [make_own(classes[each.name], each.config).name for each in own] == [each.name for each in own]


def test_every_point_has_an_example_that_answers() -> None:
    (block,) = blocks(GUIDE, "points")
    module: dict[str, Any] = {"__name__": "examples"}
    exec(block.text, module)
    classes = [value for value in module.values() if isinstance(value, type) and value.__module__ == "examples"]
    view, shown = sample_view(20), set()
    for plugin in (each() for each in classes):
        served = check_plugin(plugin)
        assert type(plugin).__doc__
        for point in served:
            QUESTIONS[point](plugin, view, 1)
        shown |= served
    assert shown == set(ALL_POINTS)


def test_the_tables_of_the_guide_have_every_field() -> None:
    manifest = [word for row in table(GUIDE, "field") for word in code_words(row[0])]
    assert sorted(manifest) == sorted(PluginManifest.__struct_fields__)
    settings = [word for row in table(GUIDE, "setting") for word in code_words(row[0])]
    assert sorted(settings) == sorted(PluginSetting.__struct_encode_fields__)


def test_the_guide_has_every_field_of_every_value_and_who_uses_each_point() -> None:
    for row in table(GUIDE, "value"):
        (name,), fields = code_words(row[0]), code_words(row[1])
        value = getattr(kaiwo.plugins, name)
        assert fields == list(getattr(value, "__struct_fields__", None) or value.__dataclass_fields__), name
    own = {plugin.name: plugin for plugin in builtin_registry().plugins} | {each.name: each for each in SWITCHED}
    rows = table(GUIDE, "used point")
    assert {code_words(row[0])[0] for row in rows} == set(ALL_POINTS)
    for row in rows:
        (point,), (name,), (test,) = (code_words(cell) for cell in row[:3])
        text = (ROOT / test).read_text()
        assert point == "topology_source" or callable(getattr(own[name], point)), name
        assert point.replace("_", "") in text.replace("_", "").lower(), f"{test} says nothing of {point}"


def test_the_guide_says_what_tests_are_made_of() -> None:
    for row in table(GUIDE, "test value"):
        (name,) = code_words(row[0])
        value = getattr(kaiwo.plugins, name, None) or getattr(kaiwo.plugins.testing, name)
        needed, more = code_words(row[1]), code_words(row[2])
        assert needed == [each.name for each in msgspec.structs.fields(value) if each.required], name
        assert [*needed, *more] == list(value.__struct_fields__)[: len(needed) + len(more)], name
    shown = next(block.text for block in blocks(GUIDE) if block.text.startswith("view_of("))
    given = [each.split("=")[0] for each in re.findall(r"(\w+(?:=|(?=,)))", shown.split("(", 1)[1])]
    assert given == list(inspect.signature(kaiwo.plugins.testing.view_of).parameters)
    for block in blocks(GUIDE, "testing"):
        exec(block.text, {})


def test_the_guide_names_fields_that_records_have() -> None:
    rows = table(GUIDE, "record")
    assert [code_words(row[0])[0] for row in rows] == ["Queue", "Workload", "Policy"]
    inner = {"quota", "limit", "weight", "request", "count", "minimum", "training", "batch", "inference", "notebook"}
    for row in rows:
        (name,) = code_words(row[0])
        missing = [word for word in code_words(row[1]) if not hasattr(getattr(kaiwo.plugins, name), word)]
        assert set(missing) <= inner, missing


def test_the_guide_has_every_notice_and_a_manifest_that_can_be_read() -> None:
    codes = [word for row in table(GUIDE, "notice") for word in code_words(row[0])]
    assert codes == [*NOTICE_CODES.values(), "plugin-set-aside", "cycle-failed", "alert-firing", "alert-resolved"]
    (block,) = blocks(GUIDE, "toml")
    assert read_manifest(block.text.encode(), "the guide").name == "prefer-quiet-nodes"
