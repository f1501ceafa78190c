"""A plan of moves makes room with few moves, and only moves what may move."""

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.defragment.plan_moves import plan_room_for_waiting
from kaiwo.model.defragmentation import MovePlan
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.simulate.defrag_run import carry_out
from tests.worlds import World


def plan_of(world: World, most_moves: int = 100) -> MovePlan:
    return plan_room_for_waiting(world.state.fork().snapshot(world.now_s), world.policy, BUILTIN, most_moves)


def share(milli: int, cpu_milli: int = 0) -> Request:
    return Request(cpu_milli, 0, 1, milli)


def two_halves(**changes: object) -> World:
    """Two GPUs, each half used: a whole one waits."""
    world = World(nodes=0, policy=Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",)))
    world.node("a", gpus=1).node("b", gpus=1).queue("default", quota_milli=2_000)
    world.submit("one", request=share(500), **changes).submit("two", request=share(500), **changes).settle()
    assert world.nodes_of("one") != world.nodes_of("two")
    world.submit("whole", gpus_each=1).settle()
    assert not world.is_running("whole")
    return world


def test_one_of_two_halves_moves_and_the_whole_one_starts() -> None:
    world = two_halves()
    plan = plan_of(world)
    (step,) = plan.steps
    (move,) = step.moves
    assert [place.workload for place in step.starts] == ["default/whole"]
    assert {move.source, move.node} == {"a", "b"}
    assert (step.starts[0].node, step.gained_milli) == (move.source, 1000)
    assert [share.gpu for share in step.starts[0].devices] == ["gpu-0"]


def test_what_may_not_be_preempted_stays() -> None:
    assert not plan_of(two_halves(preemptible=False)).steps


def test_what_a_disruption_budget_protects_stays() -> None:
    assert not plan_of(two_halves(may_go=0)).steps


def test_pods_of_a_gang_stay() -> None:
    world = World(nodes=0, policy=Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",)))
    world.node("a", gpus=1).node("b", gpus=1).submit("gang", pods=2, request=share(500)).settle()
    assert sorted(world.nodes_of("gang")) == ["a", "b"]
    world.submit("whole", gpus_each=1).settle()
    assert not plan_of(world).steps


def test_a_queue_at_its_limit_gets_no_room() -> None:
    world = two_halves()
    assert plan_of(world).steps
    assert not plan_of(world.queue("default", gpu_limit=1_500)).steps


def test_no_more_moves_than_allowed() -> None:
    assert not plan_of(two_halves(), most_moves=0).steps


@st.composite
def filled_worlds(draw: st.DrawFn) -> World:
    world = World(nodes=0, policy=Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",)))
    for number in range(draw(st.integers(2, 4))):
        world.node(f"n{number}", gpus=draw(st.integers(1, 3)), cpu_milli=draw(st.sampled_from((4_000, 16_000))))
    sizes = st.sampled_from((200, 300, 500, 700, 1000))
    for number in range(draw(st.integers(2, 14))):
        gpus = draw(st.sampled_from((0, 1, 1, 1, 2)))
        milli = draw(sizes) if gpus == 1 else 1000
        want = Request(draw(st.sampled_from((0, 1_000, 3_000))), 0, gpus, milli)
        world.submit(f"w{number}", request=want, preemptible=draw(st.integers(0, 4)) > 0)
        if draw(st.booleans()):
            world.settle()
    world.settle()
    return world


@given(filled_worlds())
def test_every_step_fits_and_moves_only_what_may_move(world: World) -> None:
    plan = plan_of(world)
    state = world.state.fork()
    for step in plan.steps:
        assert all(state.workloads[move.workload].preemptible for move in step.moves)
        assert len({move.workload for move in step.moves}) == len(step.moves)
    carry_out(state, plan, 1000, 1, world.now_s)  # raises when a node would have to give more than it has
    for step in plan.steps:
        assert all(state.pods[place.workload][place.pod].node == place.node for place in step.starts)


@given(filled_worlds())
def test_equal_worlds_give_equal_plans_and_planning_leaves_no_trace(world: World) -> None:
    before = world.state.events()
    assert plan_of(world) == plan_of(world)
    assert world.state.events() == before
