"""Access rules: who may use which domains of the network."""

from msgspec.structs import replace

from kaiwo.explain import sentence
from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import NodeChanged, QueueChanged, TopologyChanged
from kaiwo.model.network.topology import Domain, DomainAccess, Topology, TopologyLevel
from kaiwo.model.obstacle import ClosedDomains, Reason
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from tests.decide.levels.fabrics import FABRIC, busy, fabric, leaf_of, leaves_of, nodes_of
from tests.worlds import World


def with_rules(world: World, *rules: DomainAccess) -> World:
    return world.tell(TopologyChanged(replace(FABRIC, access=rules)))


def test_work_of_another_queue_stays_out_of_a_closed_leaf() -> None:
    world = with_rules(fabric(1, 1), DomainAccess(("leaf-0",), queues=("research",)))
    world.queue("research").submit("theirs", gpus_each=8, queue="research")
    world.submit("ours", gpus_each=8).settle()
    assert (leaves_of(world, "theirs"), leaves_of(world, "ours")) == ({"l0"}, {"l1"})


def test_a_rule_about_a_queue_admits_the_queues_below_it() -> None:
    world = with_rules(fabric(1), DomainAccess(("spine-0",), queues=("lab",)))
    world.queue("lab").tell(QueueChanged(Queue("vision", parent="lab")))
    world.submit("theirs", gpus_each=8, queue="vision").settle()
    assert world.is_running("theirs")


def test_a_rule_about_a_namespace_admits_its_work_whatever_the_queue() -> None:
    world = with_rules(fabric(1), DomainAccess(("leaf-0",), namespaces=("default",)))
    world.submit("ours", gpus_each=8).settle()
    assert world.is_running("ours")


def test_a_domain_in_two_rules_is_open_to_both() -> None:
    rules = (DomainAccess(("leaf-0",), queues=("a",)), DomainAccess(("leaf-0",), queues=("b",)))
    world = with_rules(fabric(1), *rules).queue("a").queue("b").queue("c")
    for name in "abc":
        world.submit(f"of-{name}", gpus_each=1, queue=name)
    world.settle()
    assert [world.is_running(f"of-{name}") for name in "abc"] == [True, True, False]


def test_a_rule_without_anybody_closes_the_domain_to_all_work() -> None:
    world = with_rules(fabric(1), DomainAccess(("spine-0",)))
    world.submit("ours", gpus_each=1).settle()
    assert not world.is_running("ours")


def test_a_leaf_of_one_rail_closes_the_nodes_of_its_unit() -> None:
    """Domains that share nodes count as one, and a rule may name any of them."""
    domains = (Domain("leaf-1", "leaf", nodes=("l0-n0",)), Domain("leaf-2", "leaf", nodes=("l0-n0",)))
    railed = Topology("fabric", (TopologyLevel("leaf"),), domains, access=(DomainAccess(("leaf-2",)),))
    world = fabric(1).tell(TopologyChanged(railed))
    world.submit("ours", gpus_each=1).settle()
    assert not world.is_running("ours")


def test_why_names_the_closed_domains() -> None:
    world = with_rules(fabric(2, 1), DomainAccess(("leaf-0",), queues=("research",))).queue("research")
    busy(world, "l1-n0")
    world.submit("ours", gpus_each=8)
    world.decide()
    (closed,) = [each for each in world.obstacles("ours") if each.reason is Reason.DOMAIN_CLOSED]
    assert closed.facts == ClosedDomains(("leaf-0",), 0, 2, 3)
    assert sentence(closed) == "2 of 3 nodes are in domains that are closed to its queue and namespace (leaf-0)"


def test_a_gang_with_a_level_is_told_about_the_open_domains_alone() -> None:
    world = with_rules(fabric(4, 2), DomainAccess(("leaf-0",), queues=("research",))).queue("research")
    world.submit("ours", pods=3, gpus_each=8, required_level="leaf")
    world.decide()
    level = next(each for each in world.obstacles("ours") if each.reason is Reason.LEVEL)
    assert (level.need, level.have, getattr(level.facts, "domain", "")) == (3, 2, "leaf-1")


def test_waiting_work_starts_when_the_rule_is_taken_back() -> None:
    world = with_rules(fabric(1), DomainAccess(("leaf-0",), queues=("research",)))
    world.submit("ours", gpus_each=8).settle()
    assert not world.is_running("ours")
    world.tell(TopologyChanged(FABRIC)).settle()
    assert world.is_running("ours")


