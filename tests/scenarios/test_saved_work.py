"""Who is stopped for others depends on what that would cost: work since the last checkpoint, and the restart."""

from typing import Any

from msgspec.structs import replace

from kaiwo.model.events import WorkloadChanged
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.workload import Workload, lost_s
from tests.worlds import World


def two_equals(policy: Policy = DEFAULT_POLICY, **second: Any) -> World:
    """Two of equal size and priority that began together, and an hour later somebody who may have the GPUs of one."""
    world = World(nodes=1, gpus_per_node=8, policy=policy).queue("red").queue("blue", quota_milli=4_000)
    world.submit("first", gpus_each=4, queue="red").submit("second", gpus_each=4, queue="red", **second).decide()
    world.now_s = 3_600
    return world


def says(world: World, name: str, **fields: Any) -> Workload:
    told = replace(world.state.workloads[f"default/{name}"], **fields)
    world.tell(WorkloadChanged(told))
    return told


def who_goes(world: World) -> list[str]:
    world.submit("claim", gpus_each=4, queue="blue")
    return [each.workload for each in world.decide().evictions]


def test_of_two_equals_the_one_that_saved_lately_goes() -> None:
    for name in ("first", "second"):
        world = two_equals()
        says(world, name, checkpoint_s=3_500)
        assert who_goes(world) == [f"default/{name}"]


def test_a_restart_that_costs_more_than_was_lost_turns_it_round() -> None:
    world = two_equals(restart_s=1_599)  # 2,000 s since it saved, and the restart: one second less than the other lost
    says(world, "second", checkpoint_s=1_600)
    assert who_goes(world) == ["default/second"]
    world = two_equals(restart_s=1_601)
    says(world, "second", checkpoint_s=1_600)
    assert who_goes(world) == ["default/first"]


TEN_YEARS_S = 3_650 * 86_400


def test_who_claims_a_restart_of_ten_years_is_not_safe_for_ever() -> None:
    """It counts for no more than the time since the last checkpoint: 100 s twice are less than an hour."""
    world = two_equals(restart_s=TEN_YEARS_S)
    says(world, "second", checkpoint_s=3_500)
    assert who_goes(world) == ["default/second"]


def test_a_claimed_restart_cost_is_capped_by_the_policy() -> None:
    """Both have run for an hour; the one that saved half an hour ago claims that much for its restart."""
    for policy, goes in ((Policy(max_restart_cost_s=60), "second"), (Policy(max_restart_cost_s=1_801), "first")):
        world = two_equals(policy=policy, restart_s=TEN_YEARS_S)
        says(world, "second", checkpoint_s=1_799)
        assert who_goes(world) == [f"default/{goes}"]


def test_without_a_policy_of_ones_own_a_claimed_restart_cost_counts_for_an_hour_at_most() -> None:
    day_s = 86_400
    claims = Workload("w", (), restart_s=TEN_YEARS_S)
    assert lost_s(claims, 0, day_s, DEFAULT_POLICY.max_restart_cost_s) == day_s + 3_600


def test_a_preemption_delay_of_ten_years_gains_nothing_over_others() -> None:
    """It only holds back whoever claims it: others are not stopped for it, and it is no better protected."""
    world = two_equals(preemption_delay_s=TEN_YEARS_S)
    says(world, "second", checkpoint_s=3_500)
    assert who_goes(world) == ["default/second"]


def test_a_checkpoint_before_the_start_or_in_the_future_protects_nobody() -> None:
    for claimed_s in (-TEN_YEARS_S, 1, TEN_YEARS_S):
        assert lost_s(Workload("w", (), checkpoint_s=claimed_s, restart_s=TEN_YEARS_S), 100, 3_700, 60) <= 3_660


def test_a_checkpoint_alone_gives_nobody_room_so_nothing_is_tried_again() -> None:
    world = two_equals()
    world.submit("large", gpus_each=8, queue="red").decide()
    assert not world.state.backlog.try_all
    assert not world.state.backlog.to_try
    told = says(world, "first", checkpoint_s=3_500)
    assert world.state.workloads["default/first"] == told
    assert not world.state.backlog.try_all
    assert not world.state.backlog.to_try
    assert not world.state.to_requeue


def test_elastic_work_that_could_grow_is_not_tried_again_because_it_saved() -> None:
    world = World(nodes=1, gpus_per_node=8)
    world.submit("train", pods=3, gpus_each=4, minimum=1).settle()
    assert not world.state.backlog.to_try
    says(world, "train", checkpoint_s=10)
    assert not world.state.backlog.to_try
    says(world, "train", checkpoint_s=20, priority=7)  # another wish as well: that is worth a try
    assert world.state.backlog.to_try
