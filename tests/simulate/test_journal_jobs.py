"""The jobs of a journal run again: what was asked for, when, for how long, and on which cluster."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.cli.main import main
from kaiwo.history.journal_writer import Journal
from kaiwo.model.events import (
    Event,
    NodeChanged,
    PodChanged,
    PodGone,
    QueueChanged,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.simulate.job_run import JobRun, equal_nodes
from kaiwo.simulate.workloads.generated_jobs import JobsToGenerate, generated_jobs
from kaiwo.simulate.workloads.journal_jobs import RecordedWorkloads, journal_jobs

BEGIN_S = 1_000_000  # a cluster's clock is far from zero
GPUS = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(8))


class Recorder:
    """A cluster that journals what happens to it, as a running Kaiwo does."""

    def __init__(self, home: Path) -> None:
        self.home, self.journal = home, Journal(home / "journal")
        self._runner = CycleRunner(self.journal, DEFAULT_POLICY, builtin_registry())
        self.happens(QueueChanged(Queue("lab")), NodeChanged(Node("one", 64_000, 1 << 20, gpus=GPUS)))

    def happens(self, *events: Event) -> None:
        self._runner.state.patch(events)
        self._runner.journal_events(events)

    def decides(self, at_s: int) -> None:
        decision = self._runner.cycle(BEGIN_S + at_s)
        for start in decision.plan.starts if decision is not None else ():
            pod = self._runner.state.pods[start.workload][start.pod]
            self.happens(PodChanged(replace(pod, phase=Phase.RUNNING, since_s=BEGIN_S + at_s)))

    def submit(self, name: str, at_s: int, gpus: int = 1, **more: object) -> None:
        role = Role(Request(gpus=gpus))
        self.happens(WorkloadChanged(Workload(name, (role,), "lab", submitted_s=BEGIN_S + at_s, **more)))  # type: ignore[arg-type]

    def ends(self, name: str, ran_s: int = 0) -> None:
        self.happens(PodGone(name, "main-0"), WorkloadGone(name, ran_s))

    def read(self) -> RecordedWorkloads:
        self.journal.close()
        return journal_jobs(self.home)


def facts(found: RecordedWorkloads) -> list[tuple[str, int, int, int]]:
    return [(job.name.rpartition("-")[0], job.submitted_s, job.runs_s, job.gpus) for job in found.jobs]


def test_a_job_arrives_when_it_was_submitted_and_runs_as_long_as_it_did(tmp_path: Path) -> None:
    cluster = Recorder(tmp_path)
    cluster.submit("a/first", 0, gpus=8)
    cluster.decides(0)
    cluster.submit("a/second", 50, gpus=4)
    cluster.decides(60)  # it waits
    cluster.ends("a/first", ran_s=500)
    cluster.decides(500)
    cluster.ends("a/second", ran_s=70)
    found = cluster.read()
    assert facts(found) == [("a/first", 0, 500, 8), ("a/second", 50, 70, 4)]
    assert [node.name for node in found.nodes] == ["one"]
    assert [event.queue.name for event in found.setting if isinstance(event, QueueChanged)] == ["lab"]
    assert (found.cut_short, found.unknown) == (0, 0)


def test_without_a_run_time_it_ran_until_the_next_cycle(tmp_path: Path) -> None:
    cluster = Recorder(tmp_path)
    cluster.submit("a/failed", 0, gpus=8)
    cluster.submit("a/next", 0, gpus=8)
    cluster.decides(0)
    cluster.ends("a/failed")
    cluster.decides(300)
    found = cluster.read()
    assert facts(found)[0] == ("a/failed", 0, 300, 8)
    assert found.cut_short == 1  # the next one still runs


def test_held_work_arrives_when_it_is_released(tmp_path: Path) -> None:
    cluster = Recorder(tmp_path)
    cluster.submit("a/held", 0, held=True)
    cluster.submit("a/other", 0)
    cluster.decides(0)
    cluster.submit("a/held", 0)
    cluster.decides(400)
    cluster.ends("a/held", ran_s=10)
    assert ("a/held", 400, 10, 1) in facts(cluster.read())


def test_the_run_time_is_that_of_the_last_attempt(tmp_path: Path) -> None:
    cluster = Recorder(tmp_path)
    cluster.submit("a/again", 0, gpus=8)
    cluster.decides(0)
    cluster.happens(PodGone("a/again", "main-0"))  # it was stopped, and waits again
    cluster.decides(100)
    cluster.ends("a/again")
    cluster.submit("a/next", 350)
    cluster.decides(350)
    assert facts(cluster.read())[0] == ("a/again", 0, 250, 8)


def test_what_never_ran_is_left_out_and_counted(tmp_path: Path) -> None:
    cluster = Recorder(tmp_path)
    cluster.submit("a/fits", 0)
    cluster.submit("a/never", 0, gpus=64)
    cluster.decides(0)
    found = cluster.read()
    assert [name for name, *_ in facts(found)] == ["a/fits"]
    assert found.unknown == 1


def test_what_is_lost_in_the_journal_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Recorder(tmp_path)
    cluster.submit("a/first", 0)
    cluster.decides(0)
    cluster.ends("a/first", ran_s=500)
    cluster.decides(500)
    cluster.journal.close()
    (segment,) = (tmp_path / "journal").glob("*.journal")
    segment.write_bytes(segment.read_bytes() + b"torn")
    assert main(["simulate", "run", "--workload", str(tmp_path)]) == 0
    assert "00000001.journal is broken at byte" in capsys.readouterr().err
    segment.write_bytes(b"x" * 500)
    for verb in (["run", "--workload", str(tmp_path)], ["journal", str(tmp_path)]):
        assert main(["simulate", *verb]) == 2
        assert "has no cycles" in (told := " ".join(capsys.readouterr().err.split()))
        assert "00000001.journal has no readable header" in told


def test_a_name_that_is_used_again_is_another_job(tmp_path: Path) -> None:
    cluster = Recorder(tmp_path)
    for at_s in (0, 100):
        cluster.submit("a/nightly", at_s)
        cluster.decides(at_s)
        cluster.ends("a/nightly", ran_s=20)
    assert facts(cluster.read()) == [("a/nightly", 0, 20, 1), ("a/nightly", 100, 20, 1)]


@pytest.mark.parametrize("policy", ["fifo", "shortest-remaining-service"])
def test_a_recorded_run_gives_the_same_figures_again(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is read from the journal is what was simulated: the same order of jobs waits as long."""
    nodes, jobs = equal_nodes(2), tuple(generated_jobs(JobsToGenerate("philly", 150, 1, 1, 16, 1.1)))
    jobs = tuple(job for job in jobs if job.gpus <= 16)
    then = JobRun("then", nodes, jobs, policy, journal=str(tmp_path)).run().figures
    assert (
        main(["simulate", "run", "--workload", str(tmp_path), "--policy", policy, "--restart-cost", "0", "--json"]) == 0
    )
    (now,) = json.loads(capsys.readouterr().out)["runs"]
    assert then.mean_wait_s > 60
    assert now["jobs"] == then.jobs
    if policy == "fifo":
        assert (now["mean_wait_s"], now["makespan_s"]) == (then.mean_wait_s, then.makespan_s)


