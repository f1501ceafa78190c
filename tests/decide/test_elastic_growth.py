"""Elastic work grows once all other work has what it needs to start, and not while others are owed what it uses."""

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
    assert len(world.state.pods["default/elastic"]) == 1


def test_two_elastic_gangs_get_their_minimum_before_either_grows() -> None:
    world = World(gpus_per_node=3)
    world.submit("first", pods=3, gpus_each=1, minimum=1).submit("second", pods=3, gpus_each=1, minimum=1)
    world.settle()
    sizes = [len(world.state.pods[f"default/{name}"]) for name in ("first", "second")]
    assert sum(sizes) == 3
    assert min(sizes) == 1


def test_growth_of_more_important_work_goes_first() -> None:
    world = World(gpus_per_node=2).submit("other", gpus_each=1)
    world.submit("elastic", pods=2, gpus_each=1, minimum=1, priority=10)
    world.settle()
    world.submit("young", gpus_each=1)
    world.finish("other").settle()
    assert len(world.state.pods["default/elastic"]) == 2
    assert not world.is_running("young")


def test_who_begins_grows_in_the_same_cycle_once_others_had_a_turn() -> None:
    world = World(gpus_per_node=4).submit("elastic", pods=4, gpus_each=1, minimum=1).submit("small", gpus_each=1)
    world.submit("huge", gpus_each=8)  # never fits, and is in nobody's way
    assert len(world.decide().starts) == 4
    assert world.is_running("small")


def test_growth_goes_to_the_poorest_queue_a_pod_at_a_time() -> None:
    world = World(gpus_per_node=6).queue("red").queue("blue")
    for queue in ("red", "blue"):
        world.submit(queue, pods=6, gpus_each=1, minimum=1, queue=queue)
    assert len(world.decide().starts) == 6
    assert [len(world.state.pods[f"default/{queue}"]) for queue in ("red", "blue")] == [3, 3]


def test_growth_stays_within_the_limit_of_its_queue() -> None:
    world = World().queue("red", gpu_limit=3_000).queue("blue", gpu_limit=2_000)
    for queue in ("red", "blue"):
        world.submit(queue, pods=6, gpus_each=1, minimum=1, queue=queue)
    world.settle()
    assert [len(world.state.pods[f"default/{queue}"]) for queue in ("red", "blue")] == [3, 2]
