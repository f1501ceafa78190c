"""`kaiwo simulate openb`, as people type it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kaiwo.cli.main import main
from kaiwo.cli.verbs.operate.simulation_options import bar_text, seed_numbers
from kaiwo.model.errors import ConfigError
from tests.simulate.child_runs import wait_for_runs
from tests.simulate.small_trace import write_trace

PODS = ["w,100,10,1,1000,"] * 3 + ["h,100,10,1,500,"] * 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "openb", ["a,8000,1024,2,T4", "b,8000,1024,2,T4"], PODS)


def test_json_has_exactly_the_published_fields(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "openb", "--data", str(folder), "--seeds", "42", "--policy", "fgd", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer) == ["variant", "policy", "runs"]
    assert (answer["variant"], answer["policy"]) == ("default", "fgd")
    (run,) = answer["runs"]
    assert list(run) == [
        "seed", "allocated_at_100", "allocated_at_130", "fragmentation_ratio", "p50_ms", "p99_ms", "peak_rss_mb",
    ]  # fmt: skip
    assert (run["seed"], run["allocated_at_100"]) == (42, 100)
    assert list(run["fragmentation_ratio"]) == ["60", "80", "90"]
    assert 0 < run["p50_ms"] <= run["p99_ms"]
    assert run["peak_rss_mb"] > 10


def test_policies_stand_side_by_side_and_in_a_report(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    arguments = ["--seeds", "42", "--compare", "fgd,best-fit", "--html", str(report), "--json"]
    assert main(["simulate", "openb", "--data", str(folder), *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["policy"] for each in answer["policies"]] == ["fgd", "best-fit"]
    assert [each["runs"][0]["allocated_at_100"] for each in answer["policies"]] == [100, 100]
    text = report.read_text()
    assert "<td>fgd</td>" in text
    assert "<td>best-fit</td>" in text
    plots = [ElementTree.fromstring(each) for each in re.findall(r'<svg class="plot".*?</svg>', text)]
    assert len(plots) == 3
    ends = [line.attrib["points"].split()[-1] for line in plots[0].iter("polyline")]
    assert ends == ["628.0,12.0", "628.0,12.0"]  # both have allocated all GPUs when all were asked for
    assert "http" not in text


def test_a_load_that_the_trace_never_reaches_is_null(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a number that looks measured, and not an invalid JSON word."""
    assert main(["simulate", "openb", "--data", str(folder), "--seeds", "42", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["allocated_at_130"] is None


def test_the_table_has_the_same_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "openb", "--data", str(folder), "--seeds", "42"]) == 0
    title, columns, row = capsys.readouterr().out.splitlines()
    assert title == "openb default, fragmentation-aware"
    assert columns.split()[:2] == ["SEED", "AT"]
    assert row.split()[:3] == ["42", "100.00", "-"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--data", "DIR", "--seeds", "41"], "has no array default/41; its seeds are 42"),
        (["--data", "DIR", "--variant", "cpu9"], "has no variant 'cpu9'; there are: default"),
        (["--data", "DIR", "--policy", "fdg"], "there is no placement policy 'fdg'"),
        (["--data", "/no/such"], "there is no folder /no/such; --data must name the folder"),
        (["--data", "DIR", "--seeds", "4x"], "--seeds is '4x'; write a range such as 42-46"),
        ([], "there is no traces/openb here or in a folder above; name the trace's folder with --data"),
    ],
)
def test_bad_input_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(folder)
    assert main(["simulate", "openb", *(str(folder) if each == "DIR" else each for each in options)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("place", ["traces", "shared/traces"])
def test_the_trace_is_found_here_or_in_a_folder_above(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (folder.parent / place).mkdir(parents=True)
    folder.rename(folder.parent / place / "openb")
    (folder.parent / "project").mkdir()
    monkeypatch.chdir(folder.parent / "project")
    assert main(["simulate", "openb", "--seeds", "42", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["allocated_at_100"] == 100


def test_seeds_are_ranges_and_lists() -> None:
    assert seed_numbers("42-44") == [42, 43, 44]
    assert seed_numbers("42, 45,42") == [42, 45]
    for wrong in ("44-42", "", "1-", "-3", "1-1001"):
        with pytest.raises(ConfigError):
            seed_numbers(wrong)
    assert len(seed_numbers("1-1000")) == 1000


def test_the_bar_grows_from_empty_to_full() -> None:
    assert (bar_text(0), bar_text(1)) == ("[" + "." * 30 + "]", "[" + "#" * 30 + "]")
    assert bar_text(0.5).count("#") == 15


@pytest.mark.slow
def test_ctrl_c_prints_what_has_finished(tmp_path: Path) -> None:
    """The interrupt comes while the only run is under way."""
    folder = write_trace(tmp_path, ["a,8000,1024,2,T4"], PODS, order=[0, 1, 2, 3, 4] * 8_000)
    code = "import sys; from kaiwo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "simulate", "openb", "--data", str(folder), "--seeds", "42", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_runs(process, 1)
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out) == {"variant": "default", "policy": "fragmentation-aware", "runs": []}
    assert "interrupted: 0 of 1 runs had finished" in err


def test_defrag_moves_a_pod_so_that_dropped_ones_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Best-fit puts the pod without GPUs on the node whose CPU the other pods need."""
    pods = ["c,5000,10,0,0,", *["w,4000,10,1,1000,"] * 3]
    folder = write_trace(tmp_path / "openb", ["a,8000,1024,2,T4", "b,100000,1024,1,T4"], pods)
    assert main(["simulate", "defrag", "--data", str(folder), "--seeds", "42", "--max-moved", "100", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["pods"], run["waiting"], run["moves"], run["started"]) == (2, 2, 1, 2)
    assert (run["allocated_before"], run["allocated"]) == (33.333, 100)
    assert [point["allocated"] for point in run["curve"]] == [33.333, 66.667, 100]
    report = tmp_path / "report.html"
    none = ["--seeds", "42", "--max-moved", "0", "--html", str(report), "--json"]
    assert main(["simulate", "defrag", "--data", str(folder), *none]) == 0
    assert report.read_text().count('<svg class="plot"') == 2
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["moves"], run["started"]) == (0, 0)