def test_a_policy_file_stands_beside_the_shipped_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shipped policy plans a start for large work, and bounds its wait; one that does neither lets it wait."""
    (tmp_path / "jobs.csv").write_text(
        "submitted_s,runs_s,gpus,name\n" + "".join(f"{at * 5_000},10000,4,small-{at}\n" for at in range(60))
        + "1,100,8,large\n"
    )  # fmt: skip
    (tmp_path / "unbounded.yaml").write_text("maxWait: 0\npromises: 0\n")
    names = f"default,{tmp_path / 'unbounded.yaml'}"
    arguments = ["--workload", str(tmp_path / "jobs.csv"), "--nodes", "1", "--compare", names, "--json"]
    assert main(["simulate", "run", *arguments]) == 0
    bounded, unbounded = json.loads(capsys.readouterr().out)["runs"]
    waits = [next(each["mean_wait_s"] for each in run["waits_by_size"] if each["gpus"] == "5 to 8")
             for run in (bounded, unbounded)]  # fmt: skip
    assert waits[0] < 30 * 3600 < waits[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workload", "FOLDER"], "has no journal; name the home folder of a Kaiwo"),
        (["--workload", "UNUSED"], "has no cycles"),
        (["--generate", "philly", "--policy", "FOLDER/none.yaml"], "cannot be read"),
        (["--generate", "philly", "--policy", "FOLDER/bad.yaml"], "maxWait"),
    ],
)
def test_what_can_not_be_read_is_refused_with_a_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unused/journal").mkdir(parents=True)
    (tmp_path / "bad.yaml").write_text("maxWait: tomorrow\n")
    given = [each.replace("FOLDER", str(tmp_path)).replace("UNUSED", str(tmp_path / "unused")) for each in arguments]
    assert main(["simulate", "run", *given]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
