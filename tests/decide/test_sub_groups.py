"""Workloads whose roles form a tree, of which only some branches must run."""

from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.explain import obstacles_of
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.events import PodChanged, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, SubGroup, Workload, subgroup_problem
from tests.worlds import World


def replicas(count: int, pods: int = 2, gpus: int = 1, minimum: int = -1) -> tuple[Role, ...]:
    return tuple(Role(Request(gpus=gpus), f"r{number}", pods, minimum) for number in range(count))


def some(minimum: int) -> tuple[SubGroup, ...]:
    return (SubGroup(minimum=minimum),)


def up(world: World, name: str) -> list[str]:
    return sorted(world.state.pods.get(f"default/{name}", {}))


def test_two_of_four_replicas_are_enough_and_the_others_wait() -> None:
    world = World(gpus_per_node=5)
    world.submit("serve", roles=replicas(4), groups=some(2)).settle()
    assert up(world, "serve") == ["r0-0", "r0-1", "r1-0", "r1-1"], "the fifth GPU would be half a replica"


def test_replicas_join_whole_when_there_is_room() -> None:
    world = World(gpus_per_node=5)
    world.submit("serve", roles=replicas(4), groups=some(2)).settle()
    world.node("more", gpus=3).settle()
    assert len(up(world, "serve")) == 8


def test_fewer_replicas_than_the_minimum_never_start() -> None:
    world = World(gpus_per_node=5).submit("serve", roles=replicas(4), groups=some(3))
    assert world.decide().starts == ()
    obstacle = obstacles_of(world.state, "default/serve", world.policy, 0)[0]
    assert (obstacle.reason, obstacle.subject, obstacle.need, obstacle.have) == (Reason.GANG, "r2", 2, 1)
    assert "sub-group r2" in sentence(obstacle)


def test_another_sub_group_starts_where_the_cheapest_does_not_fit() -> None:
    small = Role(Request(gpus=2), "small", 3)
    large = Role(Request(gpus=8), "large")
    world = World(nodes=1)
    world.submit("either", roles=(small, large), groups=some(1))
    world.settle()
    assert up(world, "either") == ["small-0", "small-1", "small-2"], "the cheapest, when both would fit"
    picky = replace(small, request=Request(gpus=2, gpu_models=("H100",)))
    world = World(nodes=1).submit("either", roles=(picky, large), groups=some(1))
    world.settle()
    assert up(world, "either") == ["large-0"]


def test_a_tree_of_two_levels() -> None:
    """Each side needs one of its two parts; both sides are needed."""
    groups = (SubGroup("left", minimum=1), SubGroup("right", minimum=1))
    roles = tuple(
        Role(Request(gpus=gpus), name, group=group)
        for name, gpus, group in (("a", 4, "left"), ("b", 2, "left"), ("c", 8, "right"), ("d", 2, "right"))
    )
    world = World(gpus_per_node=4).submit("pair", roles=roles, groups=groups)
    world.settle()
    assert up(world, "pair") == ["b-0", "d-0"], "the cheapest part of each side"
    short = World(gpus_per_node=3).submit("pair", roles=roles, groups=groups)
    assert short.decide().starts == ()


def test_a_replica_that_is_not_needed_is_stopped_before_what_is() -> None:
    world = World(gpus_per_node=8, policy=Policy(actions=("allocate", "preempt")))
    world.submit("serve", roles=replicas(4), groups=some(2)).settle()
    world.submit("urgent", gpus_each=3, priority=10)
    plan = world.decide()
    gone = sorted(each.pod for each in plan.evictions)
    assert gone == ["r2-0", "r2-1", "r3-0", "r3-1"]
    assert {each.cause for each in plan.evictions} == {EvictionCause.PREEMPT}


def test_all_of_it_goes_when_the_replicas_that_are_needed_must() -> None:
    world = World(gpus_per_node=8, policy=Policy(actions=("allocate", "preempt")))
    world.submit("serve", roles=replicas(4), groups=some(2)).settle()
    world.submit("urgent", gpus_each=5, priority=10)
    assert len(world.decide().evictions) == 8


