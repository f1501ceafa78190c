"""Pods that are made once their leader has a node: the leader's domain has room for them, whoever must go for that."""

from kaiwo.decide import decide
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.network.constraint import Followers, TopologyConstraint
from kaiwo.model.plan import EvictionCause, encode_plan
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup, Workload
from tests.decide.levels.fabrics import LEAF, busy, fabric, leaf_of, nodes_of
from tests.worlds import World


def led(pods: int, name: str = "job", request: Request | None = None, **changes: object) -> Workload:
    """A leader that takes a node, and these pods that will follow it into its leaf."""
    levels = TopologyConstraint(required=LEAF, followers=Followers("leader", pods, request))
    roles = (Role(Request(gpus=8), "leader", group="domain", leads=True),)
    return Workload(f"default/{name}", roles, groups=(SubGroup("domain", levels=levels),), **changes)  # type: ignore[arg-type]


def submit(world: World, workload: Workload) -> World:
    return world.tell(WorkloadChanged(workload))


def test_a_leader_and_the_places_of_its_followers_are_in_one_leaf() -> None:
    world = submit(fabric(2, 3), led(2))
    plan = world.decide()
    assert {leaf_of(each.node) for each in (*plan.starts, *plan.nominations)} == {"l1"}
    assert [each.pod for each in plan.nominations] == ["leader-1", "leader-2"]


def test_two_leaders_of_one_cycle_do_not_count_on_the_same_room() -> None:
    world = submit(submit(fabric(3, 3), led(2, "one")), led(2, "two"))
    world.decide()
    assert {leaf_of(node) for name in ("one", "two") for node in nodes_of(world, name).values()} == {"l0", "l1"}
    third = submit(submit(submit(fabric(3, 3), led(2, "one")), led(2, "two")), led(2, "three"))
    assert len(third.decide().starts) == 2


def test_others_are_stopped_for_the_followers_too_and_only_in_one_leaf() -> None:
    world = fabric(2, 3, policy=Policy(hold_off_s=0))
    for node in ("l0-n0", "l0-n1", "l1-n0", "l1-n1", "l1-n2"):
        busy(world, node, name=f"low-{node}", priority=0)
    plan = submit(world, led(2, priority=100)).decide()
    assert {each.workload for each in plan.evictions} == {f"default/low-l1-n{number}" for number in range(3)}
    assert {each.cause for each in plan.evictions} == {EvictionCause.PREEMPT}
    assert sorted(each.pod for each in plan.nominations) == ["leader-0", "leader-1", "leader-2"]
    world.let_go()
    world.decide()
    assert set(nodes_of(world, "job")) == {"leader-0"}
    assert len(world.state.nominations["default/job"]) == 2, "what was kept for followers stays"


def test_nobody_is_stopped_where_no_leaf_could_hold_the_followers() -> None:
    world = fabric(2, 2, policy=Policy(hold_off_s=0))
    for node in ("l0-n0", "l0-n1", "l1-n0", "l1-n1"):
        busy(world, node, name=f"low-{node}", priority=0)
    assert submit(world, led(2, priority=100)).decide().evictions == ()


def test_small_followers_count_as_small() -> None:
    world = busy(fabric(2, 2), "l0-n0", 8)
    plan = submit(busy(world, "l1-n0", 6), led(2, request=Request(gpus=1))).decide()
    assert [leaf_of(each.node) for each in plan.starts] == ["l1"]
    assert [each.node for each in plan.nominations] == ["l1-n0", "l1-n0"]


def test_the_queue_must_have_room_for_the_followers() -> None:
    world = fabric(4).queue("lab", gpu_limit=24_000)
    assert submit(world, led(3, queue="lab")).decide().starts == ()
    assert len(submit(fabric(4).queue("lab", gpu_limit=32_000), led(3, queue="lab")).decide().starts) == 1


def test_the_same_snapshot_gives_the_same_plan() -> None:
    world = submit(submit(busy(fabric(3, 4, 4), "l1-n2", 3), led(2, "one")), led(3, "two"))
    snapshot = world.snapshot()
    assert encode_plan(decide(snapshot)) == encode_plan(decide(snapshot))
