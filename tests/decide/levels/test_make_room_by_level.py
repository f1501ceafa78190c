"""Reclaim, preemption, consolidation and planned starts respect levels, and proofs know them."""

from msgspec.structs import replace

from kaiwo.explain import sentence, why
from kaiwo.explain.obstacle_sentences import remedy
from kaiwo.model.events import NodeChanged, TopologyChanged, WorkloadChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.obstacle import LevelShort, NodeBound, Obstacle, Reason
from kaiwo.model.policy import Policy
from tests.decide.levels.fabrics import LEAF, busy, fabric, gang, leaf_of, leaves_of, nodes_of, roles_of
from tests.worlds import World

ALL_ACTIONS = Policy(actions=("allocate", "consolidate", "reclaim", "preempt", "stale-gangs"))


def with_teams(world: World, quota: int) -> World:
    world.queue("rich", quota_milli=quota * 1000)
    return world.queue("poor")


def test_reclaim_frees_nodes_of_one_domain() -> None:
    world = with_teams(fabric(2, 2, 2, 2), 16)
    for leaf in range(4):
        for node in range(2):
            busy(world, f"l{leaf}-n{node}", queue="poor")
    world.submit("train", pods=2, gpus_each=8, queue="rich", required_level=LEAF)
    plan = world.decide()
    assert len(plan.evictions) == 2
    assert len({leaf_of(each.node) for each in plan.nominations}) == 1
    world.let_go().settle()
    assert len(leaves_of(world, "train")) == 1


def test_reclaim_looks_in_the_domain_where_least_must_stop() -> None:
    world = with_teams(fabric(2, 2, 2), 16)
    for node in ("l0-n0", "l0-n1", "l1-n0", "l2-n0", "l2-n1"):
        busy(world, node, queue="poor")
    world.submit("train", pods=2, gpus_each=8, queue="rich", required_level=LEAF)
    plan = world.decide()
    assert [each.workload for each in plan.evictions] == ["default/busy-l1-n0"]
    assert {each.node for each in plan.nominations} == {"l1-n0", "l1-n1"}


def test_a_domain_that_could_never_be_freed_is_a_proof() -> None:
    """Work of its own queue holds one node of each leaf, and may not be reclaimed."""
    world = with_teams(fabric(2, 2), 32)
    for leaf in range(2):
        busy(world, f"l{leaf}-n0", queue="rich", preemptible=False)
        busy(world, f"l{leaf}-n1", queue="poor")
    world.submit("train", pods=2, gpus_each=8, queue="rich", required_level=LEAF)
    assert world.decide().evictions == ()
    proof = next(each for each in world.obstacles("train") if each.reason is Reason.NOT_ENOUGH_RECLAIMABLE)
    assert (proof.need, proof.have, proof.facts) == (2, 1, NodeBound(level="leaf", domain="leaf-0"))
    assert sentence(proof).startswith("its 2 pods must run in one leaf, but leaf-0 would have room for only 1 even if")


def test_preemption_frees_a_whole_domain() -> None:
    world = fabric(2, 2)
    for leaf in range(2):
        for node in range(2):
            busy(world, f"l{leaf}-n{node}", priority=leaf)
    world.submit("train", pods=2, gpus_each=8, priority=5, required_level=LEAF)
    plan = world.decide()
    assert sorted(each.workload for each in plan.evictions) == ["default/busy-l0-n0", "default/busy-l0-n1"]
    assert {leaf_of(each.node) for each in plan.nominations if each.workload == "default/train"} == {"l0"}


def test_consolidation_moves_a_gang_only_inside_its_domain() -> None:
    """The gang on the first leaf could make room only by leaving its leaf, which it must not."""
    world = busy(fabric(2, 1, policy=ALL_ACTIONS), "l1-n0", 4)
    world.submit("pair", pods=2, gpus_each=4, required_level=LEAF, placement_strategy="distributed")
    world.settle()
    assert nodes_of(world, "pair") == {"main-0": "l0-n0", "main-1": "l0-n1"}
    world.submit("whole", pods=1, gpus_each=8)
    plan = world.decide()
    moved = {each.pod: each.node for each in plan.nominations if each.workload == "default/pair"}
    assert {leaf_of(node) for node in moved.values()} <= {"l0"}
    world.let_go().settle()
    assert leaves_of(world, "pair") == {"l0"}
    assert len(nodes_of(world, "whole")) == 1


