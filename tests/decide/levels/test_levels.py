"""Levels: the pods of a workload, a sub-group or a segment run in one domain, or wait."""

import pytest
from msgspec.structs import replace

from kaiwo.decide.placement import place_by_level
from kaiwo.explain import sentence
from kaiwo.model.events import NodeChanged, PodGone, TopologyChanged, WorkloadChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.network.topology import Domain, Topology, TopologyLevel
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup
from tests.decide.levels.fabrics import LEAF, SPINE, busy, chosen, fabric, gang, leaf_of, leaves_of, nodes_of, roles_of
from tests.worlds import World


def test_a_required_level_keeps_a_gang_in_one_domain() -> None:
    world = busy(fabric(2, 3), "l0-n0")
    world.submit("train", pods=3, gpus_each=8, required_level=LEAF)
    plan = world.decide()
    assert leaves_of(world, "train") == {"l1"}
    assert chosen(plan, "train") == ("leaf", "leaf-1")


def test_a_gang_that_no_domain_can_hold_waits_although_the_sum_would_do() -> None:
    world = fabric(2, 2).submit("train", pods=3, gpus_each=8, required_level=LEAF)
    assert world.decide().starts == ()
    world.submit("wide", pods=3, gpus_each=8, required_level=SPINE)
    assert len(world.decide().starts) == 3


def test_a_preferred_level_gives_way_to_as_few_domains_as_possible() -> None:
    world = fabric(2, 4, 3, leaves_per_spine=3).submit("train", pods=6, gpus_each=8, preferred_level=LEAF)
    plan = world.decide()
    # Four nodes of the roomiest leaf, and the two of the tightest that has room for the rest.
    assert sorted(map(leaf_of, nodes_of(world, "train").values())) == ["l0", "l0", "l1", "l1", "l1", "l1"]
    assert chosen(plan, "train") == ("spine", "spine-0")


def test_a_preferred_level_never_keeps_work_waiting() -> None:
    world = fabric(1, 1, leaves_per_spine=1).submit("train", pods=2, gpus_each=8, preferred_level=SPINE)
    plan = world.decide()
    assert leaves_of(world, "train") == {"l0", "l1"}
    assert chosen(plan, "train") == ("", "")


def test_the_tightest_level_that_fits_is_chosen() -> None:
    world = fabric(1, 2, 2).submit("pair", pods=2, gpus_each=4, required_level=SPINE)
    plan = world.decide()
    assert len(set(nodes_of(world, "pair").values())) == 1  # one node is tighter than a leaf or a spine
    assert chosen(plan, "pair")[0] == "node"


def test_only_the_stated_level_counts_when_the_work_says_so() -> None:
    world = busy(fabric(2, gpus=2), "l0-n0", 1)
    world.submit("train", pods=2, gpus_each=1, required_level=LEAF, placement_strategy="stated")
    world.decide()
    assert nodes_of(world, "train") == {"main-0": "l0-n0", "main-1": "l0-n1"}


def test_an_unknown_level_holds_nothing() -> None:
    world = fabric(2).submit("train", pods=2, gpus_each=8, required_level="pod")
    assert world.decide().starts == ()
    world.submit("other", pods=2, gpus_each=8, topology="none-such", required_level=LEAF)
    assert world.decide().starts == ()


def test_a_level_may_be_a_node_label_without_any_topology() -> None:
    world = World(nodes=0)
    for name, rack in (("a", "1"), ("b", "2"), ("c", "2")):
        world.node(name, labels={"rack": rack})
    world.submit("train", pods=2, gpus_each=8, required_level="rack")
    world.decide()
    assert set(nodes_of(world, "train").values()) == {"b", "c"}


def test_nodes_outside_every_domain_take_no_pods_of_a_required_level() -> None:
    world = fabric(1).node("loose").submit("train", pods=2, gpus_each=8, required_level=SPINE)
    assert world.decide().starts == ()


def test_a_heterogeneous_gang_is_packed_and_not_only_summed() -> None:
    """By sums, the first leaf has room: 4 + 4 free GPUs. But pods of 5 and 3 do not fit on 4 + 4."""
    world = busy(busy(fabric(2, 2), "l0-n0", 4), "l0-n1", 4)
    mixed = gang("mixed", roles_of(("large", 1, 5, None), ("small", 1, 3, None)), required_level=LEAF)
    world.tell(WorkloadChanged(mixed))
    world.decide()
    assert leaves_of(world, "mixed") == {"l1"}


