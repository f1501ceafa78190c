"""Every kind of gang with its traps, told by recordings of the project's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.gangs.replay import compare, replay_folder
from tests.conformance.gangs.stories import STORIES
from tests.conftest import ROOT


@pytest.mark.parametrize("story", STORIES)
def test_a_recording_gives_the_gangs_it_should(story: str) -> None:
    assert compare(STORIES[story]) == ""


def write(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (folder / f"{number}.json").write_text(json.dumps(STORIES[name]))


def test_the_runner_prints_the_sums(tmp_path: Path) -> None:
    write(tmp_path, *STORIES)
    command = [sys.executable, "-m", "tests.conformance.gangs", str(tmp_path), "--json"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert json.loads(ended.stdout) == {"total": len(STORIES), "passed": len(STORIES), "failed": []}
    assert ended.returncode == 0


def test_the_runner_finds_a_wrong_minimum_a_missing_member_and_a_broken_file(tmp_path: Path) -> None:
    for folder, change in (("minimum", {"min_members": 9}), ("member", {"pods": []})):
        story = json.loads(json.dumps(STORIES["a job runs all its pods at once"]))
        story["expected_gang"]["groups"][0] |= change
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "story.json").write_text(json.dumps(story))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "strange.json").write_text('{"pods": 3}')
    report = replay_folder(tmp_path)
    assert (report.total, [each["file"] for each in report.failed]) == (
        4,
        ["broken.json", "member/story.json", "minimum/story.json", "strange.json"],
    )
    assert report.failed[2]["difference"].startswith("expected at least 9 of 4 pods")


def test_an_empty_folder_is_no_success(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.conformance.gangs", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 2