def test_a_planned_start_moves_when_its_nodes_change_their_domain() -> None:
    world = fabric(2, 2)
    for leaf in range(2):
        for node in range(2):
            busy(world, f"l{leaf}-n{node}", time_limit_s=1000 if leaf else 500)
    world.submit("train", pods=2, gpus_each=8, required_level=LEAF, time_limit_s=100)
    world.decide()
    planned = world.state.planned_starts["default/train"]
    assert {leaf_of(each.node) for each in planned.places} == {"l0"}
    moved = world.state.node_objects["l0-n1"]
    world.tell(NodeChanged(replace(moved, labels={**moved.labels, "net/leaf": "leaf-9"})))
    world.now_s = 10
    world.decide()
    assert {leaf_of(each.node) for each in world.state.planned_starts["default/train"].places} == {"l1"}


def test_the_obstacle_names_the_domain_that_comes_closest() -> None:
    world = fabric(2, 3, leaves_per_spine=2).submit("train", pods=4, gpus_each=8, required_level=LEAF)
    world.decide()
    assert world.obstacles("train") == [
        Obstacle(Reason.LEVEL, 4, 3, "pods", "", LevelShort("leaf", "leaf-1", "fabric", is_too_small=True))
    ]
    assert sentence(world.obstacles("train")[0]) == (
        "its 4 pods must run in one leaf, but even an empty leaf has room for only 3"
    )


def test_the_obstacle_of_growing_work_names_its_own_domain() -> None:
    world = fabric(2, 3).submit("train", pods=3, gpus_each=8, minimum=2, required_level=LEAF)
    world.settle()
    (home,) = leaves_of(world, "train")
    if home == "l0":
        (found,) = world.obstacles("train")
        assert found.facts == LevelShort("leaf", "leaf-0", "fabric", is_home=True)
        assert "leaf-0, where its other pods run, has room for 0" in sentence(found)


def test_an_unknown_level_is_named_with_those_that_exist() -> None:
    world = fabric(2).submit("train", pods=2, gpus_each=8, topology="fabric", required_level="block")
    world.decide()
    (found,) = world.obstacles("train")
    assert sentence(found) == (
        "it must run in one block, but the topology 'fabric' has no such level on any node; known levels: spine, leaf"
    )


def test_a_level_is_not_known_where_no_topology_puts_a_node_into_it() -> None:
    """The sentence once said that there is no leaf, and that leaf is a known level."""
    world = World(nodes=2, gpus_per_node=8).submit("train", pods=2, gpus_each=8, required_level="leaf")
    world.decide()
    (found,) = world.obstacles("train")
    assert sentence(found) == "it must run in one leaf, but there is no such level on any node"
    assert remedy(found) == "check what is known of the network (kaiwo topology), or name another one"


def test_why_proposes_the_looser_level_that_would_start_it() -> None:
    world = fabric(2, 2, 2, 2).submit("train", pods=4, gpus_each=8, required_level=LEAF)
    world.decide()
    change = why(world.state, "default/train", world.policy, world.now_s).change
    assert change is not None
    assert (change.kind, change.by) == ("looser-level", "researcher")
    assert change.sentence == "let the pods run in one spine instead of one leaf"
    assert change.command == "kaiwo set train required-level=spine"


def test_why_proposes_to_prefer_a_level_that_no_wider_one_can_replace() -> None:
    world = fabric(2, 2, leaves_per_spine=1).submit("train", pods=4, gpus_each=8, required_level=LEAF)
    world.decide()
    change = why(world.state, "default/train", world.policy, world.now_s).change
    assert change is not None
    assert change.sentence == "only prefer that the pods run in one leaf"
    assert change.command == "kaiwo set train required-level= preferred-level=leaf"


def test_why_names_the_part_whose_level_is_too_tight() -> None:
    leaf = TopologyConstraint(required=LEAF)
    world = fabric(1, 2).tell(WorkloadChanged(gang("pair", roles_of(("a", 3, 8, leaf), ("b", 1, 1, None)))))
    world.decide()
    (found,) = world.obstacles("pair")
    assert sentence(found) == "3 pods of 'a' must run in one leaf, but even an empty leaf has room for only 2"
    world.tell(WorkloadChanged(gang("pair", roles_of(("a", 3, 8, leaf)))))
    world.decide()
    change = why(world.state, "default/pair", world.policy, world.now_s).change
    assert change is not None
    assert change.sentence == "let the pods of 'a' run in one spine instead of one leaf"


def test_a_changed_topology_is_tried_again() -> None:
    world = fabric(1, 1).submit("train", pods=2, gpus_each=8, required_level=LEAF)
    assert world.decide().starts == ()
    joined = Topology("fabric", (TopologyLevel(LEAF, "net/spine"),))
    world.tell(TopologyChanged(joined))
    assert len(world.decide().starts) == 2
