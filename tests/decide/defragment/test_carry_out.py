"""A defragmentation run stops a pod only for a place that is kept for it, within its limits."""

from kaiwo.model.defragmentation import Move, MoveState, MoveStep, RunState, SkipReason
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from tests.decide.defragment.runs import (
    abort,
    begin,
    carry_on,
    moved_by,
    plan_for_waiting,
    progress,
    run_of,
    states,
)
from tests.worlds import World

SPREAD = Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",))


def half() -> Request:
    return Request(0, 0, 1, 500)


def halves(pairs: int = 1, policy: Policy = SPREAD) -> World:
    """Pairs of GPUs, each half used: for each pair, a whole one waits."""
    world = World(nodes=0, policy=policy)
    world.now_s = 1
    for number in range(2 * pairs):
        world.node(f"n{number}", gpus=1).submit(f"half-{number}", request=half())
    world.settle()
    for number in range(pairs):
        world.submit(f"whole-{number}", gpus_each=1)
    world.settle()
    assert not any(world.is_running(f"whole-{number}") for number in range(pairs))
    return world


def test_the_pod_moves_and_the_waiting_one_starts() -> None:
    world = halves()
    plan = plan_for_waiting(world)
    begin(world, plan.steps)
    plans = carry_on(world)
    (move,) = plan.steps[0].moves
    assert world.nodes_of(move.workload) == [move.node]
    assert world.nodes_of("whole-0") == [move.source]
    assert sum(len(moved_by(each)) for each in plans) == 1
    assert run_of(world).state is RunState.DONE
    assert states(world) == [MoveState.MOVED]
    assert not world.state.nominations


def test_nothing_moves_before_a_run_is_asked_for() -> None:
    world = halves()
    assert not world.decide().evictions


def test_no_more_moves_at_once_than_the_policy_allows() -> None:
    world = halves(
        pairs=4, policy=Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",), moves_at_once=2)
    )
    begin(world, plan_for_waiting(world).steps)
    plans = carry_on(world)
    assert max(len(moved_by(each)) for each in plans) == 2
    assert sum(len(moved_by(each)) for each in plans) == 4
    assert all(world.is_running(f"whole-{number}") for number in range(4))


def test_no_more_moves_within_an_hour_than_the_policy_allows() -> None:
    policy = Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",), moves_per_hour=1)
    world = halves(pairs=2, policy=policy)
    begin(world, plan_for_waiting(world).steps)
    first = world.decide()
    assert len(moved_by(first)) == 1
    world.let_go()
    world.now_s += 10
    for _ in range(5):
        assert not moved_by(world.decide())
    assert world.state.look_again_s == 3601
    world.now_s = 3601
    assert len(moved_by(world.decide())) == 1


def test_moves_begin_only_within_the_hours() -> None:
    policy = Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",), move_hours=("22:00-06:00",))
    world = halves(policy=policy)
    world.now_s = 8 * 3600
    begin(world, plan_for_waiting(world).steps)
    assert not moved_by(world.decide())
    assert world.state.look_again_s == 22 * 3600
    world.now_s = 22 * 3600
    assert len(moved_by(world.decide())) == 1


def test_a_run_that_is_aborted_ends_what_it_has_begun_and_begins_nothing_else() -> None:
    policy = Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",), moves_at_once=1)
    world = halves(pairs=3, policy=policy)
    begin(world, plan_for_waiting(world).steps)
    assert len(moved_by(world.decide())) == 1
    abort(world)
    plans = carry_on(world)
    assert not any(moved_by(each) for each in plans)
    assert run_of(world).state is RunState.ABORTED
    assert states(world) == [MoveState.MOVED, MoveState.KEPT, MoveState.KEPT]
    assert [each.reason for each in progress(world)] == ["", SkipReason.ABORTED, SkipReason.ABORTED]
    assert not world.state.nominations
    assert sum(world.is_running(f"whole-{number}") for number in range(3)) == 1


def test_no_pod_moves_for_work_that_has_gone() -> None:
    world = halves()
    begin(world, plan_for_waiting(world).steps)
    world.finish("whole-0")
    plans = carry_on(world)
    assert not any(moved_by(each) for each in plans)
    assert [each.reason for each in progress(world)] == [SkipReason.NOT_NEEDED]


def test_no_pod_moves_for_work_that_starts_without_it() -> None:
    world = halves()
    begin(world, plan_for_waiting(world).steps)
    world.node("new", gpus=1)
    plans = carry_on(world)
    assert not any(moved_by(each) for each in plans)
    assert world.nodes_of("whole-0") == ["new"]


def test_a_step_whose_places_are_taken_is_left_out() -> None:
    world = halves()
    steps = plan_for_waiting(world).steps
    world.submit("late", request=half()).settle()
    begin(world, steps)
    plans = carry_on(world)
    assert not any(moved_by(each) for each in plans)
    assert [each.reason for each in progress(world)] == [SkipReason.NO_ROOM]


def test_a_pod_that_is_protected_by_now_stays() -> None:
    world = halves()
    steps = plan_for_waiting(world).steps
    world.submit("half-0", request=half(), may_go=0).submit("half-1", request=half(), may_go=0)
    begin(world, steps)
    carry_on(world)
    assert [each.reason for each in progress(world)] == [SkipReason.PROTECTED]


