"""Elastic work that grows: after everybody has what they need to start, and not while others are owed what it has."""

from tests.worlds import World


def test_nobody_grows_and_loses_what_it_needs_in_the_same_plan() -> None:
    world = World(gpus_per_node=8).queue("a").queue("b", quota_milli=6_000)
    world.submit("short", pods=2, gpus_each=1, queue="b", submitted_s=0).settle()
    world.submit("elastic", pods=8, gpus_each=1, minimum=4, queue="a", submitted_s=1).settle()
    world.finish("short").submit("owed", pods=6, gpus_each=1, queue="b", submitted_s=2)
    while plan := world.decide():
        if any(start.workload == "default/elastic" for start in plan.starts):
            assert sum(eviction.workload == "default/elastic" for eviction in plan.evictions) <= 2  # what it can spare
        world.let_go()
        if not plan.starts and not plan.evictions:
            break
        world.now_s += 1
    assert len(world.nodes_of("owed")) == 6


def test_who_has_not_started_goes_before_growth() -> None:
    world = World(gpus_per_node=2).submit("other", gpus_each=1).submit("elastic", pods=2, gpus_each=1, minimum=1)
    world.settle()
    world.submit("young", gpus_each=1)
    world.finish("other").settle()
    assert world.is_running("young")
    assert len(world.picture.pods["default/elastic"]) == 1


def test_two_elastic_gangs_get_their_minimum_before_either_grows() -> None:
    world = World(gpus_per_node=3)
    world.submit("first", pods=3, gpus_each=1, minimum=1).submit("second", pods=3, gpus_each=1, minimum=1)
    world.settle()
    sizes = [len(world.picture.pods[f"default/{name}"]) for name in ("first", "second")]
    assert sum(sizes) == 3
    assert min(sizes) == 1


def test_growth_of_more_important_work_goes_first() -> None:
    world = World(gpus_per_node=2).submit("other", gpus_each=1)
    world.submit("elastic", pods=2, gpus_each=1, minimum=1, priority=10)
    world.settle()
    world.submit("young", gpus_each=1)
    world.finish("other").settle()
    assert len(world.picture.pods["default/elastic"]) == 2
    assert not world.is_running("young")


def test_who_is_alone_starts_whole_in_one_cycle() -> None:
    world = World().submit("elastic", pods=5, gpus_each=1, minimum=1)
    assert len(world.decide().starts) == 5
