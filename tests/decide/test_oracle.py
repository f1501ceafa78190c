"""Where the sums prove that nothing helps, nothing is searched; and what they prove is true."""

from kaiwo.decide import decide
from kaiwo.model.plan import Cause
from kaiwo.model.queue import Amounts, Fairness, ReclaimStrategy
from kaiwo.model.reason import Reason
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
    assert "14000 in has" in obstacle.detail


def test_one_gpu_more_is_enough() -> None:
    plan = full_world(1).decide()
    assert len(plan.evictions) == 15
    assert {each.cause for each in plan.evictions} == {Cause.RECLAIM}
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
        for name in {each.beneficiary for each in unproved.evictions if each.cause is Cause.RECLAIM}:
            if world.picture.backlog.stands(name):
                assert world.picture.backlog.stand_of(name)[0].key not in ruled_out, (seed, name)
    assert proved > (0 if IS_QUICK else 5)


def decide_without_proof(world: World):  # type: ignore[no-untyped-def]
    import kaiwo.decide.take as take

    kept, take.most_for = take.most_for, lambda *_: take.Most(1 << 60, {})
    try:
        return decide(world.snapshot(), world.policy)
    finally:
        take.most_for = kept


def test_a_quota_is_what_the_world_says() -> None:
    assert World().queue("q", quota_milli=3).picture.queue_objects["q"].gpu == Amounts(quota=3)
