"""Pod affinity, anti-affinity, topology spread and host ports."""

import pytest
from msgspec.structs import replace

from kaiwo.model.affinity import (
    HOST_PORT_PREFIX,
    NodePreference,
    NodeRule,
    PodAffinity,
    RequiredPodAffinity,
    RequiredPodAntiAffinity,
    TopologySpread,
    affinity_of_nomination,
)
from kaiwo.model.events import NodeChanged, NominationChanged, PodChanged, PodGone, WorkloadChanged
from kaiwo.model.node import Taint
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Nomination, Plan
from kaiwo.model.request import Request, Toleration
from kaiwo.model.workload import Phase, Pod, Role, Workload
from tests.feasible_nodes import feasible_nodes
from tests.worlds import World

ZONE = "zone"
WEB_APART = PodAffinity(("web",), apart=(RequiredPodAntiAffinity("web"),))
WEB = PodAffinity(("web",))


def two_zones(nodes: int = 4, gpus: int = 8, **changes: object) -> World:
    """node-0 and node-1 are in zone a, the others in zone b."""
    world = World(nodes=0, **changes)  # type: ignore[arg-type]
    for number in range(nodes):
        world.node(f"node-{number}", gpus=gpus, labels={ZONE: "a" if number < 2 else "b"})
    return world


def one_gpu(neighbours: PodAffinity | None, **changes: object) -> Request:
    return Request(gpus=1, neighbours=neighbours, **changes)  # type: ignore[arg-type]


def may_go_to(world: World, neighbours: PodAffinity, **changes: object) -> set[str]:
    return set(feasible_nodes(world.snapshot(), one_gpu(neighbours, **changes)))


def test_pods_that_must_be_apart_are_on_nodes_of_their_own() -> None:
    world = World(nodes=4).submit("web", pods=4, request=one_gpu(WEB_APART))
    world.settle()
    assert world.nodes_of("web") == ["node-0", "node-1", "node-2", "node-3"]


def test_a_gang_that_cannot_be_apart_does_not_start_halfway() -> None:
    world = World(nodes=3).submit("web", pods=4, request=one_gpu(WEB_APART))
    world.settle()
    assert world.nodes_of("web") == []
    assert world.why("web") == [Reason.GANG]


def test_apart_by_zone_leaves_one_pod_a_zone() -> None:
    apart = PodAffinity(("web",), apart=(RequiredPodAntiAffinity("web", ZONE),))
    world = two_zones().submit("web", pods=2, request=one_gpu(apart))
    world.settle()
    assert [name < "node-2" for name in world.nodes_of("web")] == [True, False]
    world.submit("third", request=one_gpu(apart)).settle()
    assert world.why("third") == [Reason.PODS_TOO_NEAR]


def test_nodes_without_the_label_do_not_keep_pods_apart() -> None:
    apart = PodAffinity(("web",), apart=(RequiredPodAntiAffinity("web", ZONE),))
    world = two_zones(nodes=2).node("bare", gpus=4).submit("web", pods=5, request=one_gpu(apart))
    world.settle()
    assert world.nodes_of("web").count("bare") == 4
    world.submit("more", pods=2, request=one_gpu(apart)).settle()
    assert Reason.GANG in world.why("more")


def test_who_runs_and_must_be_apart_keeps_newcomers_away() -> None:
    world = World(nodes=2).submit(
        "web", request=one_gpu(PodAffinity(("shop",), apart=(RequiredPodAntiAffinity("web"),)))
    )
    world.settle()
    (home,) = world.nodes_of("web")
    assert may_go_to(world, WEB) == {"node-0", "node-1"} - {home}
    assert may_go_to(world, PodAffinity(("other",))) == {"node-0", "node-1"}


def test_who_must_be_near_waits_for_the_other_and_is_woken_by_it() -> None:
    world = two_zones().submit("client", request=one_gpu(PodAffinity(near=RequiredPodAffinity("web", (ZONE,)))))
    world.settle()
    assert world.why("client") == [Reason.PODS_NOT_NEAR]
    rule = NodeRule(ZONE, "In", ("b",))
    world.submit("web", request=one_gpu(WEB, node_rules=(rule,))).settle()
    assert world.nodes_of("client")[0] in ("node-2", "node-3")


