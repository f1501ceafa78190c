"""A second failure takes the new places of a recovery, too: then it waits, and says so."""

from kaiwo.model.recovery import RecoveryWay
from tests.decide.levels.fabrics import fabric, leaves_of, nodes_of
from tests.decide.recovery.failures import fail, recover, remember, restore
from tests.worlds import World


def gang_that_is_replaced(world: World) -> str:
    """Three pods in the first leaf, of which one is on its way to the last free node of that leaf; its name."""
    world.submit("gang", pods=3, gpus_each=8, required_level="leaf").settle()
    plan = fail(world, nodes_of(world, "gang")["main-0"]).decide()
    [recovery] = plan.recoveries
    assert recovery.way is RecoveryWay.REPLACE
    remember(world, plan)
    world.let_go()
    [nomination] = plan.nominations
    return nomination.node


def way(world: World) -> RecoveryWay:
    return world.state.failures.recoveries["default/gang"].way


def test_a_recovery_whose_new_place_fails_before_it_starts_there_waits() -> None:
    world = fabric(4)
    last = gang_that_is_replaced(world)
    fail(world, last)
    recover(world)
    assert len(nodes_of(world, "gang")) == 2
    assert way(world) is RecoveryWay.WAIT
    assert world.decide().recoveries == (), "it is told once"
    restore(world, last)
    recover(world)
    assert len(nodes_of(world, "gang")) == 3
    assert not world.state.failures.recoveries


def test_it_is_no_wait_where_another_node_has_room_in_the_same_cycle() -> None:
    world = fabric(5)
    last = gang_that_is_replaced(world)
    fail(world, last)
    plan = world.decide()
    assert [start.node for start in plan.starts] == ["l0-n4"] or plan.nominations
    assert plan.recoveries == ()


def test_it_is_no_wait_where_all_of_it_can_move() -> None:
    world = fabric(4, 4)
    last = gang_that_is_replaced(world)
    plans = recover(fail(world, last))
    assert [each.way for plan in plans for each in plan.recoveries] == [RecoveryWay.MOVE]
    assert leaves_of(world, "gang") == {"l1"}


def test_a_gang_without_levels_waits_as_well() -> None:
    world = fabric(4)
    world.submit("gang", pods=3, gpus_each=8).settle()
    plan = fail(world, nodes_of(world, "gang")["main-0"]).decide()
    world.let_go()
    fail(world, plan.nominations[0].node)
    recover(world)
    assert way(world) is RecoveryWay.WAIT
