"""`kaiwo simulate muri|philly|run|journal`, as people type them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import kaiwo
from kaiwo.cli.main import main
from kaiwo.history.journal_entries import Setting
from kaiwo.model.errors import KaiwoError
from kaiwo.simulate.engine.run_figures import jain_index, quantile
from kaiwo.simulate.job_run import JobRun, JobRunFigures, equal_nodes
from kaiwo.simulate.parallel_runs import run_tasks
from kaiwo.simulate.policy_comparison import compare
from kaiwo.simulate.workloads.generated_jobs import JobsToGenerate, generated_jobs
from tests.simulate.child_runs import wait_for_runs

PLAIN = "submitted_s,runs_s,gpus,name,queue\n0,1000,8,long,lab\n100,50,8,short,lab\n"
MURI = "job_id,num_gpu,submit_time,model_name,duration\n0,64,0,a,1000000\n1,64,100000,b,50000\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-09 07:{at:02d}:00,{600 if at % 2 else 6000},8,1,{'s' if at % 2 else 'l'}\n" for at in range(60)
)


@pytest.fixture
def plain(tmp_path: Path) -> str:
    (tmp_path / "jobs.csv").write_text(PLAIN)
    return str(tmp_path / "jobs.csv")


def runs_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["runs"]
    return found


def test_your_own_jobs_run_on_your_own_cluster(plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.yaml").write_text("nodes: [{name: big, count: 2, gpus: 8}]\n")
    cluster = ["--cluster-file", str(tmp_path / "cluster.yaml")]
    assert main(["simulate", "run", "--workload", plain, *cluster, "--json"]) == 0
    (run,) = runs_of(capsys)
    assert (run["policy"], run["jobs"], run["ended"]) == ("fifo", 2, 2)
    assert (run["average_jct_s"], run["mean_wait_s"], run["makespan_s"]) == (525.0, 0.0, 1000)


def test_policies_stand_side_by_side(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = "fifo,shortest-remaining-service"
    assert main(["simulate", "run", "--workload", plain, "--nodes", "1", "--compare", names, "--json"]) == 0
    waiting, preempting = runs_of(capsys)
    assert (waiting["average_jct_s"], waiting["evictions"]) == (975.0, {})
    assert preempting["average_jct_s"] == (1000 + 50 + 100 + 50) / 2  # it lost the 100 s that it had run
    assert (preempting["evictions"], preempting["restarts"], preempting["lost_gpu_h"]) == ({"preempt": 1}, 1, 0.22)


def test_the_table_has_a_line_for_each_policy(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "run", "--workload", plain, "--nodes", "1", "--compare", "fifo,learned"]) == 0
    titles, first, second = capsys.readouterr().out.splitlines()
    assert titles.split()[:3] == ["WORKLOAD", "POLICY", "RESTART"]
    assert (first.split()[1], second.split()[1]) == ("fifo", "learned")


def test_muri_runs_without_and_with_a_restart_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace9.csv").write_text(MURI)
    assert main(["simulate", "muri", "--data", str(tmp_path), "--policy", "shortest-remaining-service", "--json"]) == 0
    free, real = runs_of(capsys)
    assert (free["workload"], free["restart_s"], free["average_jct_s"]) == ("trace9", 0, (1050 + 50) / 2)
    assert (real["restart_s"], real["average_jct_s"]) == (120, (1150 + 50) / 2)


def test_philly_says_what_learned_run_times_recover(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "philly_jobs.csv").write_text(PHILLY)
    names = "fifo,group-mean,learned,shortest-job-first"
    assert main(["simulate", "philly", "--data", str(tmp_path), "--nodes", "4", "--compare", names]) == 0
    recovered = {line.split()[1]: line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]}
    assert recovered["fifo"] == recovered["shortest-job-first"] == "-"
    assert 0 < float(recovered["learned"]) <= 100
    assert 0 < float(recovered["group-mean"]) <= 100


def test_the_report_is_one_file_that_needs_no_other(plain: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    names = "fifo,shortest-remaining-service"
    arguments = ["--workload", plain, "--nodes", "1", "--compare", names, "--html", str(report)]
    assert main(["simulate", "run", *arguments]) == 0
    text = report.read_text()
    assert not re.search(r"https?:|src=|<script|<link|url\(|@import", text)
    plots = re.findall(r'<svg class="plot".*?</svg>', text)
    assert len(plots) == 6
    assert all(len(list(ElementTree.fromstring(plot))) > 5 for plot in plots)
    for title in ("Utilisation", "Fragmentation", "Mean wait by size", "Fairness", "Evictions"):
        assert f"<h2>{title}" in text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_plots_over_time_hold_a_sample_until_the_next_one(tmp_path: Path) -> None:
    """Nobody waited before the second job came, after an hour: the line had risen from the beginning."""
    (tmp_path / "jobs.csv").write_text("submitted_s,runs_s,gpus\n0,7200,8\n3600,600,8\n")
    report = tmp_path / "report.html"
    jobs = str(tmp_path / "jobs.csv")
    assert main(["simulate", "run", "--workload", jobs, "--nodes", "1", "--html", str(report)]) == 0
    waiting = ElementTree.fromstring(re.findall(r'<svg class="plot".*?</svg>', report.read_text())[1])
    assert waiting.attrib["aria-label"] == "jobs by hours"
    (line,) = waiting.iter("polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    (start, low), (came, still_low), (rose, high) = points[:3]
    assert start < came == rose
    assert low == still_low > high  # downwards in an image


def test_names_in_the_report_are_text(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submitted_s,runs_s,gpus,group\n0,5,1,<b>&x\n")
    report = tmp_path / "report.html"
    assert main(["simulate", "run", "--workload", str(tmp_path / "jobs.csv"), "--html", str(report)]) == 0
    assert "<b>" not in report.read_text()
    assert "&lt;b&gt;&amp;x" in report.read_text()


def test_a_recorded_run_is_decided_again_alike(plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = str(tmp_path / "recorded")
    policy = ["--policy", "shortest-remaining-service"]
    assert main(["simulate", "run", "--workload", plain, "--nodes", "1", *policy, "--journal", recorded]) == 0
    capsys.readouterr()
    assert main(["simulate", "journal", recorded, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cycles"] == found["same"] > 3
    assert (found["starts"], found["evictions"], found["different"]) == (3, 1, [])


def test_a_plan_that_differs_is_named(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = str(tmp_path / "recorded")
    JobRun("x", equal_nodes(1), tuple(generated_jobs(JobsToGenerate("philly", 9, 1, 1, 8, 0.5))), "fifo",
           journal=recorded).run()  # fmt: skip
    monkeypatch.setattr("kaiwo.runtime.loop.replay.encode_plan", lambda plan: b"other")
    assert main(["simulate", "journal", recorded]) == 1
    assert "DIFFER" in capsys.readouterr().out


def test_a_journal_of_another_version_is_refused(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = str(tmp_path / "recorded")
    monkeypatch.setattr(
        "kaiwo.runtime.loop.cycle_runner.Setting", lambda _, policy, plugins: Setting("0.0.9", policy, plugins)
    )
    JobRun("x", equal_nodes(1), tuple(generated_jobs(JobsToGenerate("philly", 9, 1, 1, 8, 0.5))), "fifo",
           journal=recorded).run()  # fmt: skip
    assert main(["simulate", "journal", recorded]) == 2
    assert f"decided by Kaiwo 0.0.9, and this is {kaiwo.__version__}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "give either --workload FILE or --generate MIX"),
        (["run", "--workload", "/no/such.csv"], "there is no file /no/such.csv"),
        (["run", "--generate", "phily"], "there is no mix 'phily'; choose one of: philly, openb"),
        (["run", "--workload", "JOBS", "--policy", "fief"], "there is no policy 'fief'; choose one of: default, fifo"),
        (["run", "--workload", "JOBS", "--cluster-file", "/no.yaml"], "there is no cluster file /no.yaml"),
        (["run", "--workload", "JOBS", "--html", "/no/such/r.html"], "its folder does not exist"),
        (["run", "--workload", "JOBS", "--compare", "fifo,"], "--compare is 'fifo,'; write names with commas"),
        (["run", "--workload", "JOBS", "--partition", "node-9=CPX@5"], "there is no such node"),
        (["run", "--workload", "JOBS", "--partition", "node-1=CPX@5"], "cannot be cut so; possible: none"),
        (["run", "--workload", "JOBS", "--journal", "x", "--seeds", "0-1"], "--journal keeps the decisions of one run"),
        (["run", "--workload", "WIDE", "--nodes", "1"], "wide.csv, line 2: job-000002 would never start: it asks"),
        (["muri", "--data", "/no/such"], "/no/such has no trace*.csv"),
        (["muri", "--data", "EMPTY", "--trace", "trace7"], "has neither trace7.csv nor trace7.csv.gz"),
        (["philly", "--data", "/no/such"], "there is no folder /no/such"),
        (["journal", "/no/such"], "there is no journal at /no/such"),
        (["journal", "EMPTY"], "there is no journal at"),
        (["journal", "UNUSED"], "has no cycles"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(
    arguments: list[str], says: str, plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wide.csv").write_text("submitted_s,runs_s,gpus\n0,5,16\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "unused/journal").mkdir(parents=True)
    places = {
        "JOBS": plain,
        "WIDE": str(tmp_path / "wide.csv"),
        **{each.upper(): str(tmp_path / each) for each in ("empty", "unused")},
    }
    assert main(["simulate", *(places.get(part, part) for part in arguments)]) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_bad_input_leaves_no_report(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submitted_s,runs_s,gpus\n0,5,1\n0,x,1\n")
    report = tmp_path / "report.html"
    assert main(["simulate", "run", "--workload", str(tmp_path / "jobs.csv"), "--html", str(report)]) == 2
    assert not report.exists()


@pytest.mark.slow
def test_ctrl_c_prints_what_is_there(tmp_path: Path) -> None:
    """The first of two runs is short; the second would take minutes."""
    (tmp_path / "trace1.csv").write_text(MURI)
    rows = "".join(f"{at},1,0,a,{1000 * (at % 97 + 1) ** 2}\n" for at in range(4_000))
    (tmp_path / "trace2.csv").write_text("job_id,num_gpu,submit_time,model_name,duration\n" + rows)
    code = "import sys; from kaiwo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "simulate", "muri", "--data", str(tmp_path), "--jobs", "1", "--json"]
    command += ["--restart-costs", "0", "--policy", "least-attained-service"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_runs(process, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [run["workload"] for run in json.loads(out)["runs"]] == ["trace1"]
    assert "interrupted: 1 of 2 runs had finished" in err


def test_seeds_shuffle_only_jobs_of_the_same_instant() -> None:
    jobs = tuple(generated_jobs(JobsToGenerate("philly", 300, 1, 1, 8, 1.5)))
    results = [JobRun("x", equal_nodes(1), jobs, "shortest-job-first", seed).run() for seed in (0, 1, 1)]
    assert results[1].figures == results[2].figures
    assert results[0].figures.ended == results[1].figures.ended == 300


def test_the_means_of_seeds_are_compared() -> None:
    jobs = tuple(generated_jobs(JobsToGenerate("philly", 60, 1, 1, 8, 1.5)))
    runs: list[JobRunFigures] = [JobRun("x", equal_nodes(1), jobs, "fifo", seed).run() for seed in (0, 1)]
    (row,) = compare(runs)
    assert row.seeds == 2
    assert row.mean_wait_s == pytest.approx(sum(run.figures.mean_wait_s for run in runs) / 2, abs=0.01)


def test_even_slowdowns_are_fair() -> None:
    assert jain_index([2.0, 2.0, 2.0]) == 1.0
    assert jain_index([1.0, 0.0, 0.0]) == pytest.approx(1 / 3, abs=1e-4)
    assert quantile([5, 1, 3, 2, 4], 50) == 3
    assert quantile(range(1, 101), 99) == 99


class DiesEarly:
    """A task that its process cannot even read, and that is larger than a pipe holds."""

    payload = b""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,), {"payload": b"x" * 1_000_000}

    def run(self, report: Callable[[float], None]) -> int:
        return 0


def test_a_run_whose_process_dies_is_an_error_and_no_hang() -> None:
    with pytest.raises(KaiwoError, match="a run ended without a result"):
        run_tasks([DiesEarly()])
