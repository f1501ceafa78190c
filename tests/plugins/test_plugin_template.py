"""What `kaiwo plugins new` writes works: its own test passes, and Kaiwo runs it confined."""

import subprocess
import sys
from pathlib import Path

import pytest

from kaiwo.cli.verbs.operate.plugins import KINDS as OFFERED
from kaiwo.model.errors import ConfigError
from kaiwo.plugins.registry import ALL_POINTS
from kaiwo.runtime.plugin_worker.plugin_files import plugin_in
from kaiwo.runtime.plugin_worker.plugin_template import KINDS, write_project
from kaiwo.runtime.plugin_worker.try_plugin import try_plugin


def test_there_is_a_template_for_every_kind() -> None:
    assert set(KINDS) == set(OFFERED) == set(ALL_POINTS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_passes_its_own_test_and_runs_confined(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "my-plugin"
    write_project("my-plugin", kind, folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    tried = try_plugin(plugin_in(str(folder)), {"full_at": 100}, nodes=10)
    assert (tried.name, tried.kinds) == ("my-plugin", (kind,))
    assert [cost.point for cost in tried.costs] == [kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_of_a_template_is_tidy(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "my-plugin"
    write_project("my-plugin", kind, folder)
    rules = ["--isolated", "--line-length", "120", "--select", "E,F,W,B,UP"]
    command = [sys.executable, "-m", "ruff", "check", *rules, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["My-Plugin", "a_b", "-a", "a-", "", "9lives", "a" * 64])
def test_a_name_that_cannot_work_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        write_project(name, "score", tmp_path / "x")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(ConfigError, match="is not empty"):
        write_project("my-plugin", "score", tmp_path)
    assert (tmp_path / "mine").read_text() == "keep"
