"""Where sums prove that no eviction helps, no search is made; and what they prove is true."""

from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.decide.make_room.reclaim_bounds import ReclaimBounds
from kaiwo.explain import sentence
from kaiwo.model.events import NodeChanged, PodChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.obstacle import Obstacle, QueueAmount, Reason, ReclaimBound, SearchGaveUp
from kaiwo.model.plan import EvictionCause, Plan
from kaiwo.model.queue import Fairness, QueueAmounts, ReclaimStrategy
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from tests.conftest import IS_QUICK, SIZE
from tests.properties.reclaim_worlds import contended_world
from tests.worlds import World


def full_world(quota: int) -> World:
    """Two nodes full of one-GPU jobs of queue `has`, and one gang of `owed` that needs both nodes' GPUs but one."""
    world = World(nodes=2).queue("has", quota_milli=quota * 1000).queue("owed", quota_milli=15_000)
    for number in range(16):
        world.submit(f"job{number:02}", gpus_each=1, queue="has")
    world.settle()
    return world.submit("gang", pods=15, gpus_each=1, queue="owed")


def test_one_gpu_too_few_is_told_with_the_numbers_that_prove_it() -> None:
    plan = full_world(2).decide()
    assert plan.evictions == ()
    (obstacle,) = [o for wait in plan.waits for o in wait.obstacles if o.reason is Reason.NOT_ENOUGH_RECLAIMABLE]
    assert (obstacle.need, obstacle.have, obstacle.subject) == (15_000, 14_000, "owed")
    assert isinstance(obstacle.facts, ReclaimBound)
    assert obstacle.facts.queues == (QueueAmount("has", 14_000),)


def test_one_gpu_more_is_enough() -> None:
    plan = full_world(1).decide()
    assert len(plan.evictions) == 15
    assert {each.cause for each in plan.evictions} == {EvictionCause.RECLAIM}
    assert len(plan.nominations) == 15


def test_a_conservative_queue_is_told_that_it_reaches_no_further_than_its_quota() -> None:
    world = World().queue("has").queue("careful", fairness=Fairness(reclaim_strategy=ReclaimStrategy.CONSERVATIVE))
    world.running("a", gpus=8, queue="has").submit("c", gpus_each=1, queue="careful")
    (wait,) = world.decide().waits
    assert (Reason.OVER_FAIR_SHARE, 1_000, 0) in [(o.reason, o.need, o.have) for o in wait.obstacles]


def test_what_the_sums_rule_out_no_search_finds() -> None:
    """The certificate against the search itself, with the proof switched off."""
    proved = 0
    for seed in range(40 if IS_QUICK else 300 * SIZE):
        world = contended_world(seed)
        plan = decide(world.snapshot(), world.policy)
        ruled_out = {
            (wait.queue, wait.shape)
            for wait in plan.waits
            for obstacle in wait.obstacles
            if obstacle.reason is Reason.NOT_ENOUGH_RECLAIMABLE
        }
        if not ruled_out:
            continue
        proved += len(ruled_out)
        unproved = decide_without_proof(world)
        for name in {each.beneficiary for each in unproved.evictions if each.cause is EvictionCause.RECLAIM}:
            if world.state.backlog.is_queued(name):
                assert world.state.backlog.class_of(name).key not in ruled_out, (seed, name)
    assert proved > (0 if IS_QUICK else 5)


def decide_without_proof(world: World) -> Plan:
    kept, ReclaimBounds.short = ReclaimBounds.short, lambda _: None  # type: ignore[method-assign, assignment]
    try:
        return decide(world.snapshot(), world.policy)
    finally:
        ReclaimBounds.short = kept  # type: ignore[method-assign]


def test_a_quota_is_what_the_world_says() -> None:
    assert World().queue("q", quota_milli=3).state.queue_objects["q"].gpu == QueueAmounts(quota=3)


def proof(world: World, queue: str = "owed") -> Obstacle:
    """The one certificate that is told to a queue; nobody goes."""
    plan = world.decide()
    assert plan.evictions == ()
    told = [each for wait in plan.waits if wait.queue == queue for each in wait.obstacles]
    (found,) = [each for each in told if each.reason is Reason.NOT_ENOUGH_RECLAIMABLE]
    return found


def three_queues() -> World:
    """`has` is owed nothing, `owed` and `fix` all that they ask for."""
    return World(nodes=0).queue("has").queue("owed", quota_milli=16_000).queue("fix", quota_milli=3_000)


def singles(world: World, count: int) -> World:
    for number in range(count):
        world.submit(f"h{number}", gpus_each=1, queue="has")
    world.settle()
    return world


def test_processors_are_summed_for_work_without_gpus() -> None:
    world = World(nodes=0).node("a", gpus=0, cpu_milli=16_000).queue("has", cpu=QueueAmounts(0))
    world.queue("owed", cpu=QueueAmounts(16_000)).queue("fix", cpu=QueueAmounts(8_000))
    world.submit("f", pods=2, cpu_milli=4_000, queue="fix", preemptible=False).settle()
    for number in range(8):
        world.submit(f"h{number}", cpu_milli=1_000, queue="has")
    world.settle()
    found = proof(world.submit("c", pods=3, cpu_milli=4_000, queue="owed"))
    assert (found.need, found.have, found.unit) == (12_000, 8_000, "milli-cpu")
    assert sentence(found) == (
        "it needs 12 CPUs, but what is free or can be reclaimed from other queues adds up to 8 CPUs "
        "(0 CPUs free, 8 CPUs in queue has)"
    )


