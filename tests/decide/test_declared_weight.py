"""What people say about their own work gains them nothing that the queue does not give them: see docs/security.md."""

from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause
from tests.worlds import World


def test_work_that_may_not_be_preempted_stays_within_the_quota() -> None:
    world = World().queue("lab", quota_milli=2_000).queue("other", quota_milli=6_000)
    world.submit("kept", gpus_each=2, queue="lab", preemptible=False)
    world.submit("more", gpus_each=1, queue="lab", preemptible=False).settle()
    assert world.is_running("kept")
    assert world.why("more") == [Reason.QUEUE_QUOTA]


def test_a_type_changes_nothing_but_the_order_within_the_queue() -> None:
    """`inference` is worth 100 points, below every queue's default maximum; other queues do not compare it."""
    world = World(gpus_per_node=1).queue("mine", quota_milli=0).queue("theirs", quota_milli=1_000)
    world.submit("theirs", gpus_each=1, queue="theirs", kind="batch", priority=50).settle()
    world.submit("mine", gpus_each=1, queue="mine", kind="inference", priority=100).settle()
    assert world.is_running("theirs")
    assert not world.is_running("mine")


def test_who_claims_a_short_run_and_stays_leaves_when_its_place_is_needed() -> None:
    world = World(nodes=2)
    world.submit("first", gpus_each=8, estimate_s=1_000).settle()
    world.submit("gang", pods=2, gpus_each=8, estimate_s=600).settle()
    world.submit("liar", gpus_each=8, estimate_s=60).settle()
    assert world.is_running("liar"), "it fills the gap before the planned start"
    world.now_s = 971
    [eviction] = [each for plan in world.settle() for each in plan.evictions]
    assert (eviction.workload, eviction.cause) == ("default/liar", EvictionCause.DEADLINE)


def test_who_claims_a_short_run_and_may_not_be_stopped_fills_no_gap() -> None:
    """An estimate is a promise that nothing enforces. On Kubernetes, `kaiwo.ai/time` is one, too."""
    world = World(nodes=2)
    world.submit("first", gpus_each=8, estimate_s=1_000).settle()
    world.queue("default", quota_milli=16_000)
    world.submit("gang", pods=2, gpus_each=8, estimate_s=600).settle()
    world.submit("liar", gpus_each=8, estimate_s=60, preemptible=False).settle()
    assert world.why("liar") == [Reason.PROMISED]


def test_a_small_minimum_gets_the_minimum_and_grows_only_after_all_others() -> None:
    world = World(gpus_per_node=4)
    world.submit("elastic", pods=100, gpus_each=1, minimum=1)
    for number in range(3):
        world.submit(f"plain-{number}", gpus_each=1, submitted_s=1)
    world.settle()
    assert all(world.is_running(f"plain-{number}") for number in range(3))
    assert len(world.state.pods["default/elastic"]) == 1


def test_a_gang_that_is_not_complete_holds_nothing() -> None:
    world = World()
    world.submit("huge", pods=100, gpus_each=8).submit("small", gpus_each=8, submitted_s=1).settle()
    assert world.is_running("small")
    assert not world.state.nominations
