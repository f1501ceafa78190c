"""What a failure took away comes back where the levels of the work require it, and nothing else is touched."""

import pytest
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import NodeChanged, NodeGone, TopologyChanged, WorkloadChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.network.topology import Attachment, Domain, NetworkLink, Topology, TopologyLevel
from kaiwo.model.node import SPARE_TAINT, Taint
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause, encode_plan
from kaiwo.model.policy import Policy
from kaiwo.model.recovery import RecoveryWay
from kaiwo.model.request import Request
from kaiwo.model.workload import Role
from tests.decide.levels.fabrics import busy, fabric, gang, leaves_of, nodes_of
from tests.decide.recovery.failures import (
    fail,
    fail_gpu,
    is_whole,
    other_evictions,
    recover,
    remember,
    restore,
    touched,
)
from tests.worlds import World, audit


def running_gang(world: World, pods: int, level: str = "leaf", name: str = "gang", gpus: int = 8) -> World:
    world.submit(name, pods=pods, gpus_each=gpus, required_level=level).settle()
    assert len(nodes_of(world, name)) == pods
    return world


def test_a_lost_pod_returns_to_the_leaf_of_its_gang() -> None:
    world = running_gang(fabric(4, 8), 3)
    before = nodes_of(world, "gang")
    lost = before["main-1"]
    plans = recover(fail(world, lost))
    after = nodes_of(world, "gang")
    assert touched(plans) == {"default/gang/main-1"}
    assert {pod: node for pod, node in after.items() if pod != "main-1"} == {
        pod: node for pod, node in before.items() if pod != "main-1"
    }
    assert after["main-1"] != lost
    assert leaves_of(world, "gang") == {"l0"}
    assert not world.state.failures.recoveries


def test_a_whole_leaf_fails_and_its_gangs_run_in_another_one() -> None:
    world = fabric(4, 4, 4, 4)
    running_gang(world, 4, name="lost")
    running_gang(world, 2, name="other")
    assert leaves_of(world, "lost") != leaves_of(world, "other")
    [leaf] = leaves_of(world, "lost")
    names = [f"{leaf}-n{at}" for at in range(4)]
    plan = fail(world, *names).decide()
    assert {each.cause for each in plan.evictions} == {EvictionCause.RECOVERY}
    [recovery] = plan.recoveries
    assert recovery.causes == (f"leaf leaf-{leaf[1:]}",)
    assert recovery.way is RecoveryWay.REPLACE
    assert plan.bad_nodes == (), "the leaf failed, not its nodes"
    before = nodes_of(world, "other")
    world.let_go()
    recover(world)
    assert is_whole(world, "lost")
    assert len(leaves_of(world, "lost")) == 1
    assert leaves_of(world, "lost") != {leaf}
    assert nodes_of(world, "other") == before


def test_the_new_place_is_kept_until_the_lost_pod_is_gone() -> None:
    world = running_gang(fabric(3), 2)
    lost = nodes_of(world, "gang")["main-0"]
    world.submit("greedy", gpus_each=8)
    fail(world, lost).decide()
    assert not world.is_running("greedy")
    world.decide()
    assert not world.is_running("greedy")
    world.let_go().decide()
    assert is_whole(world, "gang")
    assert not world.is_running("greedy")


def test_spare_nodes_take_only_pods_that_lost_their_place() -> None:
    world = fabric(3)
    spare = world.state.node_objects["l0-n2"]
    world.tell(NodeChanged(replace(spare, taints=(Taint(SPARE_TAINT),))))
    running_gang(world, 2)
    world.submit("more", gpus_each=8).settle()
    assert not world.is_running("more")
    recover(fail(world, "l0-n1"))
    assert set(nodes_of(world, "gang").values()) == {"l0-n0", "l0-n2"}
    assert not world.is_running("more")


