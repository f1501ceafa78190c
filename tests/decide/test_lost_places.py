"""The place of a lost gang member is kept for its replacement, and for nothing that would be in the way."""

from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.decide.cycle import outcome_of
from kaiwo.model.events import NodeChanged, NominationChanged, NominationGone, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause, Nomination
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload, pod_index
from tests.worlds import World, audit

GANG = "default/gang"


def full_world(nodes: int = 3, gpus: int = 8, **changes: Any) -> World:
    """A gang fills the cluster."""
    world = World(nodes=nodes, gpus_per_node=gpus, **changes)
    world.now_s = 1000
    world.submit("gang", pods=nodes, gpus_each=gpus).settle()
    assert len(world.nodes_of("gang")) == nodes
    return world


def gang_of(world: World, pods: int) -> Workload:
    workload = world.state.workloads[GANG]
    return replace(workload, roles=(replace(workload.roles[0], count=pods),))


def lose_member(world: World, due_s: int = 0) -> Nomination:
    """What a cluster tells when the last pod of the gang is gone: the gang has one pod less, and its place is kept."""
    slot = max(world.state.pods[GANG], key=pod_index)
    pod = world.state.pods[GANG][slot]
    kept = Nomination(GANG, slot, pod.node, pod.devices, lost_s=world.now_s, due_s=due_s)
    fewer = gang_of(world, len(world.state.pods[GANG]) - 1)
    world.tell(NominationChanged(kept), PodGone(GANG, slot), WorkloadChanged(fewer))
    return kept


def replace_member(world: World) -> None:
    """Its controller has made another pod."""
    world.tell(WorkloadChanged(gang_of(world, len(world.state.pods[GANG]) + 1)))


def test_waiting_work_of_equal_priority_does_not_take_the_place_of_a_lost_member() -> None:
    world = full_world(nodes=12)
    for number in range(8):
        world.submit(f"small-{number}", gpus_each=1)
    world.settle()
    kept = lose_member(world)
    world.now_s += 20
    world.settle()
    assert not any(world.is_running(f"small-{number}") for number in range(8))
    replace_member(world)
    [start] = world.decide().starts
    assert (start.workload, start.node, start.devices) == (GANG, kept.node, kept.devices)
    assert not world.state.nominations
    world.now_s += 3600
    assert not any(plan.evictions for plan in world.settle())  # the gang is whole: nothing stops it


def test_a_place_is_given_up_when_no_replacement_comes_in_time() -> None:
    world = full_world(policy=Policy(keep_lost_place_s=120)).submit("small", gpus_each=1)
    world.settle()
    lose_member(world)
    assert world.decide().look_again_s == 1120
    world.now_s = 1119
    world.settle()
    assert not world.is_running("small")
    world.now_s = 1120
    assert world.decide().given_up == ((GANG, "main-2"),)
    world.settle()
    assert world.is_running("small")


def test_a_place_is_given_up_in_time_even_where_nothing_waits() -> None:
    world = full_world(policy=Policy(keep_lost_place_s=120))
    lose_member(world)
    world.submit("other", gpus_each=8).decide()
    world.finish("other")
    world.now_s = 1120
    assert world.decide().given_up == ((GANG, "main-2"),)


@pytest.mark.parametrize("policy", [Policy(keep_lost_place_s=0), Policy(keep_lost_place_s=60)])
def test_no_place_is_kept_for_a_replacement_that_cannot_come_in_time(policy: Policy) -> None:
    world = full_world(policy=policy).submit("small", gpus_each=1)
    world.settle()
    lose_member(world, due_s=1061)
    world.decide()
    world.settle()
    assert world.is_running("small")


def test_the_place_is_charged_to_the_queue_of_the_gang() -> None:
    world = World(nodes=4).queue("default", gpu_limit=24_000)
    world.now_s = 1000
    world.submit("gang", pods=3, gpus_each=8).settle()
    lose_member(world)
    world.submit("small", gpus_each=1).settle()
    assert world.why("small") == [Reason.QUEUE_LIMIT]


@pytest.mark.parametrize("loss", ["gone", "cordoned", "device"])
def test_a_place_on_a_lost_or_closed_node_is_given_up(loss: str) -> None:
    world = full_world().submit("small", gpus_each=1)
    world.settle()
    kept = lose_member(world)
    node = world.state.node_objects[kept.node]
    broken = (replace(node.gpus[0], healthy=False), *node.gpus[1:])
    changes = {"cordoned": {"cordoned": True}, "device": {"gpus": broken}}
    if loss == "gone":
        world.lose_node(kept.node)
    else:
        world.tell(NodeChanged(replace(node, **changes[loss])))
    assert world.decide().given_up == ((GANG, kept.pod),)


def test_the_place_ends_with_the_gang() -> None:
    world = full_world()
    lose_member(world)
    world.tell(WorkloadGone(GANG))
    assert not world.state.nominations


def test_only_work_that_ends_in_time_fills_a_place() -> None:
    world = full_world(gpus=1, policy=Policy(actions=("allocate",)))
    world.submit("long", gpus_each=1, priority=9).submit("unknown", gpus_each=1)
    world.submit("late", gpus_each=1, estimate_s=91).settle()
    lose_member(world, due_s=1120)  # the gap ends 30 s before that
    world.settle()
    assert Reason.PROMISED in world.why("late")
    world.submit("short", gpus_each=1, estimate_s=90).settle()
    assert [name for name in ("long", "unknown", "late", "short") if world.is_running(name)] == ["short"]
    assert world.state.pods["default/short"]["main-0"].until_s == 1090
    assert world.state.nominations[GANG]  # still kept, and still paid for


