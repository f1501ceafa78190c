"""The scale signal: what is missing, when more will be, and which empty nodes nobody needs."""

from kaiwo.forecast.demand_forecast import HOUR_S, MAX_HOURS, DemandForecast
from kaiwo.forecast.scale_signal import ModelNeed, demand_by_model, scale_signal, urgent_demand
from kaiwo.model.events import ReservationChanged
from kaiwo.model.reservation import Reservation
from tests.forecast.test_demand import DAY_S, day_and_night, observed
from tests.worlds import World


def need_of(world: World, forecast: DemandForecast | None = None, model: str = "MI300X") -> ModelNeed:
    world.state.refresh_tables()
    found = scale_signal(world.state, {model: forecast} if forecast is not None else {}, world.now_s)
    return {each.model: each for each in found}[model]


def steady(gpus: int, days: int = 3) -> DemandForecast:
    return observed(days * 24, lambda _: gpus)


def test_work_that_waits_needs_nodes_now() -> None:
    world = World(nodes=2).running("old", 16).submit("more", pods=3, gpus_each=8)
    world.settle()
    need = need_of(world)
    assert (need.held_gpus, need.waiting_gpus, need.add_now) == (16, 24, 3)
    assert need.hours == need.may_go == ()


def test_what_a_limit_forbids_needs_no_node() -> None:
    world = World(nodes=1).queue("lab", gpu_limit=8000)
    world.running("old", 8, queue="lab").submit("more", pods=3, gpus_each=8, queue="lab")
    world.settle()
    assert (need_of(world).waiting_gpus, need_of(world).add_now) == (0, 0)


def test_each_model_has_its_own_need() -> None:
    world = World(nodes=1).node("fast", model="H100").submit("more", pods=2, gpus_each=8, models=("H100",))
    world.settle()
    assert need_of(world, model="H100").add_now == 1
    assert need_of(world).add_now == 0
    held, waiting = demand_by_model(world.state)["H100"]
    assert held + waiting == 16_000


def test_an_hour_of_high_demand_is_told_before_it_comes() -> None:
    """It is six in the morning; from eight on the demand is above the 64 GPUs that there are."""
    world = World(nodes=8)
    world.now_s = 21 * DAY_S + 6 * HOUR_S
    need = need_of(world, observed(21 * 24 + 6, day_and_night))
    by_hour = {hour.at_s % DAY_S // HOUR_S: hour for hour in need.hours}
    assert len(need.hours) == MAX_HOURS
    assert by_hour[6].at_s == world.now_s
    assert by_hour[6].add_nodes == 0
    assert by_hour[10].add_nodes >= 2
    assert all(hour.expected_gpus <= hour.high_gpus for hour in need.hours)
    assert need.may_go == ()


def test_empty_nodes_that_no_hour_needs_may_go() -> None:
    world = World(nodes=5).running("old", 4)
    assert need_of(world, steady(18)).may_go == ("node-1", "node-2")


def test_nobody_goes_before_forecasts_of_a_whole_day_were_compared() -> None:
    world = World(nodes=5)
    assert need_of(world, observed(11, lambda _: 0)).hours == ()
    assert len(need_of(world, observed(15, lambda _: 0)).hours) == 3
    assert need_of(world, observed(35, lambda _: 0)).may_go == ()
    assert len(need_of(world, observed(36, lambda _: 0)).may_go) == 5


def test_a_node_with_a_reservation_stays() -> None:
    world = World(nodes=2)
    world.tell(ReservationChanged(Reservation("night", nodes=("node-0",), start_s=world.now_s + HOUR_S)))
    assert need_of(world, steady(0)).may_go == ("node-1",)


def test_nodes_that_failed_most_go_first() -> None:
    world = World(nodes=3)
    world.state.node_failures.weights = {"node-2": 3000}
    assert need_of(world, steady(16)).may_go == ("node-2",)


def test_high_demand_is_seldom_exceeded() -> None:
    """On days with noise that repeats in no pattern: the hour's mean is above `high` at most one time in ten."""

    def noisy(at_s: int) -> int:
        return 80 + day_and_night(at_s) + (at_s // HOUR_S * 7919) % 41 - 20

    forecast, exceeded, asked = DemandForecast(), 0, 0
    high = None
    for hour in range(40 * 24):
        demand = noisy(hour * HOUR_S)
        if hour > 10 * 24 and high is not None:
            asked, exceeded = asked + 1, exceeded + (demand > high)
        for at_s in range(hour * HOUR_S, (hour + 1) * HOUR_S, 600):
            forecast.observe(at_s, demand)
        forecast.observe((hour + 1) * HOUR_S, demand)
        high = forecast.high(1)
    assert asked > 600
    assert exceeded <= asked // 10


def test_urgent_demand_counts_work_from_a_priority_on() -> None:
    world = World(nodes=1).running("calm", 2, priority=5).submit("urgent", pods=2, gpus_each=8, priority=50)
    world.settle()
    assert urgent_demand(world.state, 50) == {"default": 16}
    assert urgent_demand(world.state, 5) == {"default": 18}
