"""What `kaiwo plugins new` writes works: its own test passes, and Kaiwo runs it confined."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kaiwo.cli.verb_table import kaiwo as program
from kaiwo.cli.verbs.operate.plugins import KINDS as OFFERED
from kaiwo.model.errors import ConfigError, PluginError
from kaiwo.plugins.registry import ALL_POINTS
from kaiwo.runtime.plugin_worker.plugin_files import plugin_in
from kaiwo.runtime.plugin_worker.plugin_settings import read_plugin_settings
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
    (test,) = folder.glob("tests/*.py")
    assert f"plugin.{kind}(" in test.read_text(), "its test says nothing of what it does"
    tried = try_plugin(plugin_in(str(folder)), {"full_at": 100}, nodes=10)
    assert (tried.name, tried.kinds) == ("my-plugin", (kind,))
    assert [cost.point for cost in tried.costs] == [kind]


def test_check_asks_about_a_node_with_less_than_nothing_free(tmp_path: Path) -> None:
    """The guide itself had such a score, which was set aside on the first cluster where a node was too full."""
    folder = tmp_path / "my-plugin"
    write_project("my-plugin", "score", folder)
    (code,) = folder.glob("src/*/__init__.py")
    clipped = "np.clip(TOP_SCORE * free // self.config.full_at, 0, TOP_SCORE)"
    bounded_above = "np.minimum(TOP_SCORE, TOP_SCORE * free // self.config.full_at)"
    code.write_text(code.read_text().replace(clipped, bounded_above))
    with pytest.raises(PluginError, match=r"'my-plugin' scored -\d+ to 1000; expected 0 to 1000"):
        try_plugin(plugin_in(str(folder)), {}, nodes=10)


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


def test_check_complains_about_two_versions(tmp_path: Path) -> None:
    """The journal has that of the manifest, so one that only the class has would be lost."""
    folder = tmp_path / "my-plugin"
    write_project("my-plugin", "sink", folder)
    (code,) = folder.glob("src/*/__init__.py")
    code.write_text(code.read_text().replace('"0.1.0"', '"0.2.0"'))
    with pytest.raises(PluginError, match=r"its manifest has the version 0\.1\.0, and its class '0\.2\.0'"):
        try_plugin(plugin_in(str(folder)), {})


def test_check_says_that_a_plugin_is_too_slow_for_the_scheduler(tmp_path: Path) -> None:
    folder = tmp_path / "my-plugin"
    write_project("my-plugin", "score", folder)
    (code,) = folder.glob("src/*/__init__.py")
    slow = code.read_text().replace("\nimport ", "\nimport time\nimport ", 1)
    signature = "def score(self, view: View, want: Request, nodes: Rows) -> IntArray:\n"
    assert signature in slow
    code.write_text(slow.replace(signature, f"{signature}        time.sleep(0.15)\n"))
    said = " ".join(CliRunner().invoke(program, ["plugins", "check", str(folder)]).output.split())
    assert "ms for one answer to score: Kaiwo sets it aside after 100 ms, or the deadlineMs in its file" in said


def test_check_writes_one_file_for_several_plugins_and_bench_speaks_of_nodes_where_there_are_some(
    tmp_path: Path,
) -> None:
    folders = [str(tmp_path / name) for name in ("one", "two")]
    write_project("one", "score", Path(folders[0]))
    write_project("two", "sink", Path(folders[1]))
    checked = CliRunner().invoke(program, ["plugins", "check", *folders, "-o", "yaml"])
    assert checked.exit_code == 0, checked.output
    (tmp_path / "plugins.yaml").write_text(checked.output)
    assert [each.name for each in read_plugin_settings(str(tmp_path / "plugins.yaml"))] == ["one", "two"]
    said = [CliRunner().invoke(program, ["plugins", "bench", each, "--calls", "2"]).output for each in folders]
    assert [text.splitlines()[0] for text in said] == ["one: 2 calls for 1,000 nodes", "two: 2 calls"]
    wrong = CliRunner().invoke(program, ["plugins", "check", *folders, "--config", '{"full_at": 1}'])
    assert wrong.exit_code
    assert "is that of one plugin" in wrong.output + str(wrong.exception)