def test_room_is_made_for_a_whole_replica() -> None:
    """One that runs and may have another replica takes two GPUs from lesser work, or none."""
    policy = Policy(actions=("allocate", "preempt"))
    world = World(gpus_per_node=4, policy=policy)
    world.submit("old", pods=3, gpus_each=1, priority=-1, minimum=0).settle()
    world.submit("serve", roles=replicas(2, pods=2), groups=some(1), priority=5).settle()
    assert len(up(world, "serve")) == 4
    assert not up(world, "old")


def test_a_replica_that_lost_a_pod_is_made_whole_again_or_goes_first() -> None:
    world = World(gpus_per_node=4, policy=Policy(actions=("allocate", "preempt")))
    world.submit("serve", roles=replicas(2), groups=some(1)).settle()
    world.submit("next", gpus_each=1, priority=10)
    world.tell(PodGone("default/serve", "r0-1")).settle()
    assert up(world, "serve") == ["r0-0", "r1-0", "r1-1"], "the one pod of r0 waits for its other"
    world.submit("urgent", gpus_each=1, priority=10)
    assert [each.pod for each in world.decide().evictions] == ["r0-0"]


def test_a_gang_below_its_sub_groups_is_stale() -> None:
    policy = Policy(stale_gang_grace_s=60)
    world = World(gpus_per_node=4, policy=policy).submit("serve", roles=replicas(2), groups=some(2))
    world.settle()
    world.node("node-0", gpus=4, cordoned=True)
    world.tell(PodGone("default/serve", "r0-1"))
    workload = world.state.workloads["default/serve"]
    world.tell(WorkloadChanged(replace(workload, broken_since_s=1)))
    world.now_s = 100
    assert {each.cause for each in world.decide().evictions} == {EvictionCause.STALE_GANG}
    world = World(gpus_per_node=4, policy=policy).submit("serve", roles=replicas(2), groups=some(1))
    world.settle()
    world.node("node-0", gpus=4, cordoned=True)
    world.tell(PodGone("default/serve", "r0-1"))
    world.tell(WorkloadChanged(replace(workload, groups=some(1), broken_since_s=1)))
    world.now_s = 100
    assert not world.decide().evictions, "one replica is enough"


def test_four_hundred_equal_replicas_are_one_way() -> None:
    world = World(nodes=50, gpus_per_node=8)
    world.submit("serve", roles=replicas(400, pods=1), groups=some(300))
    plan = decide(world.snapshot())
    assert len(plan.starts) == 400


def test_what_is_wrong_with_a_tree_is_said() -> None:
    role = Role(Request(), "a", group="left")
    assert "which it does not have" in subgroup_problem((SubGroup("right"),), (role,))
    assert "twice" in subgroup_problem((SubGroup("left"), SubGroup("left")), (role,))
    assert "inside itself" in subgroup_problem((SubGroup("left", "up"), SubGroup("up", "left")), (role,))
    assert "needs 2 of the 1 parts of the sub-group 'left'" in subgroup_problem((SubGroup("left", minimum=2),), (role,))
    assert "nothing in the sub-group 'right'" in subgroup_problem((SubGroup("left"), SubGroup("right")), (role,))
    assert subgroup_problem((SubGroup("left", minimum=1),), (role,)) == ""


def test_leaving_space_is_kept_for_whichever_way_it_serves() -> None:
    """Many CPUs or one GPU are enough. The CPUs are cheaper, and no node has them; a GPU is about to come free."""
    world = World(nodes=0, policy=Policy(actions=("allocate",))).node("n0", gpus=1).node("n1", gpus=1)
    world.submit("first", gpus_each=1).submit("second", gpus_each=1).settle()
    roles = (Role(Request(cpu_milli=500_000), "cpu"), Role(Request(gpus=1), "gpu"))
    world.tell(WorkloadChanged(Workload("default/tree", roles, groups=(SubGroup("", minimum=1),)))).settle()
    leaving = world.state.pods["default/first"]["main-0"]
    world.tell(WorkloadGone("default/first"), PodChanged(replace(leaving, phase=Phase.RELEASING)))
    assert {each.pod for each in world.decide().nominations} == {"gpu-0"}
