"""Predicted demand: samples are kept over a restart, and free GPUs are kept for urgent work that is expected."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from kaiwo.forecast.demand_forecast import HOUR_S, SLOT_S, DemandForecast
from kaiwo.model.events import Event, ReservationChanged, ReservationGone
from kaiwo.model.policy import Policy
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.runtime.forecasting.demand_tracker import DemandTracker, predicted_reservations
from tests.worlds import World

PREDICTS = Policy(predicted_ahead_s=3600, predicted_priority=50)


def expecting(gpus: int, now_s: int) -> dict[str, DemandForecast]:
    forecast = DemandForecast()
    for at_s in range(now_s - 72 * HOUR_S, now_s + 1, SLOT_S):
        forecast.observe(at_s, gpus)
    return {"default": forecast}


def world_at(nodes: int = 4) -> World:
    world = World(nodes=nodes, policy=PREDICTS)
    world.now_s = 100 * HOUR_S
    return world


def predicted(world: World, gpus: int, made: tuple[str, ...] = ()) -> list[Event]:
    world.state.refresh_tables()
    return list(predicted_reservations(world.state, world.policy, expecting(gpus, world.now_s), set(made), world.now_s))


def test_free_gpus_are_kept_for_what_is_expected_and_work_of_others_goes_elsewhere() -> None:
    world = world_at().queue("batch")
    (event,) = predicted(world, 8)
    assert isinstance(event, ReservationChanged)
    assert (event.reservation.name, event.reservation.gpus) == ("predicted-default", 8)
    assert event.reservation.owner == ReservationOwner(queue="default")
    assert world.now_s + HOUR_S <= event.reservation.end_s <= world.now_s + 2 * HOUR_S
    world.tell(event).submit("flood", pods=4, gpus_each=8, minimum=1, queue="batch")
    world.settle()
    assert len(world.nodes_of("flood")) == 3, "one node is kept"
    world.submit("urgent", gpus_each=8, priority=50)
    world.settle()
    assert world.is_running("urgent")


def test_a_daily_burst_is_expected_before_it_begins() -> None:
    """Urgent work of 16 GPUs from eight on, every day for two weeks: it has room before eight, not at six yet."""
    kept = {}
    for hour in (5, 7):
        world = world_at(nodes=8)
        world.now_s = (15 * 24 + hour) * HOUR_S + 1800
        forecast = DemandForecast()
        for at_s in range(0, world.now_s, SLOT_S):
            forecast.observe(at_s, 16 if 8 <= at_s // HOUR_S % 24 < 18 else 0)
        world.state.refresh_tables()
        events = predicted_reservations(world.state, PREDICTS, {"default": forecast}, set(), world.now_s)
        kept[hour] = sum(each.reservation.gpus for each in events if isinstance(each, ReservationChanged))
    assert kept[5] == 0
    assert kept[7] >= 8


def test_it_is_given_up_when_its_time_is_over() -> None:
    world = world_at().queue("batch")
    world.tell(*predicted(world, 8)).submit("flood", pods=4, gpus_each=8, minimum=1, queue="batch")
    world.settle()
    world.now_s += 3 * HOUR_S
    world.settle()
    assert len(world.nodes_of("flood")) == 4


def test_nothing_that_runs_is_stopped_for_it() -> None:
    world = world_at(nodes=1).queue("batch").running("busy", 6, queue="batch")
    (event,) = predicted(world, 8)  # a quarter of eight
    assert isinstance(event, ReservationChanged)
    assert event.reservation.gpus == 2
    assert not [plan for plan in world.tell(event).settle() if plan.evictions]
    full = world_at(nodes=1).queue("batch").running("busy", 8, queue="batch")
    assert predicted(full, 8) == []


def test_the_policy_bounds_the_part_that_is_kept() -> None:
    world = world_at()
    (event,) = predicted(world, 30)
    assert isinstance(event, ReservationChanged)
    assert event.reservation.gpus == 8  # a quarter of 32
    world.policy = replace(PREDICTS, predicted_permille=1000)
    (event,) = predicted(world, 30)
    assert isinstance(event, ReservationChanged)
    assert event.reservation.gpus == 30


def test_what_urgent_work_has_already_need_not_be_kept() -> None:
    world = world_at().running("urgent", 8, priority=50)
    assert predicted(world, 8) == []
    world.tell(ReservationChanged(Reservation("predicted-default", 4, owner=ReservationOwner(queue="default"))))
    assert predicted(world, 8, made=("predicted-default",)) == [ReservationGone("predicted-default")]


def test_a_reservation_of_that_name_that_a_person_made_stays() -> None:
    world = world_at().tell(ReservationChanged(Reservation("predicted-default", 4)))
    assert predicted(world, 8) == []


class Loop:
    """As much of the scheduling loop as the tracker uses."""

    def __init__(self, world: World) -> None:
        self.world, self.ready, self.events = world, True, list[Event]()
        self.policy = world.policy
        self.cluster = SimpleNamespace(now_s=lambda: world.now_s)

    async def ask(self, question: Callable[[Any], Any]) -> Any:
        return question(self.world.state)

    async def add_events(self, events: list[Event]) -> None:
        self.events += events
        self.world.tell(*events)


def test_demand_is_learned_sampled_by_sample_and_survives_a_restart(tmp_path: Path) -> None:
    world = world_at(nodes=1).running("urgent", 2, priority=50)
    loop = Loop(world)

    async def sample(tracker: DemandTracker, minutes: int) -> None:
        for _ in range(minutes):
            world.now_s += 60
            await tracker.sample()

    first = DemandTracker(loop, str(tmp_path))  # type: ignore[arg-type]
    asyncio.run(sample(first, 150))
    assert loop.events == [], "what is expected is there already"
    world.finish("urgent")
    asyncio.run(sample(first, 1))
    (event,) = loop.events
    assert isinstance(event, ReservationChanged)
    assert event.reservation.gpus == 2
    first._save()
    again = DemandTracker(loop, str(tmp_path))  # type: ignore[arg-type]
    assert again.models["MI300X"].hours_seen == first.models["MI300X"].hours_seen == 2
    assert again.queues["default"].expect(1) == 2
    assert asyncio.run(again.scale())[0].hours_seen == 2


def test_a_standby_reserves_nothing_and_without_the_policy_nobody_does(tmp_path: Path) -> None:
    async def story(policy: Policy, may_reserve: bool) -> list[Event]:
        world = world_at(nodes=1).running("urgent", 2, priority=50)
        loop = Loop(world)
        loop.policy = policy
        tracker = DemandTracker(loop, str(tmp_path / "none"))  # type: ignore[arg-type]
        tracker.may_reserve = lambda: may_reserve
        for minute in range(151):
            world.now_s += 60
            if minute == 149:
                world.finish("urgent")
            await tracker.sample()
        return loop.events

    assert asyncio.run(story(PREDICTS, may_reserve=True))
    assert not asyncio.run(story(PREDICTS, may_reserve=False))
    assert not asyncio.run(story(Policy(), may_reserve=True))
