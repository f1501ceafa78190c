"""What no scheduler can beat is told beside what is due: the least makespan, and the most use while jobs arrive."""

from bench.simulate import best_possible
from kaiwo.model.request import Request
from kaiwo.simulate.engine.job import SimulatedJob
from kaiwo.simulate.job_run import equal_nodes

ONE_NODE = equal_nodes(1)


def job(name: str, submitted_s: int, runs_s: int, gpus: int) -> SimulatedJob:
    return SimulatedJob(name, submitted_s, runs_s, Request(1000, 1, gpus))


def test_the_last_arrival_bounds_the_makespan_where_the_gpus_do_not() -> None:
    assert best_possible([job("a", 0, 100, 8), job("b", 100, 50, 1)], ONE_NODE) == (150, 100.0)


def test_the_gpus_bound_the_makespan_where_much_arrives_at_once() -> None:
    least_s, most_pct = best_possible([job("a", 0, 100, 8), job("b", 0, 100, 8), job("c", 10, 1, 1)], ONE_NODE)
    assert (least_s, most_pct) == (200.125, 100.0)


def test_use_is_bounded_by_what_has_arrived() -> None:
    assert best_possible([job("a", 0, 50, 8), job("b", 100, 50, 8)], ONE_NODE) == (150, 50.0)