def test_sub_groups_have_levels_of_their_own_inside_that_of_the_workload() -> None:
    leaf = TopologyConstraint(required=LEAF)
    groups = (SubGroup(), SubGroup("left", levels=leaf), SubGroup("right", levels=leaf))
    roles = tuple(Role(Request(gpus=8), f"{side}-workers", 2, group=side) for side in ("left", "right"))
    world = busy(fabric(2, 2, 2, 2), "l0-n0")
    world.tell(WorkloadChanged(gang("twins", roles, groups, required_level=SPINE)))
    plan = world.decide()
    where = nodes_of(world, "twins")
    assert {leaf_of(where[f"left-workers-{at}"]) for at in range(2)} == {"l2"}
    assert {leaf_of(where[f"right-workers-{at}"]) for at in range(2)} == {"l3"}
    assert (chosen(plan, "twins"), chosen(plan, "twins", "right")) == (("spine", "spine-1"), ("leaf", "leaf-3"))


def test_an_earlier_part_makes_way_when_a_later_one_would_not_fit() -> None:
    """The first role would take the tight leaf of two; but then the second finds no leaf with three nodes."""
    leaf = TopologyConstraint(required=LEAF)
    world = busy(fabric(3, 3, leaves_per_spine=2), "l0-n0", 8)
    parts = roles_of(("big", 1, 8, leaf), ("wide", 3, 1, leaf))
    ports = replace(parts[1], request=Request(cpu_milli=190_000, gpus=1))
    world.tell(WorkloadChanged(gang("pair", (parts[0], ports), required_level=SPINE)))
    world.decide()
    where = nodes_of(world, "pair")
    assert {leaf_of(where[f"wide-{at}"]) for at in range(3)} == {"l1"}
    assert leaf_of(where["big-0"]) == "l0"


def test_segments_of_pods_share_a_domain_by_their_index() -> None:
    world = fabric(3, 2, 3, leaves_per_spine=3)
    world.submit("train", pods=6, gpus_each=8, required_level=SPINE, segment_size=2, segment_level=LEAF)
    world.decide()
    where = nodes_of(world, "train")
    for first in (0, 2, 4):
        assert leaf_of(where[f"main-{first}"]) == leaf_of(where[f"main-{first + 1}"])


def test_segments_wait_when_the_domains_hold_too_few_of_them_whole() -> None:
    world = fabric(3, 3).submit("train", pods=6, gpus_each=8, segment_size=2, segment_level=LEAF)
    assert world.decide().starts == ()  # each leaf of three nodes holds one segment of two


def test_neighbouring_indices_are_near_each_other() -> None:
    world = fabric(2, 2).submit("train", pods=4, gpus_each=8, required_level=SPINE)
    world.decide()
    where = nodes_of(world, "train")
    assert [leaf_of(where[f"main-{at}"]) for at in range(4)] == ["l0", "l0", "l1", "l1"]


def test_a_lost_pod_returns_to_the_domain_of_its_gang() -> None:
    world = busy(busy(fabric(3, 3), "l1-n2"), "l0-n2")
    world.submit("train", pods=2, gpus_each=8, required_level=LEAF)
    world.settle()
    (home,) = leaves_of(world, "train")
    lost = nodes_of(world, "train")["main-1"]
    broken = world.state.node_objects[lost]
    world.tell(NodeChanged(replace(broken, cordoned=True)), PodGone("default/train", "main-1"))
    assert world.decide().starts == ()  # the third node of its leaf is busy; those of the other leaf are free
    world.finish(f"busy-{home}-n2").settle()
    assert nodes_of(world, "train")["main-1"] == f"{home}-n2"


def test_elastic_work_grows_only_in_its_domain() -> None:
    world = fabric(2, 4, leaves_per_spine=2).submit("train", pods=6, gpus_each=8, minimum=2, required_level=LEAF)
    world.settle()
    (home,) = leaves_of(world, "train")
    assert len(nodes_of(world, "train")) == (2 if home == "l0" else 4)


def test_work_that_prefers_a_level_grows_beyond_its_domain() -> None:
    world = fabric(2, 2).submit("train", pods=3, gpus_each=8, minimum=2, preferred_level=LEAF)
    world.settle()
    assert len(nodes_of(world, "train")) == 3
    assert len(leaves_of(world, "train")) == 2