def test_the_first_of_its_kind_may_begin_anywhere_and_the_rest_follow() -> None:
    near = PodAffinity(("ring",), near=RequiredPodAffinity("ring", (ZONE,)))
    world = two_zones(gpus=2)
    world.submit("ring-1", request=one_gpu(near)).settle()
    (first,) = world.nodes_of("ring-1")
    zone = {"node-0", "node-1"} if first < "node-2" else {"node-2", "node-3"}
    assert may_go_to(world, near) <= zone
    world.submit("ring-2", pods=3, request=one_gpu(near)).settle()
    assert set(world.nodes_of("ring-2")) <= zone


def test_a_ring_begins_where_all_of_it_has_room() -> None:
    """Packing alone would begin on the fullest node, whose zone is too small."""
    near = PodAffinity(("ring",), near=RequiredPodAffinity("ring", (ZONE,)))
    world = two_zones(gpus=4)
    world.submit("old", pods=7, gpus_each=1, request=one_gpu(None, node_rules=(NodeRule(ZONE, "In", ("a",)),))).settle()
    world.submit("ring", pods=6, request=one_gpu(near)).settle()
    assert set(world.nodes_of("ring")) == {"node-2", "node-3"}


def test_roles_of_a_gang_count_for_each_other() -> None:
    leader = Role(one_gpu(PodAffinity(("leader",))), "leader")
    worker = Role(one_gpu(PodAffinity(near=RequiredPodAffinity("leader", (ZONE,))), cpu_milli=1000), "worker", count=3)
    world = two_zones(gpus=2)
    world.tell(WorkloadChanged(Workload("default/gang", (worker, leader)))).settle()
    nodes = set(world.nodes_of("gang"))
    assert nodes in ({"node-0", "node-1"}, {"node-2", "node-3"})


def test_nodes_without_the_label_are_no_place_to_be_near_or_even() -> None:
    world = two_zones().node("bare")
    assert "bare" not in may_go_to(world, PodAffinity(("x",), near=RequiredPodAffinity("x", (ZONE,))))
    assert "bare" not in may_go_to(world, PodAffinity(("x",), spread=(TopologySpread("x", ZONE),)))
    assert "bare" in may_go_to(world, PodAffinity(("x",), apart=(RequiredPodAntiAffinity("x", ZONE),)))


def test_pods_are_spread_evenly_though_packing_would_fill_a_node() -> None:
    even = PodAffinity(("web",), spread=(TopologySpread("web", ZONE),))
    world = two_zones().submit("web", pods=7, request=one_gpu(even))
    world.settle()
    in_a = sum(name < "node-2" for name in world.nodes_of("web"))
    assert in_a in (3, 4)


def test_a_spread_is_judged_by_the_places_that_its_rules_leave() -> None:
    world = two_zones()
    world.submit("old", request=one_gpu(WEB, node_rules=(NodeRule(ZONE, "In", ("a",)),))).settle()
    only_a = (NodeRule(ZONE, "In", ("a",)),)
    spread = TopologySpread("web", ZONE)
    assert may_go_to(world, PodAffinity(("web",), spread=(spread,))) == {"node-2", "node-3"}
    assert may_go_to(world, PodAffinity(("web",), spread=(spread,), own_rules=only_a)) == {
        "node-0", "node-1", "node-2", "node-3",
    }  # fmt: skip
    blind = replace(spread, by_rules=False)
    assert may_go_to(world, PodAffinity(("web",), spread=(blind,), own_rules=only_a)) == {"node-2", "node-3"}
    assert may_go_to(world, PodAffinity(("web",), spread=(replace(spread, min_places=3),))) == {"node-2", "node-3"}


def test_a_spread_may_leave_out_places_with_taints() -> None:
    world = two_zones()
    world.submit("old", request=one_gpu(WEB, node_rules=(NodeRule(ZONE, "In", ("a",)),))).settle()
    for number in (2, 3):
        world.node(f"node-{number}", labels={ZONE: "b"}, taints=(Taint("gpu"),))
    rule = TopologySpread("web", ZONE, by_taints=True)
    even = PodAffinity(("web",), spread=(rule,))
    assert may_go_to(world, even) == {"node-0", "node-1"}
    assert may_go_to(world, even, tolerations=(Toleration("gpu", "Exists"),)) == {"node-2", "node-3"}
    assert may_go_to(world, replace(even, spread=(replace(rule, by_taints=False),))) == set()


