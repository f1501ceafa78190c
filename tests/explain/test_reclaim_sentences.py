"""Why nothing is taken from others now, and when or by what it would be."""

import pytest

from kaiwo.explain import remedy_in_kubernetes, why
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.events import QueueChanged
from kaiwo.model.obstacle import NodeBound, Obstacle, Reason, ReclaimBound, ReclaimScope, SearchGaveUp, WhyVerdict
from kaiwo.model.policy import Policy
from kaiwo.model.queue import GpuModelAmounts, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.runtime.kubernetes.publish_wait_reasons import WaitReasonPublisher
from tests.worlds import World

EVICTS = "without evicting other work. But if you {}, other work will be evicted to make room for it."


def held_off() -> World:
    """`old` had to go for `new`. Then the quotas were exchanged, and `old` is owed all that `new` has."""
    world = World(policy=Policy(hold_off_s=600)).queue("dep", quota_milli=8_000).queue("out")
    world.now_s = 1_000
    world.submit("old", gpus_each=8, queue="out").settle()
    world.now_s += 10
    world.submit("new", gpus_each=8, queue="dep").settle()
    assert world.is_running("new")
    world.now_s += 10
    world.queue("dep").queue("out", quota_milli=8_000)
    assert world.decide().evictions == ()
    return world


def obstacle_of(world: World, name: str, reason: Reason) -> list[Obstacle]:
    answer = why(world.state, f"default/{name}", world.policy, world.now_s)
    return [each.obstacle for each in answer.obstacles if each.obstacle.reason is reason]


def test_who_waits_out_a_hold_off_is_told_so_with_the_time_that_is_left() -> None:
    world = held_off()
    (found,) = obstacle_of(world, "old", Reason.HELD_OFF)
    assert (found.need, found.unit, found.subject) == (590, "s", "default/old")
    assert sentence(found) == (
        "old was preempted recently and may not preempt other work before second 1610 of the cluster's clock, "
        "in 9 min (the policy's holdOff)"
    )
    world.now_s += 500
    (later,) = obstacle_of(world, "old", Reason.HELD_OFF)
    assert later.need == 90
    assert remedy_in_kubernetes(later).startswith("wait; it will be tried again automatically")


def test_the_end_of_a_hold_off_is_told_in_kubernetes_too() -> None:
    (news,) = WaitReasonPublisher().changed_reasons(held_off().state)
    assert news.workload == "default/old"
    assert (
        "may not preempt other work before second 1610 of the cluster's clock (the policy's holdOff)" in news.sentence
    )


def test_a_hold_off_that_is_over_is_told_no_more_and_the_room_is_taken() -> None:
    world = held_off()
    world.now_s += 590
    assert not obstacle_of(world, "old", Reason.HELD_OFF)
    world.settle()
    assert world.is_running("old")


def test_who_could_take_nothing_is_not_told_of_a_hold_off() -> None:
    """`out` is owed nothing any more: it would wait without a hold-off, too."""
    world = World(policy=Policy(hold_off_s=600)).queue("dep", quota_milli=8_000).queue("out")
    world.submit("old", gpus_each=8, queue="out").settle()
    world.now_s += 10
    world.submit("new", gpus_each=8, queue="dep").settle()
    assert "default/old" in world.state.last_stop
    assert not obstacle_of(world, "old", Reason.HELD_OFF)


def at_a_model_limit(most: int = 12_000, gpus: int = 8, pods: int = 2) -> World:
    """`out` fills five nodes; `b` is owed 24 of those GPUs, and may have 12 of them by the limit of their model."""
    world = World(nodes=5).queue("dep", quota_milli=32_000, gpu_limit=40_000).queue("out")
    limited(world, most)
    for number in range(40):
        world.submit(f"o{number}", gpus_each=1, queue="out")
    world.settle()
    world.now_s = 5
    world.submit("bj", pods=pods, gpus_each=gpus, queue="b").settle()
    return world


def limited(world: World, limit: int) -> None:
    models = {"MI300X": GpuModelAmounts(quota=8_000, limit=limit)}
    world.tell(QueueChanged(Queue("b", "dep", gpu=QueueAmounts(24_000), gpu_models=models)))


def test_a_raise_that_lets_others_be_stopped_is_named_where_nothing_starts_it_at_once() -> None:
    world = at_a_model_limit(most=0, gpus=1, pods=1).queue("default", users=("nobody",))
    world.settle()
    answer = why(world.state, "default/bj", world.policy, world.now_s)
    assert answer.change is None
    assert answer.no_change.endswith(
        " But if you raise the MI300X limit of queue 'b' by 1 GPU, to 1 GPU, other work will be evicted to make room "
        "for it."
    )
    limited(world, 1_000)
    world.settle()
    assert world.is_running("bj")


def test_what_its_owner_can_change_is_named_before_a_raise() -> None:
    world = at_a_model_limit()
    answer = why(world.state, "default/bj", world.policy, world.now_s)
    assert answer.no_change.endswith(EVICTS.format("ask for 6 GPUs per pod instead"))


def test_a_raise_that_would_cost_too_much_to_try_is_said_to_be_untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.explain.changes_that_evict.MAX_COST", 0)
    world = at_a_model_limit()
    answer = why(world.state, "default/bj", world.policy, world.now_s)
    assert answer.no_change.endswith(
        " Whether other work would be evicted for it with another size, model or queue was not tried."
        " Whether other work would be evicted for it if you raise the MI300X limit of queue 'b' by 4 GPUs, to 16 GPUs "
        "was not tried."
    )


