"""Work that moves for others moves only where it may run, and with all that belongs to it."""

import pytest

from kaiwo.decide.make_room.victim_rules import MAX_MOVED
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Fairness, GpuModelAmounts, ReclaimStrategy
from kaiwo.model.request import Request
from tests.worlds import World


def two_models(policy: Policy = Policy()) -> World:  # noqa: B008  a policy is frozen
    return World(nodes=0, policy=policy).node("new", gpus=4, model="MI300X").node("old", gpus=4, model="MI250X")


def test_nobody_is_moved_to_a_model_that_its_queue_may_not_use() -> None:
    world = two_models().queue("theirs", quota_milli=4_000, gpu_models={"MI250X": GpuModelAmounts(limit=0)})
    world.queue("ours", quota_milli=4_000)
    for number in range(4):
        world.submit(f"t{number}", gpus_each=1, queue="theirs")
    world.settle()
    world.submit("o", gpus_each=4, models=("MI300X",), queue="ours")
    plans = world.settle()
    assert not [eviction for plan in plans for eviction in plan.evictions]
    assert not world.state.nominations
    assert world.submit("old", gpus_each=4, models=("MI250X",), queue="ours").settle()
    assert world.is_running("old")


def test_what_a_gang_could_spare_goes_with_what_it_needs() -> None:
    world = World(nodes=0).node("a", gpus=2).node("b", gpus=1).queue("theirs").queue("ours", quota_milli=2_000)
    world.submit("elastic", pods=3, gpus_each=1, minimum=2, queue="theirs").settle()
    assert world.nodes_of("elastic") == ["a", "a", "b"]
    world.now_s = 10
    world.submit("owed", gpus_each=2, queue="ours")
    plan = world.decide()
    assert sorted(eviction.pod for eviction in plan.evictions) == ["main-0", "main-1", "main-2"]
    world.let_go().settle()
    assert world.nodes_of("owed") == ["a"]


def test_nobody_has_a_place_again_whose_extended_resource_is_taken() -> None:
    """Else space would be kept for the one who came that never comes free."""
    nic = Request(gpus=1, extended=(("example.com/nic", 1),))
    world = World(nodes=0).node("a", gpus=2, extended={"example.com/nic": 1})
    world.queue("theirs").queue("ours", quota_milli=1_000)
    world.submit("has", request=nic, queue="theirs").settle()
    world.submit("owed", request=nic, queue="ours").settle()
    assert world.is_running("owed")
    assert not world.state.nominations


def test_who_is_moved_minds_planned_starts_on_its_own_account() -> None:
    world = two_models(Policy(promises=3, large_permille=300))
    world.queue("large", quota_milli=4_000, fairness=Fairness(reclaim_strategy=ReclaimStrategy.NONE))
    world.queue("theirs", quota_milli=4_000).queue("ours", quota_milli=4_000)
    world.submit("ends", gpus_each=2, models=("MI250X",), queue="large", estimate_s=100)
    world.submit("stays", gpus_each=2, models=("MI300X",), queue="theirs")
    world.submit("t0", gpus_each=1, queue="theirs").submit("t1", gpus_each=1, queue="theirs").settle()
    world.now_s = 10
    world.submit("gang", gpus_each=4, models=("MI250X",), queue="large", estimate_s=1_000).decide()
    assert world.state.planned_starts["default/gang"].start_s == 100
    world.now_s = 20
    world.submit("owed", gpus_each=2, models=("MI300X",), queue="ours", estimate_s=50).settle()
    assert "default/gang" in world.state.planned_starts
    world.now_s = 100
    world.finish("ends").settle()
    assert world.nodes_of("gang") == ["old"]


def test_nobody_is_moved_for_itself() -> None:
    policy = Policy(actions=("allocate", "reclaim", "preempt", "consolidate"))
    world = World(nodes=2, gpus_per_node=2, policy=policy)
    world.submit("elastic", pods=4, gpus_each=1, minimum=1).submit("pair", gpus_each=2, submitted_s=1).settle()
    world.submit("more", pods=2, gpus_each=1, minimum=1, submitted_s=2)
    for plan in world.settle():
        assert all(eviction.workload != eviction.beneficiary for eviction in plan.evictions)


@pytest.mark.parametrize(("needed", "moved"), [(MAX_MOVED, MAX_MOVED), (MAX_MOVED + 1, 0)])
def test_so_many_may_be_moved_for_one_workload_and_no_more(needed: int, moved: int) -> None:
    world = World(nodes=0).node("new", gpus=needed, model="MI300X")
    world.queue("theirs", quota_milli=1_000 * needed).queue("ours", quota_milli=1_000 * needed)
    for number in range(needed):
        world.submit(f"t{number}", gpus_each=1, queue="theirs")
    world.settle()
    world.node("old", gpus=needed, model="MI250X")
    world.submit("owed", gpus_each=needed, models=("MI300X",), queue="ours")
    assert len(world.decide().evictions) == moved