def test_a_port_of_a_node_is_given_out_once() -> None:
    port = PodAffinity((HOST_PORT_PREFIX + "TCP/80",), apart=(RequiredPodAntiAffinity(HOST_PORT_PREFIX + "TCP/80"),))
    world = World(nodes=2).submit("web", pods=2, request=one_gpu(port))
    world.settle()
    assert world.nodes_of("web") == ["node-0", "node-1"]
    world.submit("more", request=one_gpu(port)).settle()
    assert world.why("more") == [Reason.PORT_TAKEN]
    world.finish("web").settle()
    assert world.is_running("more")


def test_kept_space_keeps_others_away_and_attracts_nobody() -> None:
    world = World(nodes=2).submit("web", request=one_gpu(WEB_APART, cpu_milli=1), held=True)
    world.tell(
        NominationChanged(Nomination("default/web", "main-0", "node-0", neighbours=affinity_of_nomination(WEB_APART)))
    )
    assert may_go_to(world, WEB_APART) == {"node-1"}
    assert may_go_to(world, WEB) == {"node-1"}
    assert may_go_to(world, PodAffinity(near=RequiredPodAffinity("web", ("",)))) == set()


def test_space_is_kept_no_longer_where_somebody_came_too_near() -> None:
    world = World(nodes=2, gpus_per_node=1).submit("low", pods=2, gpus_each=1, minimum=1, priority=1)
    world.settle()
    world.submit("high", request=one_gpu(WEB_APART), priority=10)
    (kept_space,) = world.decide().nominations
    foreign = Pod("kube-system/agent", "main-0", kept_space.node, neighbours=WEB)
    world.tell(PodChanged(foreign)).let_go()
    assert world.decide().given_up == (("default/high", "main-0"),)
    world.settle()
    assert world.nodes_of("high") == [name for name in ("node-0", "node-1") if name != kept_space.node]


def test_those_who_leave_keep_others_away_until_they_are_gone() -> None:
    world = World(nodes=1).submit("old", request=one_gpu(WEB_APART))
    world.settle()
    pod = world.state.pods["default/old"]["main-0"]
    world.tell(PodChanged(replace(pod, phase=Phase.RELEASING))).submit("new", request=one_gpu(WEB_APART))
    plan = world.decide()
    assert plan.starts == ()
    assert [kept.pod for kept in plan.nominations if kept.workload == "default/new"] == ["main-0"]
    world.tell(PodGone("default/old", "main-0")).settle()
    assert world.is_running("new") or world.is_running("old")


def test_a_victim_does_not_come_back_beside_who_must_be_apart_from_it() -> None:
    """There is room for both on the node: without the rule nobody would have to go."""
    world = World(nodes=1).submit("low", request=one_gpu(WEB), priority=1)
    world.settle()
    world.submit("high", request=one_gpu(WEB_APART), priority=10)
    plan = world.decide()
    assert [each.workload for each in plan.evictions] == ["default/low"]
    world.let_go().settle()
    assert world.is_running("high")
    assert not world.is_running("low")


def test_nobody_is_stopped_for_work_that_stops_nobody() -> None:
    world = World(nodes=1, gpus_per_node=1).running("low", gpus=1, priority=1)
    world.submit("calm", gpus_each=1, priority=10, stops_others=False)
    assert world.decide().evictions == ()
    world.submit("eager", gpus_each=1, priority=10)
    assert [each.workload for each in world.decide().evictions] == ["default/low"]


def test_nobody_is_stopped_where_it_would_not_help() -> None:
    """The pods that stand in the way may not be stopped, so stopping another one is in vain."""
    world = World(nodes=1).submit("fixed", request=one_gpu(WEB), preemptible=False)
    world.queue("default", quota_milli=8_000).submit("low", gpus_each=1, priority=1).settle()
    world.submit("high", request=one_gpu(WEB_APART), priority=10)
    assert world.decide().evictions == ()
    assert Reason.PODS_TOO_NEAR in world.why("high")