def test_gpus_are_summed_by_the_model_that_is_asked_for() -> None:
    world = three_queues().node("x", gpus=8).node("y", gpus=4, model="MI250X")
    world.submit("f", pods=2, gpus_each=1, models=("MI250X",), queue="fix", preemptible=False).settle()
    found = proof(singles(world, 10).submit("c", pods=4, gpus_each=1, models=("MI250X",), queue="owed"))
    assert (found.need, found.have, found.unit) == (4_000, 2_000, "milli-gpu")
    assert sentence(found).startswith("it needs 4 GPUs of MI250X, but what is free or can be reclaimed from other")


def test_work_that_may_move_to_another_model_is_no_proof() -> None:
    """`has` must give one GPU only, of whichever model; but its others may move to the one that is free."""
    world = World(nodes=0).node("x", gpus=2).node("y", gpus=2, model="MI250X")
    world.queue("has", quota_milli=2_000).queue("owed", quota_milli=2_000)
    world.submit("h", pods=2, gpus_each=1, models=("MI250X", "MI300X"), queue="has").settle()
    on = set(world.nodes_of("h"))
    model = "MI300X" if on == {"x"} else "MI250X"
    world.submit("c", pods=2, gpus_each=1, models=(model,), queue="owed")
    assert len(world.decide().evictions) == 2


def test_memory_is_summed() -> None:
    world = three_queues().node("x", gpus=8, memory_mib=64 * 1024)
    world.submit("f", request=Request(gpus=1, memory_mib=40 * 1024), queue="fix", preemptible=False).settle()
    found = proof(singles(world, 7).submit("c", request=Request(gpus=1, memory_mib=30 * 1024), queue="owed"))
    assert (found.need, found.have, found.unit) == (30 * 1024, 24 * 1024, "mib")
    assert "it needs 30 GiB of memory, but what" in sentence(found)


def test_extended_resources_are_summed() -> None:
    world = three_queues().node("x", gpus=8, extended={"example.com/nic": 2})
    nic = Request(gpus=1, extended=(("example.com/nic", 1),))
    world.submit("f", request=nic, queue="fix", preemptible=False).settle()
    world.submit("h", request=nic, queue="has").settle()
    found = proof(singles(world, 6).submit("c", pods=2, request=nic, queue="owed"))
    assert (found.need, found.have) == (2, 1)
    assert (
        "it needs 2 of example.com/nic, but what is free or can be reclaimed from other queues adds up to 1"
        in sentence(found)
    )


def test_what_no_node_could_have_is_told_of_one_node() -> None:
    """21 GPUs may be taken, and each node has one that may not."""
    world = three_queues()
    for number in range(3):
        world.node(f"n{number}", gpus=8)
    for number in range(3):
        others = tuple(f"n{other}" for other in range(3) if other != number)
        world.submit(f"f{number}", request=Request(gpus=1, avoid_nodes=others), queue="fix", preemptible=False)
    world.settle()
    found = proof(singles(world, 21).submit("c", gpus_each=8, queue="owed"))
    assert (found.need, found.have, found.unit) == (8, 7, "gpus")
    assert sentence(found) == (
        "it needs 8 GPUs free on one node, but no node would have more than 7 GPUs "
        "even if all work that may be evicted or moved for it were gone"
    )


def test_how_many_pods_would_find_room_is_told() -> None:
    world = three_queues().node("x", gpus=8).node("y", gpus=8).node("z", gpus=8, cordoned=True)
    world = singles(world, 16)
    found = proof(world.submit("c", pods=3, gpus_each=5, queue="owed"))
    assert (found.need, found.have, found.unit) == (3, 2, "pods")
    assert "must start together, but there would be room for only 2 even if all work" in sentence(found)


def test_a_share_that_may_move_to_a_larger_device_is_no_proof() -> None:
    """60 GiB are 937 milli of the small GPU and 234 of the large one: so 463 free milli are enough for a whole GPU."""
    world = World(nodes=0).node("s", gpus=1, model="MI210").node("l", gpus=1, model="MI325X", cordoned=True)
    world.queue("a", quota_milli=937).queue("b", quota_milli=2_000).queue("fix", quota_milli=1_000)
    world.submit("m", memory_mib=60 * 1024, queue="a").settle()
    world.tell(NodeChanged(replace(world.state.node_objects["l"], cordoned=False)))
    world.submit("f", fraction_milli=600, models=("MI325X",), queue="fix", preemptible=False).settle()
    plan = world.submit("c", gpus_each=1, models=("MI210",), queue="b").decide()
    assert {(each.workload, each.node) for each in plan.nominations} == {("default/c", "s"), ("default/m", "l")}


def test_other_pods_of_elastic_work_than_those_offered_leave_it_undecided() -> None:
    """Each of two young gangs can spare one of its two pods. Their first ones stand on the node with two GPUs; the last
    ones, which are offered, do not."""
    world = World(nodes=0).node("x", gpus=2).node("y", gpus=1).node("z", gpus=1)
    world.queue("has", fairness=Fairness(min_runtime_s=500)).queue("owed", quota_milli=2_000)
    for gpu, (name, other) in enumerate((("p", "y"), ("q", "z"))):
        world.submit(name, pods=2, gpus_each=1, minimum=1, queue="has")
        for pod, (node, device) in enumerate((("x", gpu), (other, 0))):
            share = Share(f"gpu-{device}", 1_000, GPU_MODELS["MI300X"].memory_mib)
            world.tell(PodChanged(Pod(f"default/{name}", f"main-{pod}", node, devices=(share,))))
    (wait,) = world.submit("c", gpus_each=2, queue="owed").decide().waits
    (found,) = [each for each in wait.obstacles if each.reason is Reason.NO_WAY_TO_RECLAIM]
    assert isinstance(found.facts, SearchGaveUp)
    assert found.facts.tried == 0
    assert found.have >= found.need == 2_000
