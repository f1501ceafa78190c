"""Elastic work that grows while others are owed what it has."""

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
