"""What went wrong for the users of other schedulers, as stories that must end well here."""

import pytest
from msgspec.structs import replace

from kaiwo.explain import obstacles_of, sentence
from kaiwo.model.events import NodeChanged, PodGone, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from tests.worlds import World


def told(world: World, name: str) -> str:
    return sentence(obstacles_of(world.state, f"default/{name}", world.policy, world.now_s)[0])


def test_the_reason_names_the_resource_the_queue_and_the_amount() -> None:
    """volcano#1094: 'pod group is not ready', 78,789 times."""
    world = World().queue("lab", gpu_limit=2_000).running("old", gpus=1, queue="lab")
    world.submit("new", gpus_each=4, queue="lab").settle()
    assert told(world, "new") == "it needs 4 GPUs, but queue 'lab' has 1 GPU left of its limit"


def test_work_that_no_cycle_has_tried_says_so() -> None:
    """koordinator#2389: pending, no event, never attempted."""
    world = World().submit("new", gpus_each=1)
    assert world.why("new") == [Reason.NOT_TRIED]


def test_idle_capacity_and_an_eligible_job_never_stay_apart() -> None:
    """spur#767: 50 idle nodes and 148 pending jobs. Every way in which room comes back must wake those who wait."""
    world = World(nodes=1, gpus_per_node=2).node("spare", gpus=2, cordoned=True)
    world.running("old", gpus=2).submit("new", gpus_each=2).settle()
    assert not world.is_running("new")
    spare = world.state.node_objects["spare"]
    world.tell(NodeChanged(replace(spare, cordoned=False))).settle()
    assert world.nodes_of("new") == ["spare"]


def test_a_queue_in_order_does_not_wait_for_a_pool_it_does_not_need() -> None:
    """kueue#8309: strict FIFO blocks across flavours."""
    world = World(nodes=1).node("old", gpus=4, model="MI210").running("busy", gpus=8, models=("MI300X",))
    world.submit("wants-new", gpus_each=8, models=("MI300X",)).submit("wants-old", gpus_each=4, models=("MI210",))
    world.settle()
    assert world.is_running("wants-old")


def test_a_job_whose_start_is_refused_does_not_block_the_others() -> None:
    """KAI#2075: a bind that a webhook rejects wins every cycle and blocks everybody for ever."""
    world = World(gpus_per_node=1).submit("doomed", gpus_each=1, priority=100).submit("fine", gpus_each=1)
    (start,) = world.decide().starts
    assert start.workload == "default/doomed"
    doomed = world.state.workloads["default/doomed"]
    backing_off = replace(doomed, not_before_s=60, not_before_why="the start was refused")
    world.tell(PodGone("default/doomed", start.pod), WorkloadChanged(backing_off)).settle()
    assert world.is_running("fine")
    assert "the start was refused" in told(world, "doomed")


def test_ten_thousand_waiting_jobs_do_not_hide_the_one_that_fits() -> None:
    """kueue#14477: one pop per queue and cycle; a long queue drills for ever."""
    world = World(nodes=1, gpus_per_node=4)
    for number in range(10_000):
        world.submit(f"large-{number:05d}", gpus_each=8, priority=10)
    world.submit("small", gpus_each=1)
    plan = world.decide()
    assert [start.workload for start in plan.starts] == ["default/small"]
    assert plan.steps < 10


def test_free_gpus_on_many_nodes_do_not_admit_a_pod_that_needs_one_node() -> None:
    """kueue#5243: 8 GPUs free on 4 nodes admitted an 8-GPU pod that could never run and blocked all."""
    world = World(nodes=4).running("old", gpus=32)
    for number in range(4):
        pods = [pod for pod in world.state.pods["default/old"].values() if pod.node == f"node-{number}"][:2]
        world.tell(*(PodGone("default/old", pod.name) for pod in pods))
    old = world.state.workloads["default/old"]
    world.tell(WorkloadChanged(replace(old, roles=(replace(old.roles[0], minimum=1),), held=True)))
    world.submit("eight", gpus_each=8).submit("two", gpus_each=2).settle()
    assert not world.is_running("eight")
    assert told(world, "eight") == "it needs 8 GPUs free on one node, but no node has more than 2 GPUs free"
    assert world.is_running("two")


def test_a_gang_of_halves_fits_on_one_device() -> None:
    """kubernetes#138765: the gang fails though two halves of a device exist."""
    world = World(gpus_per_node=1).submit("gang", pods=2, fraction_milli=500)
    world.settle()
    assert world.devices_of("gang") == ["node-0/gpu-0", "node-0/gpu-0"]


def test_three_times_12_gib_do_not_fit_on_24_gib() -> None:
    """volcano#3616: left-overs of dry runs oversubscribe a GPU."""
    world = World(nodes=0)
    world.tell(NodeChanged(Node("node-0", gpus=(Gpu("gpu-0", "L40S", 24 * 1024),))))
    for number in range(3):
        world.submit(f"m{number}", memory_mib=12 * 1024)
    world.settle()
    assert [world.is_running(f"m{number}") for number in range(3)] == [True, True, False]


@pytest.mark.parametrize("milli", [10, 250, 500, 990])
def test_a_fraction_is_never_given_all_the_memory(milli: int) -> None:
    """KAI#45: 'fraction' gave all 80 GB."""
    world = World(gpus_per_node=1).submit("part", fraction_milli=milli)
    (start,) = world.decide().starts
    assert start.devices[0].mib == milli * 196_608 // 1000


def test_a_lost_node_costs_only_the_pods_that_were_on_it() -> None:
    """kueue#14244: 2 of 500 nodes fail and the whole job is evicted."""
    world = World(nodes=5, gpus_per_node=1).submit("gang", pods=4, gpus_each=1)
    world.settle()
    lost = world.nodes_of("gang")[0]
    before = set(world.nodes_of("gang")) - {lost}
    plan = world.lose_node(lost).decide()
    assert len(plan.starts) == 1
    assert before < set(world.nodes_of("gang"))
