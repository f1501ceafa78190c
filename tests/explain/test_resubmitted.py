"""What is proposed to somebody who has a plan: after cancel and submit it is gone, and others were asked first."""

from msgspec.structs import replace

from kaiwo.explain import why
from kaiwo.explain.cheapest_change import cheapest_change
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange, RoleSize, events_of
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.events import ReservationChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.obstacle import WhyVerdict
from kaiwo.model.reservation import Reservation, ReservationOwner
from tests.worlds import World

MINE = "default/mine"


def proposed(world: World) -> PossibleChange:
    found = cheapest_change(WhatIf(world.state, MINE, world.policy, world.now_s))
    assert found.change is not None, found.verdict
    return found.change


def submit_again(world: World, change: PossibleChange) -> None:
    (changed,) = events_of(world.state, world.state.workloads[MINE], change)
    assert isinstance(changed, WorkloadChanged)
    world.tell(WorkloadGone(MINE)).decide()
    world.tell(WorkloadChanged(replace(changed.workload, submitted_s=world.now_s))).decide()


def wait_a_second(world: World) -> World:
    world.settle()
    world.now_s += 1
    world.settle()
    return world


def test_what_others_take_when_the_plan_is_gone_is_not_proposed() -> None:
    world = World().submit("long", gpus_each=7, estimate_s=600)
    world.settle()
    world.submit("mine", gpus_each=8, estimate_s=600)
    world.settle()
    world.submit("other", gpus_each=1, estimate_s=3_600)
    wait_a_second(world)
    assert not world.is_running("other")  # the plan keeps it out
    change = cheapest_change(WhatIf(world.state, MINE, world.policy, world.now_s)).change
    assert change is None or change.kind is ChangeKind.STOP
    submit_again(world, PossibleChange(ChangeKind.SMALLER_SIZE, "researcher", RoleSize("main", "gpus"), 1))
    assert not world.is_running("mine")  # so it is


def test_another_queue_helps_one_who_has_a_plan_in_this_one() -> None:
    world = World(nodes=2).queue("default", namespaces=("default",)).queue("lab", gpu_limit=8_000)
    world.submit("first", gpus_each=8, queue="lab", estimate_s=600)
    world.settle()
    world.submit("mine", gpus_each=4, queue="lab", estimate_s=600)
    wait_a_second(world)
    assert MINE in world.state.planned_starts
    change = proposed(world)
    assert (change.kind, change.subject) == (ChangeKind.OTHER_QUEUE, "default")
    submit_again(world, change)
    assert world.is_running("mine")


def test_another_queue_helps_when_gpus_are_reserved_for_it() -> None:
    world = World().queue("lab", namespaces=("default",))
    world.tell(ReservationChanged(Reservation("night", gpus=8, owner=ReservationOwner(queue="lab"))))
    world.settle()
    world.submit("mine", gpus_each=4)
    wait_a_second(world)
    change = proposed(world)
    assert (change.kind, change.subject) == (ChangeKind.OTHER_QUEUE, "lab")
    submit_again(world, change)
    assert world.is_running("mine")


def test_work_whose_back_off_is_over_is_answered_like_any_other() -> None:
    world = World(nodes=2).queue("lab").running("first", gpus=8).running("second", gpus=8)
    world.now_s = 100
    world.submit("mine", pods=2, gpus_each=8, not_before_s=90, not_before_why="exit code 1")
    wait_a_second(world)
    answer = why(world.state, MINE, world.policy, world.now_s)
    assert answer.change is None
    assert answer.verdict is WhyVerdict.NOTHING_HELPS


def test_who_asks_for_less_after_a_back_off_comes_without_it() -> None:
    world = World().running("first", gpus=6)
    world.now_s = 100
    world.submit("mine", gpus_each=4, not_before_s=90, estimate_s=600)
    wait_a_second(world)
    change = proposed(world)
    assert (change.kind, change.value) == (ChangeKind.SMALLER_SIZE, 2)