def test_work_that_runs_in_a_domain_stays_when_it_is_closed_and_does_not_grow_there() -> None:
    world = fabric(2, 1)
    world.submit("ours", pods=2, minimum=1, gpus_each=8, required_level="leaf")
    busy(world, "l0-n1")
    busy(world, "l1-n0")
    world.settle()
    before = nodes_of(world, "ours")
    with_rules(world, DomainAccess(("leaf-0",), queues=("research",))).finish("busy-l0-n1").settle()
    assert nodes_of(world, "ours") == before


def test_reclaim_frees_only_domains_that_are_open_to_the_claimant() -> None:
    world = fabric(1, 1).queue("rich", quota_milli=16_000).queue("poor")
    busy(world, "l0-n0", queue="poor")
    busy(world, "l1-n0", queue="poor")
    with_rules(world, DomainAccess(("leaf-0",), queues=("poor",)))
    world.submit("train", gpus_each=8, queue="rich")
    plan = world.decide()
    assert [each.workload for each in plan.evictions] == ["default/busy-l1-n0"]
    assert {each.node for each in plan.nominations} == {"l1-n0"}


def test_a_nomination_in_a_domain_that_was_closed_is_given_up() -> None:
    world = fabric(1, 1, policy=Policy(hold_off_s=0)).queue("rich", quota_milli=8_000).queue("poor")
    busy(world, "l0-n0", queue="poor")
    busy(world, "l1-n0", queue="poor")
    world.submit("train", gpus_each=8, queue="rich")
    (nominated,) = {each.node for each in world.decide().nominations}
    leaf = "leaf-0" if nominated == "l0-n0" else "leaf-1"
    with_rules(world, DomainAccess((leaf,), queues=("poor",)))
    world.let_go().settle()
    assert nominated not in nodes_of(world, "train").values()


def gang_over_a_closed_leaf(world: World) -> World:
    """It runs on `l0-n0`, in a leaf that was closed meanwhile, and on `l1-n0`, which other work can have only if the
    gang moves: then it restarts as a whole."""
    world.submit("gang", pods=2, gpus_each=5).settle()
    assert sorted(nodes_of(world, "gang").values()) == ["l0-n0", "l1-n0"]
    return with_rules(world, DomainAccess(("leaf-0",), queues=("research",)))


CONSOLIDATES = Policy(actions=("allocate", "consolidate"))
ON_L1_N0 = Request(gpus=8, node_rules=(NodeRule("host", "In", ("l1-n0",)),))


def test_a_gang_that_moves_does_not_restart_in_a_domain_that_was_closed() -> None:
    world = gang_over_a_closed_leaf(fabric(1, 3, policy=CONSOLIDATES)).submit("large", request=ON_L1_N0)
    plan = world.decide()
    assert sorted(each.node for each in plan.nominations) == ["l1-n0", "l1-n1", "l1-n2"]
    world.let_go().settle()
    assert world.is_running("large")
    assert leaves_of(world, "gang") == {"l1"}


def test_a_gang_does_not_move_where_a_part_of_it_could_not_restart() -> None:
    """There is room for one of its pods, and none for the other outside the closed leaf."""
    world = gang_over_a_closed_leaf(fabric(1, 2, policy=CONSOLIDATES)).submit("large", request=ON_L1_N0)
    assert world.decide().evictions == ()
    assert sorted(nodes_of(world, "gang").values()) == ["l0-n0", "l1-n0"]


def test_a_gang_does_not_move_where_a_part_of_it_is_on_a_cordoned_node() -> None:
    world = fabric(1, 2, policy=CONSOLIDATES).submit("gang", pods=2, gpus_each=5)
    world.settle()
    world.tell(NodeChanged(replace(world.state.node_objects["l0-n0"], cordoned=True)))
    world.submit("large", request=ON_L1_N0)
    assert world.decide().evictions == ()


def test_pods_beyond_the_minimum_do_not_restart_in_a_closed_domain_with_their_gang() -> None:
    """The gang needs two of its three pods. It moves as a whole, and consolidation stops nothing for good."""
    world = fabric(1, 2, 2, policy=CONSOLIDATES)
    world.submit("gang", pods=3, minimum=2, gpus_each=5).settle()
    places = nodes_of(world, "gang")
    assert len(places) == 3
    needed = Request(gpus=8, node_rules=(NodeRule("host", "In", (places["main-0"],)),))
    with_rules(world, DomainAccess((f"leaf-{leaf_of(places['main-2'])[1:]}",), queues=("research",)))
    plan = world.submit("large", request=needed).decide()
    assert places["main-2"] not in {each.node for each in plan.nominations}
