"""Lesson 34: nodes fail under large jobs. Public failures of other schedulers that Kaiwo must survive."""

from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request, Toleration
from tests.decide.levels.fabrics import fabric, leaves_of, nodes_of
from tests.decide.recovery.failures import fail, is_whole, recover, restore, touched
from tests.worlds import World


def test_two_of_many_nodes_fail_and_only_their_pods_move() -> None:
    """kueue#14244, #14092: two of 500 nodes failed, and the whole job was evicted."""
    world = fabric(32, 32)
    world.submit("gang", pods=24, gpus_each=8, required_level="spine").settle()
    lost = {pod: nodes_of(world, "gang")[pod] for pod in ("main-3", "main-17")}
    plans = recover(fail(world, *lost.values()))
    assert touched(plans) == {f"default/gang/{pod}" for pod in lost}
    assert is_whole(world, "gang")
    assert not set(lost.values()) & set(nodes_of(world, "gang").values())


def test_a_replacement_never_goes_to_a_failed_node_whatever_it_tolerates() -> None:
    """kueue#12735: the replacement was put on the node that had failed."""
    world = World(nodes=2)
    everything = Request(gpus=8, tolerations=(Toleration(operator="Exists"),))
    world.submit("brave", request=everything).settle()
    [node] = world.nodes_of("brave")
    recover(fail(world, node))
    [after] = world.nodes_of("brave")
    assert after != node
    recover(fail(world, after))
    assert not world.is_running("brave")


def test_a_workload_does_not_come_back_to_the_node_that_failed_it() -> None:
    """kueue#15369: a large job went to the same bad node again and again."""
    world = World(nodes=2)
    world.submit("hero", gpus_each=8).settle()
    [bad] = world.nodes_of("hero")
    recover(fail(world, bad))
    [other] = world.nodes_of("hero")
    restore(world, bad)
    world.submit("filler", gpus_each=8).settle()
    assert world.nodes_of("filler") == [bad]  # for others it is as good as before
    world.finish("filler")
    recover(fail(world, other))
    assert not world.is_running("hero")
    assert Reason.NODE_AVOIDED in world.why("hero")


def test_five_hundred_nodes_lose_two_and_the_job_goes_on() -> None:
    """The same at the size of the report: 498 pods are not touched."""
    world = fabric(*[32] * 16, leaves_per_spine=16)
    world.submit("hero", pods=500, gpus_each=8, required_level="spine").settle()
    before = nodes_of(world, "hero")
    lost = {pod: before[pod] for pod in ("main-7", "main-321")}
    plans = recover(fail(world, *lost.values()))
    after = nodes_of(world, "hero")
    assert is_whole(world, "hero")
    assert touched(plans) == {f"default/hero/{pod}" for pod in lost}
    assert {pod for pod in before if after[pod] != before[pod]} == set(lost)


def test_a_segment_of_a_hero_job_loses_a_node_and_only_the_segment_moves() -> None:
    world = fabric(*[4] * 5, leaves_per_spine=5)
    world.submit("hero", pods=16, gpus_each=8, required_level="spine", segment_size=4, segment_level="leaf").settle()
    before = nodes_of(world, "hero")
    plans = recover(fail(world, before["main-5"]))
    assert touched(plans) == {f"default/hero/main-{at}" for at in range(4, 8)}
    assert is_whole(world, "hero")
    assert len(leaves_of(world, "hero")) == 4
