"""Expected starts: what is known about run times decides when waiting work is expected to start."""

from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN
from kaiwo.forecast.duration_buckets import quantile_s
from kaiwo.forecast.expected_starts import ExpectedStart, ForwardQuestion, expected_starts, run_key_of
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_forward import Bounds, run_forward
from kaiwo.forecast.run_time_forecast import RunKey, RunTimeForecast, UnendedRuns
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World

DAY_S = 86_400
SMALL = Policy(promises=0)  # no planned starts: every start is an expectation


def asked(
    world: World, forecast: RunTimeForecast | None = None, cycles: int = 400, arrivals: RecentArrivals | None = None
) -> dict[str, ExpectedStart]:
    question = ForwardQuestion(
        world.state, world.policy, BUILTIN, world.now_s, forecast or RunTimeForecast(), arrivals or RecentArrivals(0)
    )
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
    assert 9_000 <= asked(world, forecast)["default/job-1"].middle_s <= 12_000


def test_what_has_run_for_long_is_not_about_to_end() -> None:
    """Runs took between 10 h 50 min and 12 h 50 min. Few that ran for 11 h 40 min end within three more minutes."""
    world, forecast = line_of(2), RunTimeForecast()
    for number in range(40):
        forecast.learn(run_key_of(world.state.workloads["default/job-1"]), 40_000, number)
    world.now_s = 42_000
    found = asked(world, forecast)["default/job-1"]
    assert 42_180 <= found.low_s < found.middle_s < found.high_s <= 46_341


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


def test_work_that_comes_as_often_as_before_may_go_first() -> None:
    """Important jobs came every ten minutes for the last two hours: they will come again."""
    world, recent = line_of(3, estimate_s=3_600), RecentArrivals(0)
    world.now_s = 7_200
    for number in range(12):
        role = Role(Request(gpus=1))
        urgent = Workload(f"default/urgent-{number}", (role,), priority=9, submitted_s=number * 600, estimate_s=300)
        recent.add(replace(urgent, stops_others=False))
    alone, beside_others = asked(world), asked(world, arrivals=recent)
    assert beside_others["default/job-2"].middle_s >= alone["default/job-2"].middle_s + 1_800
    assert set(beside_others) == set(alone), "who has not come yet is not told"


def test_expected_arrivals_need_an_hour_of_watching_and_repeat_the_last_day() -> None:
    recent = RecentArrivals(since_s=10_000)
    recent.add(Workload("default/before-1", (), submitted_s=9_000))
    recent.add(Workload("default/job-1", (), submitted_s=11_000))
    assert list(recent.expected(13_000, 0, DAY_S)) == []
    found = [(each.name, each.submitted_s) for each in recent.expected(14_000, 0, 8_000)]
    assert found == [("default/job-1-0", 15_000), ("default/job-1-1", 19_200)], "after 1,000 s of each 4,000"
    turned = [each.submitted_s for each in recent.expected(14_000, 500, 8_000)]
    assert turned == [17_100, 21_000], "the second half comes first"
    recent.add(Workload("default/job-2", (), submitted_s=11_000 + DAY_S + 1))
    assert [each.name for each in recent.save().workloads] == ["default/job-2"], "a day is kept"


def test_what_still_runs_says_that_run_times_are_longer_than_those_that_ended() -> None:
    """Of twenty runs that began together, ten ended within a minute: the others are no minute long."""
    forecast, key = RunTimeForecast(), RunKey("ada", "train", "default", "", 1_000)
    for _ in range(10):
        forecast.learn(key, 60, 0)
    unended = UnendedRuns(3_600)
    for _ in range(10):
        unended.add(key, 0)
    ended_alone, with_both = forecast.distribution(key, 3_600), forecast.distribution(key, 3_600, unended)
    assert ended_alone is not None
    assert with_both is not None
    assert quantile_s(ended_alone, 700_000) < 120
    assert quantile_s(with_both, 300_000) < 120
    assert quantile_s(with_both, 700_000) > 3_600


def test_without_running_work_the_distribution_is_that_of_the_ended_runs() -> None:
    forecast, key = RunTimeForecast(), RunKey("ada", "train", "default", "", 1_000)
    for run_s in (60, 600, 6_000, 60, 900):
        forecast.learn(key, run_s, 0)
    unended = UnendedRuns(10)
    unended.add(key, 10)  # it has just begun: it says nothing yet
    without, beside = forecast.distribution(key, 10), forecast.distribution(key, 10, unended)
    assert without is not None
    assert beside is not None
    assert abs(without - beside).sum() < without.sum() // 1_000


def test_a_run_ends_with_the_last_thing_that_happened_not_when_hopeless_work_is_overdue() -> None:
    world = line_of(2, estimate_s=600)
    world.submit("hopeless", gpus_each=2).settle()
    found = run_forward(world.state, SMALL, BUILTIN, 0, lambda work, _: work.estimate_s, Bounds(until_all_ended=True))
    assert (found.reached_s, found.gpu_s, found.is_whole) == (1_200, {"default": 1_200}, True)