def test_work_that_overruns_is_stopped_for_the_replacement() -> None:
    world = full_world(gpus=1).submit("short", gpus_each=1, estimate_s=80)
    world.settle()
    kept = lose_member(world, due_s=1120)
    world.settle()
    world.now_s = 1095
    replace_member(world)
    [eviction] = world.decide().evictions
    assert (eviction.workload, eviction.cause, eviction.beneficiary) == ("default/short", EvictionCause.DEADLINE, GANG)
    world.let_go().settle()
    assert world.devices_of("gang")[-1] == f"{kept.node}/{kept.devices[0].gpu}"
    assert not world.is_running("short")
    assert not audit(world.state)


def test_nothing_fills_a_place_once_its_replacement_exists() -> None:
    world = full_world(gpus=1, policy=Policy(actions=("allocate",)))
    lose_member(world, due_s=1300)
    replace_member(world)
    world.submit("short", gpus_each=1, estimate_s=10, priority=9).settle()
    assert len(world.nodes_of("gang")) == 3
    assert not world.is_running("short")


def test_a_place_that_is_taken_back_leaves_no_trace() -> None:
    world = full_world().submit("small", gpus_each=1)
    world.settle()
    kept = lose_member(world)
    world.tell(NominationGone(GANG, kept.pod))
    other = full_world().submit("small", gpus_each=1)
    other.settle()
    slot = kept.pod
    other.tell(PodGone(GANG, slot), WorkloadChanged(gang_of(other, 2)))
    assert world.state.events() == other.state.events()
    assert world.state.used == other.state.used
    assert world.state.nodes.free.tolist() == other.state.nodes.free.tolist()
    assert world.decide() == other.decide()


def test_a_gang_below_its_minimum_reclaims_only_what_its_missing_member_needs() -> None:
    world = World(nodes=4, gpus_per_node=2).queue("theirs").queue("ours", quota_milli=6000)
    world.now_s = 1000
    world.submit("gang", pods=3, gpus_each=2, queue="ours").settle()
    lost = world.state.pods[GANG]["main-2"]
    world.tell(PodGone(GANG, "main-2"), WorkloadChanged(replace(gang_of(world, 2), held=True)))
    for number in range(4):
        world.submit(f"theirs-{number}", gpus_each=1, queue="theirs")
    world.settle()
    assert all(world.is_running(f"theirs-{number}") for number in range(4))
    world.tell(WorkloadChanged(replace(gang_of(world, 3), held=False, broken_since_s=1000)))
    plan = world.decide()
    assert [eviction.cause for eviction in plan.evictions] == [EvictionCause.RECLAIM] * 2
    assert len({kept.node for kept in plan.nominations}) == 1
    world.let_go().settle()
    assert len(world.nodes_of("gang")) == 3
    assert sum(world.is_running(f"theirs-{number}") for number in range(4)) == 2
    assert lost.node


def gang_whose_place_was_taken() -> World:
    """One of its two pods is gone, less important work has all the rest, and the replacement has just come."""
    world = World(nodes=3, gpus_per_node=2)
    world.now_s = 1000
    world.submit("gang", pods=2, gpus_each=2, priority=5).settle()
    world.tell(PodGone(GANG, "main-1"), WorkloadChanged(gang_of(world, 1)))
    for number in range(4):
        world.submit(f"small-{number}", gpus_each=1)
    world.settle()
    world.tell(WorkloadChanged(replace(gang_of(world, 2), broken_since_s=1000)))
    return world


def test_a_gang_below_its_minimum_preempts_only_what_its_missing_member_needs() -> None:
    world = gang_whose_place_was_taken()
    assert [eviction.cause for eviction in world.decide().evictions] == [EvictionCause.PREEMPT] * 2
    world.let_go().settle()
    assert len(world.nodes_of("gang")) == 2


def test_a_gang_is_not_stopped_while_room_is_being_made_for_its_missing_member() -> None:
    world = gang_whose_place_was_taken()
    world.decide()
    world.now_s = 1065  # the grace of 60 s is over, and the victims are still leaving
    assert not world.decide().evictions
    world.let_go().decide()
    assert len(world.nodes_of("gang")) == 2


@pytest.mark.parametrize("due_s", [0, 1_400])
@pytest.mark.parametrize("later_s", [0, 20, 299, 300, 390, 1_000])
def test_a_trial_of_one_workload_says_what_the_cycle_does_beside_kept_places(due_s: int, later_s: int) -> None:
    """`why` asks the trial: it must see kept, filled and expired places as `decide` does."""
    world = full_world(nodes=2)
    world.submit("short", gpus_each=1, estimate_s=60).submit("long", gpus_each=1, estimate_s=9_000)
    world.submit("unknown", gpus_each=4).settle()
    lose_member(world, due_s)
    world.now_s += later_s
    names = sorted(world.state.backlog.queued_names())
    tried = {name: outcome_of(world.snapshot(), name, world.policy).is_started for name in names}
    started = {start.workload for start in world.decide().starts}
    assert tried == {name: name in started for name in names}