def test_spare_nodes_come_before_free_room() -> None:
    world = fabric(5)
    spare = world.state.node_objects["l0-n4"]
    world.tell(NodeChanged(replace(spare, taints=(Taint(SPARE_TAINT),))))
    running_gang(world, 2)
    lost = nodes_of(world, "gang")["main-0"]
    recover(fail(world, lost))
    assert nodes_of(world, "gang")["main-0"] == "l0-n4"


def test_work_that_is_less_important_gives_way_inside_the_domain() -> None:
    world = fabric(3, 3)
    running_gang(world, 2)
    world.state.patch([])
    busy(world, "l0-n2", name="small", priority=-5)
    busy(world, "l1-n0", name="elsewhere", priority=-5)
    lost = nodes_of(world, "gang")["main-0"]
    plans = recover(fail(world, lost))
    assert is_whole(world, "gang")
    assert leaves_of(world, "gang") == {"l0"}
    assert other_evictions(plans) == ["default/small"]


def test_a_gang_moves_as_a_whole_when_its_domain_has_no_room() -> None:
    world = fabric(3, 4)
    running_gang(world, 2)
    assert leaves_of(world, "gang") == {"l0"}
    busy(world, "l0-n2", name="equal")
    lost = nodes_of(world, "gang")["main-0"]
    plans = recover(fail(world, lost))
    assert leaves_of(world, "gang") == {"l1"}
    assert is_whole(world, "gang")
    assert touched(plans) == {"default/gang/main-0", "default/gang/main-1"}
    assert RecoveryWay.MOVE in {each.way for plan in plans for each in plan.recoveries}
    assert world.is_running("equal")


def test_nothing_stops_for_a_move_that_has_no_room() -> None:
    world = fabric(3, 1)
    running_gang(world, 2)
    busy(world, "l0-n2", name="equal")
    lost = nodes_of(world, "gang")["main-0"]
    plans = recover(fail(world, lost))
    assert touched(plans) == {"default/gang/main-0"}
    obstacle = next(each for each in world.obstacles("gang") if each.reason is Reason.LEVEL)
    assert (obstacle.need, obstacle.have) == (1, 0)


def test_one_pod_of_others_moves_rather_than_a_whole_gang() -> None:
    policy = Policy(actions=("allocate", "consolidate", "reclaim", "preempt", "stale-gangs"))
    world = fabric(4, 4, policy=policy)
    running_gang(world, 3)
    busy_anywhere = Request(gpus=8)
    world.submit("single", request=busy_anywhere).settle()
    assert nodes_of(world, "single")["main-0"].startswith("l0")
    lost = nodes_of(world, "gang")["main-0"]
    plans = recover(fail(world, lost))
    assert leaves_of(world, "gang") == {"l0"}
    assert nodes_of(world, "single")["main-0"].startswith("l1")
    assert is_whole(world, "gang")
    assert sum(len(plan.evictions) for plan in plans) == 2


def test_only_the_segment_that_lost_a_pod_moves() -> None:
    world = fabric(2, 2, 2, 2, leaves_per_spine=4)
    world.submit("gang", pods=6, gpus_each=8, required_level="spine", segment_size=2, segment_level="leaf").settle()
    before = nodes_of(world, "gang")
    lost = before["main-2"]
    plans = recover(fail(world, lost))
    after = nodes_of(world, "gang")
    assert is_whole(world, "gang")
    assert touched(plans) == {"default/gang/main-2", "default/gang/main-3"}
    assert after["main-2"].partition("-")[0] == after["main-3"].partition("-")[0]
    assert {pod: after[pod] for pod in ("main-0", "main-1", "main-4", "main-5")} == {
        pod: before[pod] for pod in ("main-0", "main-1", "main-4", "main-5")
    }


