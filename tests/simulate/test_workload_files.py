"""Workload files: published shapes as they are, a plain one, and what is wrong with others, by line."""

import gzip
from pathlib import Path

import pytest

from kaiwo.model.errors import ConfigError
from kaiwo.simulate.engine.impossible_jobs import impossible_job
from kaiwo.simulate.engine.job import SimulatedJob, seed_split, split_gpus
from kaiwo.simulate.job_run import equal_nodes
from kaiwo.simulate.workloads.generated_jobs import DAY_S, JobsToGenerate, generated_jobs
from kaiwo.simulate.workloads.openb_jobs import at_load
from kaiwo.simulate.workloads.read_jobs import read_jobs

MURI = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
SHOCKWAVE = "job_type,steps,num_gpu,adaptation,priority,slo,duration_s,arrival_s\n"
HELIOS = "time,total_gpu_num,running_gpu_num_noless_8,running_gpu_num_less_8\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def jobs_in(folder: Path, text: str) -> tuple[str, list[SimulatedJob]]:
    path = folder / "jobs.csv"
    path.write_text(text)
    return read_jobs(path)


def facts(job: SimulatedJob) -> tuple[int, int, int, int]:
    return job.submitted_s, job.runs_s, job.pods, job.request.gpus


def test_muri_counts_in_milliseconds(tmp_path: Path) -> None:
    shape, (one, two) = jobs_in(tmp_path, MURI + "0,1,0,9,dqn,1,2500,0,1\n1,16,61000,9,vgg16,1,4000,0,1\n")
    assert shape == "Muri"
    assert (facts(one), facts(two)) == ((0, 3, 1, 1), (61, 4, 2, 8))
    assert two.group == "vgg16"


def test_philly_begins_with_its_first_submission(tmp_path: Path) -> None:
    text = PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:00:55,5.4,24,9,6214e9\n"
    shape, (one, two) = jobs_in(tmp_path, text)
    assert shape == "Philly"
    assert (facts(one), facts(two)) == ((60, 66, 1, 1), (0, 5, 3, 8))
    assert one.group == "11cb48"


def test_shockwave_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress((SHOCKWAVE + "LM (batch size 10),134583,2,gns,1,-1.0,1418,55\n").encode()))
    shape, (job,) = read_jobs(path)
    assert (shape, facts(job), job.group) == ("Shockwave", (55, 1418, 1, 2), "LM")


def test_helios_jobs_give_the_series_of_running_gpus_back(tmp_path: Path) -> None:
    used = [(0, 2), (8, 2), (24, 5), (20, 0), (12, 3)]
    rows = [f"2020-05-01 00:{at:02d}:00,64,{large},{small}\n" for at, (large, small) in enumerate(used)]
    shape, jobs = jobs_in(tmp_path, HELIOS + "".join(rows))
    assert shape == "Helios"
    for at, (large, small) in enumerate(used):
        running = [job for job in jobs if job.submitted_s <= 60 * at < job.submitted_s + job.runs_s]
        assert sum(job.gpus for job in running if job.group == "large") == large
        assert sum(job.gpus for job in running if job.group == "small") == small


def test_openb_pods_run_from_their_start_to_their_deletion(tmp_path: Path) -> None:
    rows = "p1,4000,1024,1,460,T4|P100,LS,Running,100,500,120\np2,1,1,0,0,,LS,Pending,7,9,\n"
    shape, (pod,) = jobs_in(tmp_path, OPENB + rows)
    assert (shape, pod.name, pod.submitted_s, pod.runs_s) == ("openb", "p1", 100, 380)
    assert (pod.request.gpu_milli, pod.request.gpu_models, pod.gpu_milli) == (460, ("T4", "P100"), 460)


def test_the_plain_shape_needs_three_columns(tmp_path: Path) -> None:
    shape, (one, half) = jobs_in(tmp_path, "runs_s,gpus,submitted_s\n60,16,5\n30,0.5,6\n")
    assert shape == "plain"
    assert (facts(one), half.gpu_milli, half.name) == ((5, 60, 2, 8), 500, "job-000003")


