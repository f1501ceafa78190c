"""The figures behind docs/forecast.md, on the first part of the real traces."""

import pytest

from bench._forecast_traces import generated_jobs, philly_jobs, without
from bench._queue_simulation import FirstComeFirstServed, GroupMean, Job, Learned, ShortestFirst, waits_s
from bench.forecast import TRACES, range_figures, recovered
from kaiwo.forecast.run_time_forecast import RunKey

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the traces are not at {TRACES}")


def job(submitted_s: int, run_s: int, gpus: int = 1, queue: str = "q") -> Job:
    return Job(submitted_s, run_s, gpus, RunKey("", "", queue, "", gpus * 1000))


def test_the_simulated_queue_starts_in_order_and_nothing_overtakes() -> None:
    jobs = [job(0, 100), job(1, 50, gpus=2), job(2, 10)]
    assert waits_s(jobs, 2, FirstComeFirstServed()) == [0, 99, 148]
    assert waits_s(jobs, 2, ShortestFirst()) == [0, 99, 0]


def test_the_group_mean_learns_from_jobs_that_have_ended() -> None:
    ranking = GroupMean()
    assert ranking.rank(job(0, 1), 0) == 0
    ranking.ended(job(0, 100), 100)
    assert ranking.rank(job(0, 1), 0) == ranking.rank(job(0, 1, queue="other"), 0) == 100


def test_user_name_and_image_narrow_the_range() -> None:
    jobs = generated_jobs(seed=3)[:4000]
    plain, full = range_figures(without(jobs, "user", "name", "image")), range_figures(jobs)
    assert full["median_width"] * 2 < plain["median_width"]
    assert 0.7 < full["held"] < 0.95


@pytest.mark.slow
@needs_traces
def test_four_of_five_unseen_jobs_are_in_their_range() -> None:
    jobs = philly_jobs(TRACES)[:30_000]
    assert 0.75 <= range_figures(jobs)["held"] <= 0.85


@pytest.mark.slow
@needs_traces
def test_learned_run_times_are_worth_more_than_the_group_mean() -> None:
    figures = recovered(philly_jobs(TRACES), 560)
    assert figures["learned"] > figures["group_mean"]


def test_learned_runs_are_ranked_by_what_has_ended() -> None:
    ranking = Learned()
    for number in range(5):
        ranking.ended(job(0, 100), 1000 + number)
        ranking.ended(job(0, 10_000, queue="slow"), 10_000 + number)
    assert ranking.rank(job(0, 1), 20_000) < ranking.rank(job(0, 1, queue="slow"), 20_000)