def test_an_own_pod_that_may_run_anywhere_makes_room_for_a_segment() -> None:
    """One pod moves, although the segment has three that could."""
    world = fabric(5, 2, leaves_per_spine=2)
    roles = (Role(Request(gpus=8), "workers", 4), Role(Request(gpus=8), "extra", 1))
    workers = replace(roles[0], levels=TopologyConstraint(required="leaf"))
    world.tell(WorkloadChanged(gang("gang", (workers, roles[1]), required_level="spine"))).settle()
    assert leaves_of(world, "gang") == {"l0"}
    lost = nodes_of(world, "gang")["workers-0"]
    plans = recover(fail(world, lost))
    assert is_whole(world, "gang")
    assert touched(plans) == {"default/gang/workers-0", "default/gang/extra-0"}
    assert nodes_of(world, "gang")["extra-0"].startswith("l1")


def test_a_pod_that_may_still_run_is_not_replaced() -> None:
    world = running_gang(fabric(4), 2)
    lost = nodes_of(world, "gang")["main-0"]
    plans = recover(fail(world, lost, fenced=False))
    assert all(plan.evictions == () and plan.nominations == () and plan.starts == () for plan in plans)
    [recovery] = world.state.failures.recoveries.values()
    assert (recovery.way, recovery.lost) == (RecoveryWay.FENCE, ("main-0",))
    plans = recover(fail(world, lost, fenced=True))
    assert touched(plans) == {"default/gang/main-0"}
    assert is_whole(world, "gang")


def test_a_gang_that_needs_all_its_pods_waits_for_the_last_node_to_be_fenced() -> None:
    """One of its two lost pods may still run: replacing the other alone would not help, and might be in vain."""
    world = running_gang(fabric(6), 3)
    nodes = nodes_of(world, "gang")
    fail(world, nodes["main-0"], fenced=True)
    plans = recover(fail(world, nodes["main-1"], fenced=False))
    assert touched(plans) == set()
    assert world.state.failures.recoveries["default/gang"].way is RecoveryWay.FENCE
    assert touched(recover(fail(world, nodes["main-1"], fenced=True))) == {"default/gang/main-0", "default/gang/main-1"}
    assert is_whole(world, "gang")


def test_a_node_that_comes_back_before_it_is_fenced_ends_the_recovery() -> None:
    world = running_gang(fabric(4), 2)
    before = nodes_of(world, "gang")
    recover(fail(world, before["main-0"], fenced=False))
    recover(restore(world, before["main-0"]))
    assert nodes_of(world, "gang") == before
    assert not world.state.failures.recoveries


def test_elastic_work_loses_only_the_certain_pods() -> None:
    world = fabric(4)
    world.submit("elastic", pods=3, gpus_each=8, minimum=1, required_level="leaf").settle()
    nodes = nodes_of(world, "elastic")
    fail(world, nodes["main-1"], fenced=True)
    plans = recover(fail(world, nodes["main-2"], fenced=False))
    assert touched(plans) == {"default/elastic/main-1"}


def test_a_node_that_was_deleted_is_certainly_gone() -> None:
    world = running_gang(fabric(4), 2)
    lost = nodes_of(world, "gang")["main-0"]
    world.now_s = 100
    plans = recover(world.tell(NodeGone(lost, since_s=95)))
    assert touched(plans) == {"default/gang/main-0"}
    assert is_whole(world, "gang")
    assert plans[0].recoveries[0].since_s == 95


def test_a_broken_gpu_moves_only_the_pod_that_uses_it() -> None:
    world = World(nodes=1)
    world.submit("one", gpus_each=2).settle()
    world.submit("two", gpus_each=2).settle()
    broken = world.devices_of("one")[0].partition("/")[2]
    plans = recover(fail_gpu(world, "node-0", broken))
    assert touched(plans) == {"default/one/main-0"}
    assert f"node-0/{broken}" not in world.devices_of("one")
    assert len(world.devices_of("one")) == 2
    assert plans[0].bad_nodes == (), "the other GPUs of the node work"


def test_a_pod_on_a_broken_gpu_goes_on_until_there_is_another_place() -> None:
    world = World(nodes=1, gpus_per_node=2)
    world.submit("one", gpus_each=1).settle()
    world.submit("two", gpus_each=1).settle()
    broken = world.devices_of("one")[0].partition("/")[2]
    plans = recover(fail_gpu(world, "node-0", broken))
    assert touched(plans) == set()
    assert world.state.failures.recoveries["default/one"].way is RecoveryWay.WAIT
    world.finish("two")
    assert touched(recover(world)) == {"default/one/main-0"}
    assert broken not in world.devices_of("one")[0]
    assert not world.state.failures.recoveries