def test_a_label_that_moves_a_node_moves_its_pods_too() -> None:
    world = two_zones().submit("web", request=one_gpu(WEB, node_rules=(NodeRule(ZONE, "In", ("a",)),)))
    world.settle()
    (home,) = world.nodes_of("web")
    near = PodAffinity(near=RequiredPodAffinity("web", (ZONE,)))
    assert may_go_to(world, near) == {"node-0", "node-1"}
    world.tell(NodeChanged(replace(world.state.node_objects[home], labels={ZONE: "b"})))
    assert may_go_to(world, near) == {home, "node-2", "node-3"}


def test_undoing_leaves_no_trace() -> None:
    world = two_zones().submit("web", pods=3, request=one_gpu(WEB_APART))
    before = dict(world.state.affinity_counts.by_node)
    plan: Plan = world.decide()
    assert len(plan.starts) == 3
    world.finish("web")
    assert world.state.affinity_counts.by_node == before == {}
    assert world.state.affinity_counts.levels == {}


def test_of_feasible_nodes_the_preferred_one_is_taken() -> None:
    """Even where packing would fill another one."""
    world = World(nodes=3).running("old", gpus=4)
    (full,) = set(world.nodes_of("old"))
    last = sorted({"node-0", "node-1", "node-2"} - {full})[-1]
    world.tell(NodeChanged(replace(world.state.node_objects[last], labels={"disk": "ssd"})))
    prefers = (NodePreference(50, (NodeRule("disk", "In", ("ssd",)),)), NodePreference(1, (NodeRule("x", "Exists"),)))
    world.submit("new", request=Request(gpus=1, prefers=prefers)).settle()
    assert world.nodes_of("new") == [last]


UNSCHEDULABLE, NOT_READY, UNREACHABLE = (
    f"node.kubernetes.io/{word}" for word in ("unschedulable", "not-ready", "unreachable")
)


@pytest.mark.parametrize(
    ("node", "tolerated", "is_let_in"),
    [
        ({"cordoned": True}, (), False),
        ({"cordoned": True}, (UNSCHEDULABLE,), True),
        ({"ready": False}, (), False),
        ({"ready": False}, (NOT_READY,), False),  # not yet tainted: it may yet turn out to be out of reach
        ({"ready": False}, (NOT_READY, UNREACHABLE), True),
        ({"ready": False, "taints": (Taint(NOT_READY),)}, (NOT_READY,), True),
        ({"ready": False, "taints": (Taint(UNREACHABLE),)}, (NOT_READY,), False),
    ],
)
def test_who_tolerates_a_node_in_trouble_may_go_there(
    node: dict[str, object], tolerated: tuple[str, ...], is_let_in: bool
) -> None:
    world = World(nodes=0).node("node", **node)
    want = Request(tolerations=tuple(Toleration(key, "Exists", effect="NoSchedule") for key in tolerated))
    assert feasible_nodes(world.snapshot(), want) == (("node",) if is_let_in else ())


@pytest.mark.parametrize("value", ["1_0", " 5", "", "x", "99999999999999999999"])
def test_what_is_no_number_is_neither_more_nor_less(value: str) -> None:
    assert not NodeRule("gen", "Gt", ("1",)).holds({"gen": value})
    assert not NodeRule("gen", "Lt", ("100",)).holds({"gen": value})
    assert NodeRule("gen", "Gt", ("4",)).holds({"gen": "5"})


def test_pods_that_must_be_together_begin_where_all_of_them_find_room() -> None:
    world = World(nodes=0)
    for name, zone, gpus in (("a0", "a", 2), ("b0", "b", 2), ("b1", "b", 1), ("c0", "c", 8)):
        world.node(name, gpus=gpus, labels={"zone": zone})
    near = PodAffinity(marks=("app=x",), near=RequiredPodAffinity("app=x", ("zone",)))
    world.submit("gang", pods=3, request=Request(gpus=1, neighbours=near)).settle()
    assert world.nodes_of("gang") == ["b0", "b0", "b1"]
