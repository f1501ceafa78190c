"""Room for one workload: the smallest set of pods that must move, as an exhaustive search finds it in small worlds."""

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.defragment.plan_for_goal import plan_for_goal, planning_room
from kaiwo.decide.defragment.smallest_room import SmallestRoom
from kaiwo.model.defragmentation import DefragmentationGoal, GoalKind, KeptReason, MovePlan
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import role_of
from tests.conftest import SIZE
from tests.decide.defragment.runs import begin, carry_on, moved_by
from tests.worlds import World

ONLY_ALLOCATE = Policy(gpu_strategy="worst-fit", placement="spread", actions=("allocate",))


def room_for(world: World, name: str, most_moves: int = 0) -> MovePlan:
    goal = DefragmentationGoal(GoalKind.WORKLOAD, f"default/{name}", most_moves=most_moves)
    return plan_for_goal(world.state.fork().snapshot(world.now_s), world.policy, BUILTIN, goal)


def small(number: int, gpus: int = 1) -> str:
    return f"s{number}-{gpus}"


@st.composite
def tight_worlds(draw: st.DrawFn) -> World:
    """A few nodes of two to four GPUs with work of one to three, and one workload that waits."""
    world = World(nodes=0, policy=ONLY_ALLOCATE)
    world.now_s = 100
    world.queue("default", quota_milli=100_000)
    for number in range(draw(st.integers(2, 4))):
        world.node(f"n{number}", gpus=draw(st.integers(2, 4)))
    for number in range(draw(st.integers(1, 6))):
        world.submit(f"w{number}", gpus_each=draw(st.integers(1, 3)), preemptible=draw(st.integers(0, 5)) > 0)
        world.settle()
    world.submit("late", gpus_each=draw(st.integers(2, 4))).settle()
    return world


def exhaustive(world: World) -> int | None:
    """The fewest moves, by trying all sets and all places; of whole GPUs, only their number on each node matters."""
    state = world.state
    free = {name: len(node.gpus) for name, node in state.node_objects.items()}
    running = [pod for pods in state.pods.values() for pod in pods.values()]
    for pod in running:
        free[pod.node] -= len(pod.devices)
    want = role_of(state.workloads["default/late"], "main-0").request.gpus
    may_move = [pod for pod in running if state.workloads[pod.workload].preemptible]
    names = sorted(free)
    for size in range(len(may_move) + 1):
        for chosen in combinations(may_move, size):
            for places in product(names, repeat=size + 1):
                left = dict(free)
                for pod in chosen:
                    left[pod.node] += len(pod.devices)
                for node, gpus in zip(places, [want, *(len(pod.devices) for pod in chosen)], strict=True):
                    left[node] -= gpus
                if min(left.values()) >= 0:
                    return size
    return None


@given(tight_worlds())
@settings(max_examples=120 * SIZE, deadline=None)
def test_no_exhaustive_search_finds_fewer_moves(world: World) -> None:
    if world.is_running("late"):
        return
    plan, fewest = room_for(world, "late"), exhaustive(world)
    assert (plan.moves if plan.steps else None) == fewest
    if plan.steps:
        assert plan.is_smallest
        begin(world, plan.steps)
        plans = carry_on(world)
        assert sum(len(moved_by(each)) for each in plans) == fewest
        assert world.is_running("late")


def test_nothing_is_tried_where_all_free_amounts_together_are_too_little() -> None:
    """Sixteen nodes, full but for one GPU: three thousand sets of pods were tried, for minutes."""
    world = World(nodes=16, gpus_per_node=8, policy=ONLY_ALLOCATE)
    world.now_s = 10
    for number in range(127):
        world.submit(f"w{number}", gpus_each=1)
    world.settle()
    world.submit("late", gpus_each=2).settle()
    assert tried(world, "late") == 0
    assert room_for(world, "late").is_too_little_free
    world.submit("little", gpus_each=1).settle()
    assert world.is_running("little")


def test_a_pod_that_asks_for_less_on_another_device_frees_the_difference() -> None:
    """40 GiB are nearly all of an L40S, and a fifth of an MI300X. Free are 0.87 GPUs, and one is made room for."""
    world = World(nodes=0, policy=ONLY_ALLOCATE).node("a", gpus=1, model="L40S").node("b", gpus=1)
    world.now_s = 10
    world.submit("on-b", fraction_milli=300, models=("MI300X",)).submit("on-a", memory_mib=40 << 10).settle()
    assert (world.nodes_of("on-a"), world.nodes_of("on-b")) == (["a"], ["b"])
    world.submit("late", gpus_each=1).settle()
    assert room_for(world, "late").moves == 1