def test_placements_in_vain_count_for_the_step_budget() -> None:
    """By number, each leaf has room for two pods of three GPUs and one of two. Together they do not fit."""
    world = fabric(2, 2, 2, 2)
    for leaf in range(4):
        for node in range(2):
            busy(world, f"l{leaf}-n{node}", 4)
    parts = roles_of(("a", 2, 3, None), ("b", 1, 2, None))
    plan = world.tell(WorkloadChanged(gang("mixed", parts, required_level=LEAF))).decide()
    assert plan.starts == ()
    assert plan.steps >= 8, "four leaves were tried, and in each of them two roles"
    (found,) = world.obstacles("mixed")
    assert (found.reason, found.need, found.have) == (Reason.LEVEL, 3, 3)
    assert sentence(found) == (
        "its 3 pods must run in one leaf; by number they would fit, but not all together on its nodes"
    )
    assert len(world.tell(WorkloadChanged(gang("mixed", parts))).decide().starts) == 3


def test_a_single_node_is_the_narrowest_level() -> None:
    for key in ("node", "host", "kubernetes.io/hostname"):
        world = fabric(2).submit("pair", pods=2, gpus_each=4, required_level=key)
        world.submit("trio", pods=3, gpus_each=8, required_level=key).decide()
        assert len(set(nodes_of(world, "pair").values())) == 1
        found = world.obstacles("trio")[0]
        assert sentence(found) == "its 3 pods must run in one node, but even an empty node has room for only 1"


def test_a_topology_that_knows_no_node_is_not_taken_for_a_level() -> None:
    """A dump of another cluster, whose name comes first, has leaves too."""
    world = fabric(2, 2)
    levels = (TopologyLevel("unit"), TopologyLevel(LEAF))
    elsewhere = Topology("another", levels, (Domain("far", LEAF, nodes=("somewhere-else",)),))
    world.tell(TopologyChanged(elsewhere))
    world.submit("train", pods=2, gpus_each=8, required_level=LEAF).settle()
    assert len(leaves_of(world, "train")) == 1
    world.submit("there", pods=2, gpus_each=8, required_level=LEAF, topology="another").settle()
    assert not world.is_running("there"), "named, it counts"


def test_pods_that_must_be_together_come_before_others_where_no_other_order_fits() -> None:
    """Only the second leaf has room for the group, and only if the two free pods go elsewhere."""
    world = fabric(1, 2, gpus=3)
    busy(world, "l1-n1", gpus=2)
    near = TopologyConstraint(required=LEAF)
    free = roles_of(("free", 2, 1, None))
    roles = (*free, *roles_of(("large", 1, 2, None), ("small", 2, 1, None), group="near"))
    world.tell(WorkloadChanged(gang("train", roles, (SubGroup(), SubGroup("near", levels=near))))).decide()
    found = nodes_of(world, "train")
    assert len(found) == 5
    assert {leaf_of(node) for pod, node in found.items() if not pod.startswith("free")} == {"l1"}


def test_two_sub_groups_that_fill_a_node_each_start_on_two_nodes() -> None:
    """Each of them fits on either node alone. Domains that hold one but not both took all the tries that there are."""
    world = fabric(1, 1, gpus=4, leaves_per_spine=1, policy=Policy(placement="spread"))
    left = roles_of(("left", 2, 2, TopologyConstraint(required=SPINE, preferred=LEAF)), group="left")
    right = roles_of(("right", 4, 1, None), group="right")
    levels = TopologyConstraint(preferred=SPINE, strategy="balanced")
    groups = (SubGroup(), SubGroup("left", levels=levels), SubGroup("right"))
    world.tell(WorkloadChanged(gang("train", (*left, *right), groups, preferred_level=LEAF))).settle()
    assert len(nodes_of(world, "train")) == 6


def test_the_same_nodes_are_not_tried_again_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """By sums the first leaf holds three pods of three GPUs, and in fact two. Its spine is that leaf alone."""
    monkeypatch.setattr(place_by_level, "MAX_TRIES", 12)
    world = fabric(2, 2, gpus=5, leaves_per_spine=1)
    for node in ("l1-n0", "l1-n1"):
        world.node(node, gpus=7, labels=world.state.node_objects[node].labels)
    either = TopologyConstraint(preferred=LEAF)
    left = roles_of(("left", 2, 3, either), group="left")
    right = (Role(Request(cpu_milli=1_000, gpus=3), "right", 1, group="right", levels=either),)
    groups = (SubGroup(), SubGroup("left", levels=either), SubGroup("right", levels=either))
    world.tell(WorkloadChanged(gang("train", (*left, *right), groups, required_level=SPINE))).settle()
    assert leaves_of(world, "train") == {"l1"}
