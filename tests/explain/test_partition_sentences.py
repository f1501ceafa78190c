"""What is said to those whose GPUs are cut in another way: what comes, what could, and what never will."""

from kaiwo.explain import obstacles_of
from kaiwo.explain.obstacle_sentences import remedy, sentence
from kaiwo.gpus.partitioning.pending_mode_change import close_for_change
from kaiwo.model.events import NodeChanged, ReservationChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.gpu_models import VENDOR_MODELS
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request
from kaiwo.model.reservation import PhysicalDevice, Reservation, ReservationOwner
from tests.worlds import World

SPX, CPX = Mode("SPX", "NPS1"), Mode("CPX", "NPS1")
BIG = Request(gpus=8)


def whole(number: int) -> Gpu:
    return Gpu(f"gpu-{number}", "MI300X", 196_608)


def machine(*gpus: Gpu) -> NodeChanged:
    return NodeChanged(Node("n", 10**6, 10**6, gpus=gpus))


def seven_and_one(*first: Gpu) -> World:
    return World(nodes=0).tell(machine(*first, *(whole(number) for number in range(1, 8))))


def said(world: World, name: str) -> tuple[str, str]:
    world.settle()
    told = obstacles_of(world.state, f"default/{name}", world.policy, world.now_s)[0]
    return sentence(told), remedy(told)


def test_a_node_that_lacks_one_gpu_in_the_mode_is_not_too_small() -> None:
    world = seven_and_one(*partition_gpu(whole(0), CPX)).submit("big", request=BIG)
    assert said(world, "big") == (
        "it needs 8 GPUs in SPX mode on one node, but n has 7 GPUs in that mode now; its other GPUs could change to it",
        "let GPUs change their mode (kaiwo partitions shows the plan), or ask for 7 GPUs or fewer",
    )


def test_a_change_that_is_under_way_is_told_and_waiting_helps() -> None:
    for is_changing in (False, True):
        parts = [close_for_change(part, SPX, is_changing) for part in partition_gpu(whole(0), CPX)]
        world = seven_and_one(*parts).submit("big", request=BIG)
        assert said(world, "big") == (
            "it needs 8 GPUs in SPX mode on one node, but n has 7 GPUs in that mode now; 1 GPU is changing to it",
            "wait for that change (kaiwo partitions shows it)",
        )
    world = World(nodes=0).tell(machine(close_for_change(whole(0), CPX, True)))
    world.submit("part", request=Request(gpus=1, partition="CPX"))
    assert said(world, "part") == (
        "no GPU is in CPX mode yet; 1 GPU is changing to it",
        "wait for that change (kaiwo partitions shows it)",
    )


def test_a_gpu_that_is_on_its_way_to_another_mode_could_come_back() -> None:
    world = seven_and_one(close_for_change(whole(0), CPX, False)).submit("big", request=BIG)
    assert said(world, "big")[0].endswith("n has 7 GPUs in that mode now; its other GPUs could change to it")


def test_what_no_change_mends_is_still_told_as_too_small() -> None:
    ill = Gpu("gpu-0", "MI300X", 196_608, healthy=False, reason="5 errors")
    for world in (seven_and_one(ill), seven_and_one()):
        assert said(world.submit("big", request=BIG), "big")[1] == "ask for 7 GPUs or fewer; waiting does not help"
    more = seven_and_one(*partition_gpu(whole(0), CPX)).submit("more", request=Request(gpus=9))
    assert said(more, "more")[1] == "ask for 7 GPUs or fewer; waiting does not help"


def test_gpus_that_are_reserved_for_others_could_not_change_for_it() -> None:
    world = seven_and_one(*partition_gpu(whole(0), CPX)).submit("big", request=BIG, user="bob")
    kept = Reservation("r", devices=(PhysicalDevice("n", "gpu-0"),), owner=ReservationOwner(user="ada"), end_s=10**6)
    world.tell(ReservationChanged(kept)).settle()
    reasons = [each.reason for each in obstacles_of(world.state, "default/big", world.policy, world.now_s)]
    assert Reason.PARTITION_MODE not in reasons


def test_where_all_that_could_be_cut_is_reserved_that_is_told() -> None:
    world = World(nodes=0).tell(machine(whole(0))).submit("part", request=Request(gpus=1, partition="CPX"), user="bob")
    kept = Reservation("r", nodes=("n",), owner=ReservationOwner(user="ada"), end_s=10**6)
    world.tell(ReservationChanged(kept))
    whose = "for user ada until second 1000000 of the cluster's clock; they are not in CPX mode"
    assert said(world, "part") == (
        f"reservation 'r' keeps GPUs that it could use {whose}",
        "wait until the reservation ends, or ask its owner (kaiwo reservations)",
    )


def test_cpus_that_no_node_has_are_told_before_the_mode() -> None:
    world = World(nodes=0).tell(machine(*partition_gpu(whole(0), CPX)))
    world.submit("fat", request=Request(gpus=1, cpu_milli=10**8))
    assert said(world, "fat") == (
        "it asks for 100000 CPUs on one node, but the largest node has 1000 CPUs",
        "ask for 1000 CPUs or less; waiting does not help",
    )


def test_a_grade_that_whole_gpus_do_not_have_either_is_told_instead_of_the_mode() -> None:
    world = World(nodes=0).tell(machine(*partition_gpu(whole(0), CPX)))
    world.submit("share", request=Request(gpus=1, gpu_milli=500, least_grade="memory-capped"))
    assert said(world, "share")[0] == "1 of 1 nodes cannot isolate a share of a GPU as it asks"
    world.submit("plain", request=Request(gpus=1, gpu_milli=500, least_grade="cu-mask"))
    assert said(world, "plain")[0] == "no GPU is in SPX mode, but 1 GPU could change"


def test_mps_on_amd_names_the_alternatives_and_no_model_that_nobody_asked_for() -> None:
    world = World(nodes=0).tell(machine(whole(0)))
    any_model = Request(gpus=1, gpu_milli=500, isolation="mps", gpu_models=VENDOR_MODELS["nvidia"])
    assert said(world.submit("share", request=any_model), "share") == (
        'it asks for "mps" isolation, which AMD GPUs do not support, and the cluster has no other GPUs',
        "ask for time-slicing, cu-mask or a partition; waiting does not help",
    )
    named = Request(gpus=1, gpu_milli=500, isolation="mps", gpu_models=("A100",))
    assert said(world.submit("named", request=named), "named")[0].startswith("no node has A100")
