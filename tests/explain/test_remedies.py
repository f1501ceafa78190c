"""A remedy that is told can help: nobody is told to wait for what is not there."""

import pytest

from kaiwo.explain import obstacles_of, remedy, sentence
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.queue import Fairness, ReclaimStrategy
from tests.worlds import World


def told(world: World, name: str) -> list[Obstacle]:
    world.settle()
    return list(obstacles_of(world.state, f"default/{name}", world.policy, world.now_s))


def test_a_request_beyond_the_limit_of_an_idle_queue_is_not_told_to_wait() -> None:
    world = World(nodes=1).queue("lab", gpu_limit=2000)
    (limit,) = told(world.submit("large", gpus_each=4, queue="lab"), "large")
    assert remedy(limit) == "raise the limit by 2 GPUs; waiting does not help"


def test_a_request_within_the_limit_of_a_busy_queue_may_wait() -> None:
    world = World(nodes=1).queue("lab", gpu_limit=4000).running("old", gpus=2, queue="lab")
    (limit,) = told(world.submit("new", gpus_each=4, queue="lab"), "new")
    assert remedy(limit) == "raise the limit by 2 GPUs, or wait for work in the queue to end"


def test_shares_on_several_devices_are_counted_on_each_of_them() -> None:
    world = World(nodes=1).running("old", gpus=5)  # three GPUs are wholly free
    (short,) = told(world.submit("shares", gpus_each=6, fraction_milli=700), "shares")
    assert sentence(short) == (
        "it needs 0.7 GPU free on each of 6 devices of one node, but no node has any free on each of that many"
    )


@pytest.mark.parametrize("strategy", [ReclaimStrategy.NONE, ReclaimStrategy.CONSERVATIVE])
@pytest.mark.parametrize("is_busy", [False, True])
def test_what_a_queue_may_take_is_told_only_where_others_have_something(
    strategy: ReclaimStrategy, is_busy: bool
) -> None:
    world = World(nodes=1).queue("lab", fairness=Fairness(reclaim_strategy=strategy)).queue("other")
    if is_busy:
        world.running("old", gpus=8, queue="other")
    world.node("node-0", cordoned=True)
    reasons = [each.reason for each in told(world.submit("new", gpus_each=1, queue="lab"), "new")]
    assert Reason.NODE_CORDONED in reasons
    assert (Reason.OVER_FAIR_SHARE in reasons) == is_busy