def test_the_plain_shape_may_say_more(tmp_path: Path) -> None:
    text = "submitted_s,runs_s,gpus,name,pods,queue,user,priority,gpu_models\n0,9,8,train,2,lab,ada,5,MI300X|H100\n"
    _, (job,) = jobs_in(tmp_path, text)
    assert (job.name, job.pods, job.request.gpus, job.queue, job.user) == ("train", 2, 4, "lab", "ada")
    assert (job.priority, job.request.gpu_models, job.group) == (5, ("MI300X", "H100"), "lab")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("submitted_s,runs_s,gpus,colour\n0,1,1,red\n", "line 1: the column 'colour' is not known"),
        ("submitted_s,runs_s,gpus,runs_s\n0,1,1,9\n", "line 1: the column 'runs_s' is there twice; give it once"),
        ("submitted_s,runs_s\n0,1\n", "line 1: these columns are of no known shape. Known are plain"),
        ("submitted_s,runs_s,gpus\n0,1,1\n5,x,1\n", "line 3: runs_s is 'x'; it must be a number"),
        ("submitted_s,runs_s,gpus\n0,0,1\n", "line 2: runs_s is 0; it must be from 1 to"),
        ("submitted_s,runs_s,gpus\n-4,9,1\n", "line 2: submitted_s is -4; it must be from 0"),
        ("submitted_s,runs_s,gpus\n0,nan,1\n", "line 2: runs_s is nan; it must be from 1"),
        ("submitted_s,runs_s,gpus\n0,1,1.5\n", "line 2: gpus is 1.5; write whole GPUs, or one fraction below 1"),
        ("submitted_s,runs_s,gpus,pods\n0,1,9,2\n", "line 2: gpus is 9, which 2 pods cannot share equally"),
        ("submitted_s,runs_s,gpus,name\n0,1,1,a\n0,1,1,a\n", "line 3: there is a job named 'a' already"),
        ("submitted_s,runs_s,gpus\n0,1,1,1\n", "line 2: there are 4 values under 3 columns"),
        ('submitted_s,runs_s,gpus\n0,1,"1\n', "this is not CSV"),
        ("submitted_s,runs_s,gpus\n", "lists no jobs"),
        (PHILLY + "yesterday,1,1,1,x\n", "line 2: timestamp is 'yesterday'; it must be a time such as 2017"),
        (PHILLY + "2017-10-09 07:01:55,9,0,1,x\n", "line 2: num_gpus is 0; it must be from 1"),
        (MURI + "0,1,0,9,dqn,1,0,0,1\n", "line 2: duration is 0; it must be from 1"),
        (OPENB + "p1,4000,1024,1,460,,LS,Running,500,100,120\n", "line 2: deletion_time is 100, before creation_time"),
        (OPENB + "p1,4000,1024,1,460,,LS,Running,5,100,x\n", "line 2: scheduled_time is 'x'; it must be a number"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        jobs_in(tmp_path, text)
    assert says in str(error.value)
    assert str(tmp_path / "jobs.csv") in str(error.value)


@pytest.mark.parametrize("gpus", range(1, 257))
def test_a_job_gets_exactly_the_gpus_that_it_asks_for(gpus: int) -> None:
    pods, each = split_gpus(gpus)
    assert pods * each == gpus
    assert each <= 8


def test_the_first_release_gave_whole_nodes() -> None:
    assert [seed_split(gpus) for gpus in (1, 8, 9, 17)] == [(1, 1), (1, 8), (2, 8), (3, 8)]


def test_a_job_that_no_empty_cluster_fits_is_found(tmp_path: Path) -> None:
    _, jobs = jobs_in(tmp_path, "submitted_s,runs_s,gpus\n0,1,16\n0,1,24\n")
    assert impossible_job(jobs, equal_nodes(3)) is None
    found = impossible_job(jobs, equal_nodes(2))
    assert found is not None
    assert (found[0].name, found[0].line) == ("job-000003", 3)
    assert found[1] == "24 GPUs in 3 pods, and an empty cluster of 2 nodes holds 2"


@pytest.mark.parametrize(
    ("row", "lacks"),
    [
        ("8,,,,V100", None),
        ("8,,,,A100|V100", None),
        ("8,,,,A100", "a GPU of A100, and no node has one"),
        ("9,1,,,", "9 GPUs on one node, and no node has more than 8 that it accepts"),
        ("1,,1000001,,", "1,000,001 thousandths of a CPU, and no node has more than 1,000,000"),
        ("1,,,1048577,", "1,048,577 MiB of memory, and no node has more than 1,048,576"),
        ("24,24,500001,,", "24 GPUs in 24 pods, and an empty cluster of 2 nodes holds 2"),
        ("0.5,,,,", None),
    ],
)
def test_what_a_job_lacks_is_named(tmp_path: Path, row: str, lacks: str | None) -> None:
    _, jobs = jobs_in(tmp_path, f"submitted_s,runs_s,gpus,pods,cpu_milli,memory_mib,gpu_models\n0,1,{row}\n")
    found = impossible_job(jobs, equal_nodes(2))
    assert (found and found[1]) == lacks


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_bytes(b"\xef\xbb\xbfsubmitted_s,runs_s,gpus\n0,1,1\n")
    assert len(read_jobs(tmp_path / "jobs.csv")[1]) == 1


@pytest.mark.parametrize("mix", ["philly", "openb"])
def test_generated_jobs_need_the_wanted_part_of_the_cluster(mix: str) -> None:
    jobs = generated_jobs(JobsToGenerate(mix, 5_000, 7, seed=3, gpus=80, load=0.7))
    need = sum(job.gpu_milli * job.runs_s for job in jobs) / 1000
    assert need == pytest.approx(0.7 * 80 * 7 * DAY_S, rel=0.01)
    assert all(0 <= job.submitted_s < 7 * DAY_S for job in jobs)
    assert jobs == generated_jobs(JobsToGenerate(mix, 5_000, 7, seed=3, gpus=80, load=0.7))
    assert jobs != generated_jobs(JobsToGenerate(mix, 5_000, 7, seed=4, gpus=80, load=0.7))


def test_the_generated_mix_follows_the_published_one() -> None:
    jobs = generated_jobs(JobsToGenerate("philly", 20_000, 7, seed=1, gpus=80, load=0.7))
    single = sum(job.gpus == 1 for job in jobs) / len(jobs)
    assert single == pytest.approx(0.9317, abs=0.01)
    by_hour = [sum(job.submitted_s // 3600 % 24 == hour for job in jobs) for hour in (7, 14)]
    assert by_hour[0] / by_hour[1] == pytest.approx(2089 / 638, rel=0.15)


def test_an_unknown_mix_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no mix 'helio'; choose one of: philly, openb"):
        generated_jobs(JobsToGenerate("helio", 1, 1, 0, 8, 0.5))


def test_jobs_at_a_load_arrive_as_fast_as_that_needs() -> None:
    some = generated_jobs(JobsToGenerate("openb", 500, 7, seed=3, gpus=80, load=0.7))
    jobs = at_load(some, gpus=40, load=1.1, count=4_000, seed=1)
    span_s = jobs[-1].submitted_s
    assert sum(job.gpu_milli * job.runs_s for job in jobs) / 1000 / (40 * span_s) == pytest.approx(1.1, rel=0.02)
    assert max(job.runs_s for job in jobs) < max(job.runs_s for job in some)
