"""The numbers in obstacles."""

from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.explain import obstacles_of, sentence, why
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.node import Taint
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.queue import QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World


def first(world: World, name: str):  # type: ignore[no-untyped-def]
    return obstacles_of(world.state, f"default/{name}", world.policy, world.now_s)[0]


def test_need_and_have_of_a_limit() -> None:
    world = World().queue("lab", gpu_limit=5_000).running("old", gpus=3, queue="lab")
    world.submit("new", gpus_each=4, queue="lab").settle()
    assert (first(world, "new").need, first(world, "new").have) == (4_000, 2_000)


def test_have_of_a_share_on_several_devices_is_what_each_of_them_has() -> None:
    world = World(gpus_per_node=3)
    for number, milli in enumerate((900, 700, 400)):
        world.submit(f"w{number}", fraction_milli=milli, submitted_s=number).settle()
    world.submit("two", fraction_milli=800, gpus_each=2).settle()
    # free: 100, 300, 600: two devices offer 300 each
    assert (first(world, "two").need, first(world, "two").have) == (800, 300)
    world.submit("one", fraction_milli=800).settle()
    assert first(world, "one").have == 600


def test_have_of_memory_is_the_most_that_would_be_granted() -> None:
    world = World(gpus_per_node=1).submit("third", fraction_milli=300)
    world.settle()
    world.submit("much", memory_mib=150_000).settle()
    have = first(world, "much").have
    world.submit("fits", memory_mib=have).settle()
    assert world.is_running("fits")


def test_cpu_and_memory_are_told_apart() -> None:
    world = World(nodes=0).node("n", gpus=0, cpu_milli=4_000, memory_mib=8_192)
    world.submit("cpu", cpu_milli=6_000).submit("memory", request=Request(memory_mib=9_000)).settle()
    assert sentence(first(world, "cpu")) == "it asks for 6 CPUs on one node, but the largest node has 4 CPUs"
    assert "8.8 GiB of memory" in sentence(first(world, "memory"))


def test_the_position_counts_everybody_of_the_queue_who_is_tried_before() -> None:
    world = World(gpus_per_node=1).queue("other").running("old", gpus=1)
    world.submit("a", gpus_each=1, submitted_s=1).submit("b", gpus_each=1, cpu_milli=5, submitted_s=2)
    world.submit("c", gpus_each=1, submitted_s=3).submit("d", gpus_each=1, queue="other", submitted_s=0).settle()
    answers = [why(world.state, f"default/{name}", world.policy, 0) for name in "abcd"]
    assert [(answer.position, answer.ahead) for answer in answers] == [(1, 0), (2, 1), (3, 2), (1, 0)]


def test_steps_count_pods_so_that_large_gangs_spend_the_budget() -> None:
    world = World(nodes=4, policy=Policy(steps=10))
    for number in range(4):
        world.submit(f"gang{number}", pods=8, gpus_each=1)
    plan = world.decide()
    assert len(plan.starts) == 16
    assert plan.steps == 17  # and one for looking at the nodes for a shape


def test_a_taint_that_only_prefers_keeps_nobody_out() -> None:
    world = World(nodes=0).node("n", taints=(Taint("slow", effect="PreferNoSchedule"),))
    world.submit("new", gpus_each=1).settle()
    assert world.is_running("new")


def test_a_share_goes_to_a_node_with_a_begun_device_even_if_another_node_is_fuller() -> None:
    world = World(nodes=2).submit("half", fraction_milli=500)
    world.settle()
    (begun,) = world.nodes_of("half")
    other = "node-1" if begun == "node-0" else "node-0"
    rule = Request(gpus=7, avoid_nodes=(begun,))
    world.submit("seven", request=rule).settle()
    assert world.nodes_of("seven") == [other]
    world.submit("quarter", fraction_milli=250).settle()
    assert world.nodes_of("quarter") == [begun]


def test_new_weights_count_at_once() -> None:
    world = World(nodes=2).running("old", gpus=1)
    (used,) = world.nodes_of("old")
    world.submit("a", gpus_each=1).submit("b", gpus_each=1, cpu_milli=1)
    assert {start.node for start in decide(world.snapshot()).starts} == {used}
    spreading = Policy(placement="spread")
    assert {start.node for start in decide(world.snapshot(), spreading).starts} != {used}


def test_large_roles_are_placed_before_small_ones_take_their_room() -> None:
    world = World(nodes=0).node("a", gpus=8).node("b", gpus=4)
    roles = (Role(Request(gpus=1), "small", 4), Role(Request(gpus=8), "large", 1))
    world.tell(WorkloadChanged(Workload("default/job", roles))).settle()
    assert world.is_running("job")
    assert world.state.pods["default/job"]["large-0"].node == "a"


def test_a_change_of_wishes_is_a_change_of_class() -> None:
    world = World(gpus_per_node=2).running("old", gpus=1).submit("new", gpus_each=2)
    world.settle()
    workload = world.state.workloads["default/new"]
    smaller = replace(workload, roles=(replace(workload.roles[0], request=Request(gpus=1)),))
    world.tell(WorkloadChanged(smaller)).settle()
    assert world.is_running("new")


def test_a_thousandth_of_a_processor_more_than_a_queue_may_use_is_too_much() -> None:
    world = World().queue("lab", cpu=QueueAmounts(limit=1_000))
    world.submit("old", gpus_each=1, cpu_milli=1_000, queue="lab").settle()
    world.submit("new", gpus_each=1, cpu_milli=1, queue="lab").settle()
    found = first(world, "new")
    assert (found.reason, found.need, found.have, found.unit) == (Reason.QUEUE_LIMIT, 1, 0, "milli-cpu")


def test_a_queue_that_is_missing_or_has_queues_below_it_counts_as_none() -> None:
    world = World().queue("lab").queue("below", parent="lab")
    world.submit("nowhere", gpus_each=1, queue="gone").submit("inside", gpus_each=1, queue="lab").settle()
    found = [first(world, name) for name in ("nowhere", "inside")]
    assert [(each.reason, each.need, each.have) for each in found] == [
        (Reason.NO_QUEUE, 1, 0),
        (Reason.QUEUE_NOT_LEAF, 1, 0),
    ]


def test_the_largest_free_fraction_is_one_that_would_start() -> None:
    """In memory: what is left of it, rounded to whole MiB, may allow a little less than what is left in milli."""
    world = World(nodes=0).node("a", gpus=1, model="MI210").submit("odd", memory_mib=57_345)
    world.settle()
    world.submit("much", fraction_milli=900).settle()
    have = first(world, "much").have
    world.submit("more", fraction_milli=have + 1).settle()
    assert not world.is_running("more")
    world.submit("fits", fraction_milli=have).settle()
    assert world.is_running("fits")