def test_an_unhealthy_gpu_that_has_not_failed_moves_nobody() -> None:
    """A GPU that drains for another partition mode is not healthy either."""
    world = World(nodes=2)
    world.submit("one", gpus_each=2).settle()
    node = world.state.node_objects["node-0"]
    gpus = tuple(replace(gpu, healthy=False, reason="it drains") for gpu in node.gpus)
    plans = recover(world.tell(NodeChanged(replace(node, gpus=gpus))))
    assert touched(plans) == set()


LINKED = Topology(
    "fabric",
    (TopologyLevel("leaf"),),
    tuple(Domain(f"leaf-{leaf}", "leaf", nodes=tuple(f"l{leaf}-n{at}" for at in range(3))) for leaf in range(2)),
    links=tuple(NetworkLink(f"leaf-{leaf}", "spine", 50_000, 4) for leaf in range(2)),
)


def linked_world() -> World:
    world = World(nodes=0).tell(TopologyChanged(LINKED))
    for leaf in range(2):
        for at in range(3):
            world.node(f"l{leaf}-n{at}")
    return world


def test_a_gang_whose_leaf_is_cut_off_gathers_on_the_larger_side() -> None:
    world = linked_world()
    world.submit("gang", pods=4, gpus_each=8, preferred_level="leaf").settle()
    leaves = [node.partition("-")[0] for node in nodes_of(world, "gang").values()]
    assert sorted(leaves.count(leaf) for leaf in ("l0", "l1")) in ([1, 3], [2, 2])
    dead = tuple(replace(link, dead=4) if link.lower == "leaf-1" else link for link in LINKED.links)
    plan = world.tell(TopologyChanged(replace(LINKED, links=dead))).decide()
    assert {each.cause for each in plan.evictions} == {EvictionCause.RECOVERY}
    assert plan.recoveries[0].causes == ("links of leaf-1",)


@pytest.mark.parametrize("cut", ["leaf-0", "leaf-1"])
def test_the_pods_on_the_smaller_side_of_a_cut_move_to_the_others(cut: str) -> None:
    """Two pods are in the first leaf and one in the second: it is lost, whichever of the two is cut off."""
    world = linked_world()
    for node in ("l0-n0", "l1-n0", "l1-n1"):
        there = Request(gpus=8, node_rules=(NodeRule("host", "In", (node,)),))
        world.node(node, labels={"host": node}).submit(f"busy-{node}", request=there).settle()
    world.submit("gang", pods=3, gpus_each=8, preferred_level="leaf").settle()
    places = nodes_of(world, "gang")
    [alone] = [pod for pod, node in places.items() if node.startswith("l1")]
    world.finish("busy-l0-n0")
    dead = tuple(replace(link, dead=4) if link.lower == cut else link for link in LINKED.links)
    plans = recover(world.tell(TopologyChanged(replace(LINKED, links=dead))))
    assert touched(plans) == {f"default/gang/{alone}"}
    assert leaves_of(world, "gang") == {"l0"}


def test_links_that_are_only_fewer_move_nobody() -> None:
    world = linked_world()
    world.submit("gang", pods=4, gpus_each=8, preferred_level="leaf").settle()
    worse = tuple(replace(link, dead=3) for link in LINKED.links)
    assert touched(recover(world.tell(TopologyChanged(replace(LINKED, links=worse))))) == set()