def tried(world: World, name: str) -> int:
    """Sets of pods for which places were looked for."""
    state = world.state.fork()
    search = SmallestRoom(
        *planning_room(state.snapshot(world.now_s), world.policy, BUILTIN), state.workloads[f"default/{name}"]
    )
    search.find()
    return search.tries


def test_the_work_that_loses_least_moves() -> None:
    world = World(nodes=0, policy=ONLY_ALLOCATE).node("a", gpus=2).node("b", gpus=2)
    world.now_s = 10
    world.submit("old", gpus_each=1).settle()
    world.now_s = 5_000
    world.submit("young", gpus_each=1).settle()
    assert world.nodes_of("old") != world.nodes_of("young")
    world.now_s = 6_000
    world.submit("late", gpus_each=2).settle()
    plan = room_for(world, "late")
    assert [move.workload for move in plan.steps[0].moves] == ["default/young"]
    assert plan.lost_gpu_s == 1_000


def test_a_member_of_a_gang_moves_and_only_it_stops() -> None:
    world = World(nodes=0, policy=ONLY_ALLOCATE).node("a", gpus=2).node("b", gpus=2)
    world.now_s = 10
    world.submit("gang", pods=2, gpus_each=1).settle()
    assert world.nodes_of("gang") == ["a", "b"]
    world.submit("late", gpus_each=2).settle()
    plan = room_for(world, "late")
    assert plan.moves == 1
    begin(world, plan.steps)
    assert sum(len(moved_by(each)) for each in carry_on(world)) == 1
    assert len(set(world.nodes_of("gang"))) == 1
    assert world.is_running("late")


def test_a_gang_gets_room_as_a_whole() -> None:
    world = World(nodes=0, policy=ONLY_ALLOCATE)
    world.now_s = 10
    for name in ("a", "b", "c", "d"):
        world.node(name, gpus=2).submit(f"one-{name}", gpus_each=1)
    world.settle()
    world.submit("late", pods=2, gpus_each=2).settle()
    refused = room_for(world, "late", most_moves=1)
    assert (refused.steps, refused.too_many, refused.is_too_little_free) == ((), 2, False)
    plan = room_for(world, "late")
    assert plan.moves == 2
    begin(world, plan.steps)
    carry_on(world)
    assert len(world.nodes_of("late")) == 2


def test_pods_with_rules_about_neighbours_move_where_the_rules_hold() -> None:
    world = World(nodes=0, policy=ONLY_ALLOCATE).node("a", gpus=2).node("b", gpus=2).node("c", gpus=1)
    world.now_s = 10
    licence = Request(gpus=1, extended=(("example.com/nic", 1),))
    world.node("a", gpus=2, extended={"example.com/nic": 1}).submit("bound", request=licence).settle()
    world.submit("other", gpus_each=1).settle()
    world.submit("third", gpus_each=2).settle()
    world.submit("late", gpus_each=2).settle()
    plan = room_for(world, "late")
    assert all(move.workload != "default/bound" for step in plan.steps for move in step.moves)


def test_the_plan_says_what_is_not_moved_and_why() -> None:
    world = World(nodes=0, policy=ONLY_ALLOCATE).node("a", gpus=2).node("b", gpus=2)
    world.now_s = 10
    world.queue("default", quota_milli=4_000)
    world.submit("fixed", gpus_each=1, preemptible=False).submit("kept", gpus_each=1, may_go=0).settle()
    world.submit("late", gpus_each=2).settle()
    plan = room_for(world, "late")
    assert not plan.steps
    reasons = {each.workload: each.reason for each in plan.kept}
    assert reasons == {
        "default/fixed": KeptReason.NOT_PREEMPTIBLE,
        "default/kept": KeptReason.DISRUPTION_BUDGET,
    }


def tries_for(world: World, name: str) -> int:
    room, movable = planning_room(world.state.fork().snapshot(world.now_s), world.policy, BUILTIN)
    search = SmallestRoom(room, movable, world.state.workloads[f"default/{name}"])
    assert search.find() is None
    return search.tries


def test_nothing_is_tried_for_work_that_no_move_can_help() -> None:
    world = World(nodes=8, gpus_per_node=4, policy=ONLY_ALLOCATE).queue("lab", gpu_limit=20_000)
    for number in range(18):
        world.submit(f"w{number}", gpus_each=1, queue="lab").settle()
    world.submit("beyond-the-limit", gpus_each=3, queue="lab").settle()
    world.submit("too-large", gpus_each=5).settle()
    assert tries_for(world, "beyond-the-limit") == 0
    assert tries_for(world, "too-large") == 0
