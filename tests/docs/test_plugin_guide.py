"""The plugin guide, followed literally: every command of it is typed, in its order, in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kaiwo.plugins.builtin import SWITCHED
from kaiwo.plugins.registry import ALL_POINTS, check_plugin
from kaiwo.runtime.plugin_worker.plugin_manifest import PluginManifest
from kaiwo.runtime.plugin_worker.plugin_object import make_own
from kaiwo.runtime.plugin_worker.plugin_settings import PluginSetting, read_plugin_settings
from kaiwo.runtime.plugin_worker.try_plugin import QUESTIONS, sample_view
from tests.conftest import ROOT
from tests.docs.markdown import blocks, code_words, table

GUIDE = ROOT / "docs" / "plugins.md"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_newcomer_who_types_the_guide_has_a_working_plugin(tmp_path: Path) -> None:
    script = "\n".join(["set -e", *(block.text for block in blocks(GUIDE, "guide"))])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "KAIWO_HOME": str(tmp_path / "home")}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("1 passed") == 2
    assert done.stdout.count("prefer-quiet-nodes 0.1.0+") == 2
    assert "median" in done.stdout


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