def test_work_that_ended_meanwhile_need_not_move() -> None:
    world = halves()
    plan = plan_for_waiting(world)
    world.finish(plan.steps[0].moves[0].workload)
    begin(world, plan.steps)
    carry_on(world)
    assert states(world) == [MoveState.ENDED]
    assert world.is_running("whole-0")


def owned(world: World, name: str, **changes: object) -> World:
    """A pod that a ReplicaSet made: the next one will be another workload."""
    return world.submit(name, request=half(), made_by="replica-set-1", **changes)


def test_the_place_goes_to_the_pod_that_the_controller_makes_next() -> None:
    world = World(nodes=0, policy=SPREAD)
    world.now_s = 1
    for number in range(2):
        owned(world.node(f"n{number}", gpus=1), f"pod-{number}")
    world.settle()
    world.submit("whole", gpus_each=1).settle()
    plan = plan_for_waiting(world)
    (move,) = plan.steps[0].moves
    world.now_s = 100
    begin(world, plan.steps)
    assert moved_by(world.decide()) == [f"{move.workload}/main-0"]
    world.submit("thief", request=half())  # would take the place that is kept
    assert not world.is_running("thief")
    world.decide()
    world.let_go().finish(move.workload.removeprefix("default/"))
    world.decide()
    assert not world.is_running("thief")
    owned(world, "pod-9", submitted_s=101)
    world.settle()
    carry_on(world)
    assert world.nodes_of("pod-9") == [move.node]
    assert states(world) == [MoveState.MOVED]
    assert world.nodes_of("whole") == [move.source]


def test_a_place_is_not_kept_forever_for_a_pod_that_nobody_makes() -> None:
    world = World(nodes=0, policy=SPREAD)
    world.now_s = 1
    for number in range(2):
        owned(world.node(f"n{number}", gpus=1), f"pod-{number}")
    world.settle()
    world.submit("whole", gpus_each=1).settle()
    plan = plan_for_waiting(world)
    world.now_s = 100
    begin(world, plan.steps)
    world.decide()
    world.let_go().finish(plan.steps[0].moves[0].workload.removeprefix("default/"))
    for _ in range(40):
        world.decide()
        world.now_s = world.state.look_again_s or world.now_s + 1
    assert states(world) == [MoveState.ENDED]
    assert run_of(world).state is RunState.DONE


def test_work_that_nothing_starts_again_stays() -> None:
    world = halves()
    world.submit("half-0", request=half(), is_replaced=False).submit("half-1", request=half(), is_replaced=False)
    assert not plan_for_waiting(world).steps


def test_the_place_is_kept_in_the_plan_that_stops_the_pod() -> None:
    world = halves()
    plan = plan_for_waiting(world)
    (move,) = plan.steps[0].moves
    begin(world, plan.steps)
    found = world.decide()
    kept = {(each.workload, each.node) for each in found.nominations}
    assert kept == {(move.workload, move.node), ("default/whole-0", move.source)}


def by_hand(*moves: tuple[str, str, str, str]) -> MoveStep:
    """Pods of one GPU each: workload, pod, where from, where to."""
    size = GPU_MODELS["MI300X"].memory_mib
    return MoveStep(
        "1",
        tuple(
            Move(f"default/{name}", pod, source, node, (Share(f"gpu-{number}", 1000, size),))
            for number, (name, pod, source, node) in enumerate(moves)
        ),
    )


def test_the_moves_of_one_step_begin_no_faster_than_the_policy_allows() -> None:
    world = World(nodes=0, policy=Policy(moves_at_once=1)).node("a", gpus=2)
    world.now_s = 1
    world.submit("one", gpus_each=1).submit("two", gpus_each=1).settle()
    world.node("b", gpus=2)
    begin(world, (by_hand(("one", "main-0", "a", "b"), ("two", "main-0", "a", "b")),))
    plans = carry_on(world)
    assert [len(moved_by(each)) for each in plans if moved_by(each)] == [1, 1]
    assert world.nodes_of("one") == world.nodes_of("two") == ["b"]


def test_no_member_leaves_the_domain_that_its_gang_requires() -> None:
    world = (
        World(nodes=0, policy=Policy())
        .node("a", gpus=1, labels={"rack": "r1"})
        .node("b", gpus=1, labels={"rack": "r1"})
    )
    world.now_s = 1
    world.submit("gang", pods=2, gpus_each=1, required_level="rack").settle()
    assert world.nodes_of("gang") == ["a", "b"]
    pod = next(pod for pod in world.state.pods["default/gang"].values() if pod.node == "a")
    for node, rack, moved in (("far", "r2", 0), ("near", "r1", 1)):
        world.node(node, gpus=1, labels={"rack": rack})
        begin(world, (by_hand(("gang", pod.name, "a", node)),), name=f"to-{node}")
        assert sum(len(moved_by(each)) for each in carry_on(world)) == moved
    assert world.nodes_of("gang") == ["b", "near"]
