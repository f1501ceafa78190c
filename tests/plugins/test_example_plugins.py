"""The example plugins are projects of their own: their tests pass, they install, are found, and run confined."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kaiwo.runtime.plugin_worker.plugin_files import plugin_in
from kaiwo.runtime.plugin_worker.try_plugin import try_plugin
from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "plugins"
EXAMPLES = sorted(path.name for path in FOLDER.iterdir() if (path / "pyproject.toml").exists())
FIND = """
import json
from kaiwo.runtime.plugin_worker.plugin_files import installed_plugins, read_files
found, problems = installed_plugins()
print(json.dumps([[(each.manifest.name, read_files(each).sha256) for each in found], problems]))
"""


def python(*words: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, env=env)


def test_the_table_of_examples_is_complete() -> None:
    text = (FOLDER / "README.md").read_text()
    assert EXAMPLES
    assert [name for name in EXAMPLES if f"| `{name}` |" not in text] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", EXAMPLES)
def test_its_own_tests_pass_and_it_runs_confined(name: str) -> None:
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=FOLDER / name)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = try_plugin(plugin_in(str(FOLDER / name)), {}, nodes=50)
    assert tried.name == name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_installed_examples_are_found_by_their_entry_points_without_being_imported(tmp_path: Path) -> None:
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    for name in EXAMPLES:
        built = python("-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels), cwd=FOLDER / name)
        assert built.returncode == 0, built.stdout + built.stderr
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index")
    installed = python(*pip, "--target", str(site), *map(str, sorted(wheels.glob("*.whl"))), cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    for package in site.glob("*/__init__.py"):
        package.write_text("raise SystemExit('it was imported')")
    found, problems = json.loads(python("-c", FIND, cwd=tmp_path, path=str(site)).stdout)
    assert ([name for name, _ in found], problems) == (EXAMPLES, [])
    assert all(len(sha256) == 64 for _, sha256 in found)
