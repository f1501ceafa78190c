"""What was recovered is counted once, by cause and way, and work that ended meanwhile is not forgotten."""

from kaiwo.decide import decide
from kaiwo.model.plan import Plan
from kaiwo.model.recovery import FailureKind, Recovery, RecoveryWay
from kaiwo.runtime.loop.recovery_history import RecoveryHistory
from tests.decide.levels.fabrics import fabric, nodes_of
from tests.decide.recovery.failures import fail, remember
from tests.worlds import World


def run_cycles(world: World, history: RecoveryHistory, cycles: int = 6) -> None:
    for _ in range(cycles):
        plan = decided(world, history)
        remember(world, plan)
        world.let_go()
        world.now_s += 2


def decided(world: World, history: RecoveryHistory) -> Plan:
    plan = decide(world.snapshot(), world.policy)
    history.count_plan(world.state, plan, world.now_s)
    world.after(plan)
    return plan


def test_a_recovery_is_in_the_history_with_its_time() -> None:
    world, history = fabric(4, 4), RecoveryHistory()
    world.submit("gang", pods=3, gpus_each=8, required_level="leaf").settle()
    world.now_s = 100
    fail(world, nodes_of(world, "gang")["main-0"])
    run_cycles(world, history)
    [past] = history.past
    assert (past.recovery.workload, past.recovery.way, past.is_whole) == ("default/gang", RecoveryWay.REPLACE, True)
    assert (past.recovery.since_s, past.took_s) == (100, 4)
    assert (history.lost, history.moved) == (1, 0)
    [(key, buckets, total_s)] = list(history.durations)
    assert (key.cause, key.way, total_s) == ("node", "replace", 4.0)
    assert dict(buckets)["2.5"] == 0
    assert dict(buckets)["5.0"] == dict(buckets)["+Inf"] == 1


def test_work_that_ends_before_it_is_whole_counts_as_ended() -> None:
    world, history = fabric(2), RecoveryHistory()
    world.submit("gang", pods=2, gpus_each=8, required_level="leaf").settle()
    fail(world, nodes_of(world, "gang")["main-0"])
    run_cycles(world, history, 2)
    world.finish("gang")
    decided(world, history)
    [past] = history.past
    assert not past.is_whole
    assert list(history.durations) == []


def test_recoveries_from_before_a_start_end_in_the_history_of_the_new_process() -> None:
    world = fabric(2)
    world.submit("gang", pods=2, gpus_each=8, required_level="leaf").settle()
    fail(world, nodes_of(world, "gang")["main-0"])
    run_cycles(world, RecoveryHistory(), 2)
    after_start = RecoveryHistory()
    decided(world, after_start)
    world.finish("gang")
    decided(world, after_start)
    [past] = after_start.past
    assert (past.recovery.workload, past.is_whole) == ("default/gang", False)


def test_moved_pods_are_counted_apart() -> None:
    world, history = fabric(2, 2), RecoveryHistory()
    world.submit("gang", pods=2, gpus_each=8, required_level="leaf").settle()
    fail(world, nodes_of(world, "gang")["main-0"])
    run_cycles(world, history)
    assert (history.lost, history.moved) == (1, 1)
    assert [past.recovery.way for past in history.past] == [RecoveryWay.MOVE]


def test_a_pod_that_was_lost_and_then_moved_counts_as_both() -> None:
    """Its new node works when a second one of the leaf fails, and the whole gang goes to the other leaf."""
    world, history = fabric(4, 4), RecoveryHistory()
    world.submit("gang", pods=3, gpus_each=8, required_level="leaf").settle()
    world.now_s = 100
    fail(world, nodes_of(world, "gang")["main-0"])
    run_cycles(world, history, 2)
    fail(world, nodes_of(world, "gang")["main-1"])
    run_cycles(world, history)
    assert (history.lost, history.moved) == (2, 2)


def test_only_the_last_recoveries_are_kept() -> None:
    world, history = fabric(1), RecoveryHistory()
    for number in range(600):
        recovery = Recovery(f"default/w{number}", 1, FailureKind.NODE, ("node n",), RecoveryWay.REPLACE, ("main-0",), 1)
        history.count_plan(world.state, Plan(recoveries=(recovery,), recovered=(recovery.workload,)), 2)
    assert len(history.past) == 500
    assert history.past[-1].recovery.workload == "default/w599"
