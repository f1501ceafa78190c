"""Expected starts: what is known about run times decides when waiting work is expected to start."""

from kaiwo.decide.cycle import BUILTIN
from kaiwo.forecast.expected_starts import ExpectedStart, ForwardQuestion, expected_starts, run_key_of
from kaiwo.forecast.run_forward import Bounds, run_forward
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from tests.worlds import World

SMALL = Policy(promises=0)  # no planned starts: every start is an expectation


def asked(world: World, forecast: RunTimeForecast | None = None, cycles: int = 400) -> dict[str, ExpectedStart]:
    question = ForwardQuestion(world.state, world.policy, BUILTIN, world.now_s, forecast or RunTimeForecast())
    return expected_starts(question, Bounds(cycles))


def line_of(count: int, **changes: int) -> World:
    """One GPU, and a line of equal workloads in front of it."""
    world = World(nodes=1, gpus_per_node=1, policy=SMALL)
    for number in range(count):
        world.submit(f"job-{number}", gpus_each=1, user="ada", **changes)
    world.settle()
    return world


def test_with_estimates_each_waits_for_those_before_it() -> None:
    found = asked(line_of(4, estimate_s=600))
    assert {name: start.middle_s for name, start in found.items()} == {
        "default/job-1": 600,
        "default/job-2": 1_200,
        "default/job-3": 1_800,
    }


def test_work_that_runs_already_needs_only_the_rest_of_its_time() -> None:
    world = line_of(2, estimate_s=600)
    world.now_s = 500
    assert asked(world)["default/job-1"].middle_s == 600


def test_unknown_stays_unknown() -> None:
    assert asked(line_of(3)) == {}
    world = line_of(3)
    world.submit("last", gpus_each=1, estimate_s=60).settle()
    assert asked(world) == {}, "nobody knows when the first one ends, whatever the others say"


def test_a_time_limit_bounds_what_nobody_knows() -> None:
    assert asked(line_of(2, time_limit_s=900))["default/job-1"].middle_s == 900


def test_what_similar_runs_took_makes_a_range() -> None:
    world, forecast = line_of(3), RunTimeForecast()
    for number in range(40):
        key = run_key_of(world.state.workloads["default/job-1"])
        forecast.learn(key, 300 if number % 2 else 1_500, number)
    second, third = (asked(world, forecast)[f"default/job-{at}"] for at in (1, 2))
    assert 250 <= second.low_s <= 350
    assert 1_200 <= second.high_s <= 1_800
    assert second.low_s <= second.middle_s <= second.high_s < third.high_s


def test_a_run_that_is_longer_than_all_before_it_is_expected_to_go_on() -> None:
    world, forecast = line_of(2), RunTimeForecast()
    for number in range(10):
        forecast.learn(run_key_of(world.state.workloads["default/job-1"]), 100, number)
    world.now_s = 5_000
    assert asked(world, forecast)["default/job-1"].middle_s == 10_000


def test_the_state_is_not_touched_and_the_answer_is_repeatable() -> None:
    world = line_of(5, estimate_s=600)
    before = world.state.events(), world.state.version
    assert asked(world) == asked(world)
    assert (world.state.events(), world.state.version) == before


def test_what_the_bound_does_not_reach_is_left_out() -> None:
    found = asked(line_of(30, estimate_s=600), cycles=12)
    assert 0 < len(found) < 29
    assert found["default/job-1"].middle_s == 600


def test_work_that_depends_on_other_work_starts_after_it() -> None:
    world = line_of(1, estimate_s=600)
    world.submit("then", gpus_each=1, after=("default/job-0",)).settle()
    assert asked(world)["default/then"].middle_s == 600


def test_who_is_stopped_for_others_is_counted_and_starts_again() -> None:
    world = World(nodes=1, gpus_per_node=1, policy=SMALL).queue("lab", quota_milli=1_000)
    world.submit("guest", gpus_each=1, estimate_s=900).settle()
    world.submit("owner", gpus_each=1, estimate_s=300, queue="lab")

    def run_time(workload: Workload, elapsed_s: int) -> int:
        return workload.estimate_s - elapsed_s

    found = run_forward(world.state, SMALL, BUILTIN, 0, run_time, Bounds(until_all_ended=True))
    assert found.evictions == {"default": 1}
    assert found.started_s["default/owner"] <= 2
    assert found.reached_s >= 1_200
    assert found.gpu_s["lab"] == 300