def test_a_node_without_a_working_port_loses_the_pods_of_gangs_and_nothing_else() -> None:
    """The lost pod does not return to it, although what it held there is free."""
    world = linked_world()
    world.submit("gang", pods=2, gpus_each=5, required_level="leaf").settle()
    spot = nodes_of(world, "gang")
    node = spot["main-0"]
    assert len(set(spot.values())) == 2
    world.submit("alone", gpus_each=3).settle()
    [also] = world.nodes_of("alone")
    ports = tuple(Attachment(name, f"leaf-{name[1]}", dead=int(name == also)) for name in world.state.nodes.names)
    assert also in spot.values()
    lost = "main-0" if also == node else "main-1"
    plans = recover(world.tell(TopologyChanged(replace(LINKED, attachments=ports))))
    assert touched(plans) == {f"default/gang/{lost}"}
    assert also not in {each.node for each in plans[0].nominations}
    assert is_whole(world, "gang")
    assert also not in nodes_of(world, "gang").values()
    assert leaves_of(world, "gang") == {spot["main-0"].partition("-")[0]}
    assert world.nodes_of("alone") == [also]


def test_the_same_snapshot_gives_the_same_recovery() -> None:
    world = running_gang(fabric(4, 4), 4)
    fail(world, "l0-n0", "l0-n1")
    snapshot = world.snapshot()
    assert encode_plan(decide(snapshot)) == encode_plan(decide(snapshot))


def test_the_most_important_work_recovers_first() -> None:
    world = fabric(5)
    running_gang(world, 2, name="low")
    world.submit("high", pods=2, gpus_each=8, required_level="leaf", priority=10).settle()
    fail(world, nodes_of(world, "low")["main-0"], nodes_of(world, "high")["main-0"])
    plan = world.decide()
    assert {each.workload for each in plan.nominations} == {"default/high"}
    assert {each.workload: each.way for each in plan.recoveries} == {
        "default/high": RecoveryWay.REPLACE,
        "default/low": RecoveryWay.WAIT,
    }


def test_recovery_stays_within_capacity_and_limits() -> None:
    world = fabric(4, 4)
    world.queue("small", gpu_limit=16_000)
    world.submit("gang", pods=2, gpus_each=8, required_level="leaf", queue="small").settle()
    lost = nodes_of(world, "gang")["main-0"]
    for plan in recover(fail(world, lost)):
        assert plan is not None
        assert audit(world.state) == []
    assert is_whole(world, "gang")


@pytest.mark.parametrize("times", [1, 2, 3, 4, 9])
def test_a_node_that_comes_and_goes_stays_out_for_a_growing_time(times: int) -> None:
    world = World(nodes=1)
    world.now_s = 1000
    for _ in range(times):
        fail(world, "node-0").decide()
        restore(world, "node-0")
    out_s = {1: 0, 2: 60, 3: 120, 4: 240, 9: 3600}[times]
    world.submit("job", gpus_each=1).decide()
    assert world.is_running("job") is (out_s == 0)
    if out_s:
        world.now_s += out_s - 1
        world.decide()
        assert not world.is_running("job")
        world.now_s += 1
        world.decide()
        assert world.is_running("job")


def test_what_the_plan_remembers_is_remembered_once() -> None:
    world = World(nodes=2)
    world.submit("hero", pods=2, gpus_each=4).settle()
    [node, *_] = world.nodes_of("hero")
    plan = fail(world, node).decide()
    assert [bad.node for bad in plan.bad_nodes] == [node]
    remember(world, plan)
    assert world.state.failures.bad_nodes_of("default/hero") == (node,)
    assert all(not plan.bad_nodes for plan in recover(world))


def test_a_kept_place_that_leaves_the_leaf_is_not_used() -> None:
    """The node was moved to another leaf while the lost pod was still going."""
    world = running_gang(fabric(4, 8), 2)
    plan = fail(world, nodes_of(world, "gang")["main-1"]).decide()
    [kept] = [each.node for each in plan.nominations]
    labels = world.state.node_objects[kept].labels | {"net/leaf": "leaf-1"}
    world.tell(NodeChanged(replace(world.state.node_objects[kept], labels=labels)))
    world.let_go().settle()
    assert is_whole(world, "gang")
    assert kept not in nodes_of(world, "gang").values()
    assert leaves_of(world, "gang") == {"l0"}
