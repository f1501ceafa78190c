"""Waits with more nodes, and trends."""

from kaiwo.advise.capacity_plan import CapacityChoice, plan_capacity
from kaiwo.advise.right_size import SizeRule
from kaiwo.advise.run_uses import RunUses
from kaiwo.advise.trends import trend_of
from kaiwo.advise.verify_advice import AdviceQuestion
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World

HOUR, DAY = 3600, 86_400


def node(number: int) -> Node:
    return World(nodes=0).node(f"added-{number}", gpus=4).state.node_objects[f"added-{number}"]


def busy_world() -> AdviceQuestion:
    """Four GPUs; every half hour of the last day a run of one GPU came, which takes three hours: two too many."""
    world = World(nodes=1, gpus_per_node=4)
    world.now_s = DAY
    arrivals = RecentArrivals(0)
    for number in range(48):
        request = Request(1000, 0, 1)
        arrivals.add(
            Workload(f"default/run-{number}", (Role(request),), submitted_s=number * 1800, estimate_s=3 * HOUR)
        )
    for number in range(4):
        world.submit(f"now-{number}", gpus_each=1, estimate_s=3 * HOUR)
    world.settle()
    return AdviceQuestion(
        world.state, world.policy, world.plugins, world.now_s, RunTimeForecast(), arrivals, RunUses(), SizeRule()
    )


def test_more_nodes_shorten_the_waits_of_what_is_expected() -> None:
    choices = [CapacityChoice("MI300X", tuple(node(at) for at in range(count))) for count in (1, 4)]
    answer = plan_capacity(busy_world(), choices)
    now, one, four = answer.outlooks
    assert (now.nodes, now.gpus, one.gpus, four.gpus) == (0, 4, 8, 20)
    assert now.p90_s > 4 * HOUR
    assert now.p90_s > one.p90_s >= four.p90_s
    assert four.p90_s < 600, "arrivals of five minutes come at once"
    assert now.p50_s <= now.p90_s
    assert (answer.waiting, answer.arriving, answer.unknown, answer.is_whole) == (0, 48, 0, True)
    assert four.started_permille == 1000
    assert now.used_permille > four.used_permille


def test_growth_adds_work_and_its_waits() -> None:
    (now,) = plan_capacity(busy_world(), []).outlooks
    (grown,) = plan_capacity(busy_world(), [], growth_percent=50).outlooks
    assert plan_capacity(busy_world(), [], growth_percent=50).arriving == 72
    assert grown.mean_s > now.mean_s


def test_work_of_unknown_run_time_is_left_out_and_told() -> None:
    question = busy_world()
    question.arrivals.add(Workload("default/odd", (Role(Request(1000, 0, 1)),), submitted_s=DAY - 60))
    assert plan_capacity(question, []).unknown == 1


def test_a_name_that_was_submitted_twice_is_two_workloads() -> None:
    """One of one pod, then one of three: both come again within the day, and run at the same time."""
    question = busy_world()
    for at_s, pods in ((1000, 1), (2000, 3)):
        role = Role(Request(1000, 0, 1), count=pods)
        question.arrivals.add(Workload("default/again", (role,), submitted_s=DAY - 20_000 + at_s, estimate_s=9 * HOUR))
    names = [each.name for each in question.arrivals.expected(DAY, 0, DAY)]
    assert len(set(names)) == len(names)
    assert plan_capacity(question, []).arriving == 50


def test_the_choices_end_with_the_time_for_them() -> None:
    question = busy_world()._replace(may_go_on=lambda: False)
    answer = plan_capacity(question, [CapacityChoice("MI300X", (node(0),))])
    assert (len(answer.outlooks), answer.is_whole) == (1, False)


def test_a_trend_compares_this_week_with_the_one_before() -> None:
    values = [1000 + 10 * (hour // 24) for hour in range(14 * 24)]
    trend = trend_of(values, bound=2000)
    assert trend is not None
    assert (trend.before, trend.now, trend.span_h, trend.per_day) == (1030, 1100, 168, 10)
    assert trend.full_in_days == 90


def test_a_flat_or_falling_measure_is_never_full() -> None:
    flat, falling = trend_of([500, 501] * 168, bound=600), trend_of(list(range(336, 0, -1)), bound=600)
    assert flat is not None
    assert flat.is_flat
    assert falling is not None
    assert flat.full_in_days is falling.full_in_days is None
    assert falling.per_day == -24


def test_two_days_are_enough_and_one_is_not() -> None:
    assert trend_of([None] * 300 + [5] * 36) is None
    half = trend_of([None] * 288 + [4] * 24 + [8] * 24)
    assert half is not None
    assert (half.before, half.now, half.span_h) == (4, 8, 24)
    assert trend_of([]) is None