def owed_four() -> World:
    """`default` fills the node; `lab` is owed 4 of its GPUs and never gets more, and `guests` is owed nothing."""
    world = World()
    for name, amounts in (
        ("default", QueueAmounts()),
        ("lab", QueueAmounts(4_000, weight=0)),
        ("guests", QueueAmounts(weight=0)),
    ):
        world.tell(QueueChanged(Queue(name, gpu=amounts, namespaces=("default",))))
    for number in range(8):
        world.submit(f"old-{number}", gpus_each=1, user="ann")
    world.settle()
    world.now_s = 5
    return world


def test_a_size_for_which_others_are_stopped_is_named() -> None:
    world = owed_four().submit("new", gpus_each=6, queue="lab")
    world.settle()
    said = why(world.state, "default/new", world.policy, world.now_s).no_change
    assert said.endswith(EVICTS.format("ask for 4 GPUs per pod instead")), said
    world.finish("new").submit("new", gpus_each=4, queue="lab").settle()
    assert world.is_running("new")


def test_a_share_for_which_others_are_stopped_is_named_though_a_tiny_one_could_not_be_kept_apart() -> None:
    request = Request(gpus=6, gpu_milli=900, least_grade="cu-mask")
    world = owed_four().submit("new", request=request, queue="lab")
    world.settle()
    said = why(world.state, "default/new", world.policy, world.now_s).no_change
    assert said.endswith(EVICTS.format("ask for 0.66 of a GPU instead")), said


def test_who_lets_others_be_for_a_while_is_told_that_they_go_after_it() -> None:
    world = owed_four().submit("new", gpus_each=6, queue="lab", preemption_delay_s=300)
    world.settle()
    said = why(world.state, "default/new", world.policy, world.now_s).no_change
    assert said.endswith(" will be evicted to make room for it once its preemption delay of 5 min is over."), said


def test_a_queue_in_which_others_are_stopped_for_it_is_named() -> None:
    world = owed_four().submit("new", gpus_each=4, queue="guests")
    world.settle()
    said = why(world.state, "default/new", world.policy, world.now_s).no_change
    assert said.endswith(EVICTS.format("submit it to queue 'lab'")), said
    world.finish("new").submit("new", gpus_each=4, queue="lab").settle()
    assert world.is_running("new")


def test_a_model_for_which_less_important_work_is_stopped_is_named() -> None:
    world = World(nodes=3, gpus_per_node=4).queue("default", quota_milli=2_000, gpu_limit=3_000)
    world.submit("old", gpus_each=1, pods=3, priority=10, user="ann").settle()
    world.now_s = 5
    world.submit("new", gpus_each=2, priority=200, models=("A100",)).settle()
    said = why(world.state, "default/new", world.policy, world.now_s).no_change
    assert said.endswith(EVICTS.format("ask for MI300X instead")), said


def test_who_may_stop_nobody_is_told_of_no_change_that_stops_others() -> None:
    world = owed_four().submit("new", gpus_each=6, queue="lab", stops_others=False)
    world.settle()
    said = why(world.state, "default/new", world.policy, world.now_s).no_change
    assert said.endswith("without evicting other work."), said


def test_a_raise_that_lets_nobody_be_stopped_is_not_named() -> None:
    world = at_a_model_limit()
    world.tell(QueueChanged(Queue("out", gpu=QueueAmounts(40_000))))
    world.settle()
    answer = why(world.state, "default/bj", world.policy, world.now_s)
    assert "But" not in answer.no_change
    assert answer.verdict is WhyVerdict.NOTHING_HELPS


def test_sums_are_told_with_what_they_are_of() -> None:
    for obstacle, start in (
        (
            Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, 4, 2, "", "q", ReclaimBound(0, resource="a.b/nic")),
            "it needs 4 of a.b/nic, ",
        ),
        (
            Obstacle(Reason.NOT_ENOUGH_RECLAIMABLE, 40960, 20480, "mib", "q", NodeBound(Reason.NOT_ENOUGH_MEMORY)),
            "it needs 40 GiB of memory free on one node, but no node would have more than 20 GiB even if all work",
        ),
        (
            Obstacle(
                Reason.NOT_ENOUGH_RECLAIMABLE, 9, 2, "milli-cpu", "q", ReclaimBound(2, scope=ReclaimScope.ALLOWED_NODES)
            ),
            "it needs 0.009 CPU on the nodes that it may use, but what is free or can be reclaimed",
        ),
        (
            Obstacle(Reason.NO_WAY_TO_RECLAIM, 40960, 61440, "mib", "q", SearchGaveUp(3)),
            "it needs 40 GiB of memory, and 60 GiB would be free or reclaimable from other queues, but no way to make",
        ),
    ):
        assert sentence(obstacle).startswith(start), sentence(obstacle)


def test_what_no_node_is_large_enough_for_is_not_told_a_second_time_as_too_little_to_take() -> None:
    world = World(nodes=2).queue("dep", quota_milli=16_000).queue("out")
    world.submit("old", gpus_each=8, pods=2, queue="out").settle()
    world.submit("huge", gpus_each=9, queue="dep").settle()
    (only,) = why(world.state, "default/huge", world.policy, world.now_s).obstacles
    assert only.obstacle.reason is Reason.NOT_ENOUGH_GPUS
    assert only.remedy.endswith("waiting does not help")


def test_who_waits_in_a_queue_without_any_share_is_told_so() -> None:
    world = World().queue("lab", quota_milli=4_000)
    world.tell(QueueChanged(Queue("guests", gpu=QueueAmounts(0, weight=0))))
    world.submit("all", gpus_each=8).settle()
    world.submit("g", gpus_each=4, queue="guests").settle()
    (found,) = obstacle_of(world, "g", Reason.OVER_FAIR_SHARE)
    assert (found.need, found.have, found.subject) == (4_000, 0, "guests")
