"""A queue or a workload says how nodes and devices are chosen; other queues and the policy keep their own way."""

import pytest

from kaiwo.model.policy import STRATEGY_PLACEMENTS, Policy
from tests.worlds import World


def world_of(**strategies: str) -> World:
    world = World(nodes=4)
    for queue, strategy in strategies.items():
        world.queue(queue, strategy=strategy)
    return world


def test_one_queue_spreads_while_the_others_pack() -> None:
    world = world_of(web="worst-fit", batch="")
    world.submit("spread", pods=4, gpus_each=1, queue="web")
    world.settle()
    world.submit("packed", pods=4, gpus_each=1, queue="batch")
    world.settle()
    assert len(set(world.nodes_of("spread"))) == 4
    assert len(set(world.nodes_of("packed"))) == 1


def test_one_queue_packs_while_the_policy_spreads() -> None:
    world = World(nodes=4, policy=Policy(placement="spread")).queue("batch", strategy="best-fit")
    world.submit("spread", pods=4, gpus_each=1)
    world.settle()
    world.submit("packed", pods=4, gpus_each=1, queue="batch")
    world.settle()
    assert len(set(world.nodes_of("packed"))) == 1
    assert len(set(world.nodes_of("spread"))) == 4


def test_the_strategy_of_a_queue_holds_below_it_until_one_there_says_otherwise() -> None:
    world = World(nodes=4).queue("all", strategy="worst-fit")
    world.queue("web", parent="all").queue("batch", parent="all", strategy="best-fit")
    world.submit("web", pods=4, gpus_each=1, queue="web")
    world.settle()
    world.submit("batch", pods=4, gpus_each=1, queue="batch")
    world.settle()
    assert len(set(world.nodes_of("web"))) == 4
    assert len(set(world.nodes_of("batch"))) == 1


def test_it_chooses_the_devices_too() -> None:
    """Shares of half a GPU: packed they share a device, balanced each has its own."""
    for strategy, devices in (("best-fit", 1), ("load-balanced", 2)):
        world = World(nodes=1).queue("web", strategy=strategy)
        world.submit("half", pods=2, fraction_milli=500, queue="web")
        world.settle()
        assert len(set(world.devices_of("half"))) == devices, strategy


def test_a_workload_chooses_for_itself_whatever_its_queue_says() -> None:
    world = world_of(web="worst-fit", batch="best-fit")
    world.submit("spread", pods=4, gpus_each=1, queue="batch", strategy="load-balanced").settle()
    world.submit("packed", pods=4, gpus_each=1, queue="web", strategy="best-fit").settle()
    assert len(set(world.nodes_of("spread"))) == 4
    assert len(set(world.nodes_of("packed"))) == 1


def test_a_workload_chooses_its_devices_too() -> None:
    for strategy, devices in (("best-fit", 1), ("load-balanced", 2)):
        world = World(nodes=1).submit("half", pods=2, fraction_milli=500, strategy=strategy)
        world.settle()
        assert len(set(world.devices_of("half"))) == devices, strategy


def test_a_changed_strategy_counts_for_what_waits() -> None:
    world = World(nodes=2, gpus_per_node=2, policy=Policy(promises=0)).queue("web").running("old", 4, queue="web")
    world.submit("next", pods=2, gpus_each=1, queue="web")
    world.settle()
    world.queue("web", strategy="worst-fit").finish("old")
    world.settle()
    assert len(set(world.nodes_of("next"))) == 2


@pytest.mark.parametrize("strategy", STRATEGY_PLACEMENTS)
def test_every_strategy_keeps_what_is_promised(strategy: str) -> None:
    world = world_of(web=strategy)
    for number in range(20):
        world.submit(f"job-{number}", pods=number % 3 + 1, fraction_milli=300 + number * 20, queue="web")
        world.submit(f"whole-{number}", gpus_each=number % 4 + 1, queue="web")
    world.settle()
    assert world.is_within_capacity()
    assert len(world.state.pods) > 10
    assert all(world.why(name.partition("/")[2]) for name in world.state.backlog.queued_names())
