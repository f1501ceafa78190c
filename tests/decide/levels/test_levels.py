"""Levels: the pods of a workload, a sub-group or a segment run in one domain, or wait."""

from msgspec.structs import replace

from kaiwo.explain import sentence
from kaiwo.model.events import NodeChanged, PodGone, WorkloadChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.obstacle import Reason
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
