"""Which domain of a level is chosen, by which terms, and how pods are divided over the domains inside."""

import numpy as np
import pytest
from msgspec.structs import replace

from kaiwo.decide.placement.divide_by_rate import PlacementArea
from kaiwo.decide.placement.domain_choice import DomainRanking, NodeUse, PodsWanted, fewest_inside
from kaiwo.decide.placement.spread_over_domains import even_shares, pods_by_node
from kaiwo.explain import chosen_domain
from kaiwo.model.events import NodeChanged, TopologyChanged
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.policy import Policy, TopologyWeights
from tests.decide.levels.fabrics import LEAF, busy, chosen, fabric, leaf_of, leaves_of, nodes_of


def array(*values: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    return np.array(values, np.int64)


LEAVES = array(0, 0, 1, 1, 1, 2, 2, -1)
NODES = np.arange(8, dtype=np.int64)


def ranking(slots: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]", pods: int) -> DomainRanking:
    return DomainRanking([], LEAVES, NODES, [PodsWanted(slots, pods, 1000)])


def test_terms_are_thousandths() -> None:
    use = NodeUse(array(500, 0, 0, 0, 0, 1000, 500, 0), np.full(8, 1000, np.int64))
    found = ranking(array(1, 1, 1, 1, 1, 0, 1, 1), 2).ranked(use, TopologyWeights())
    assert [each.number for each in found] == [0, 1]  # the third has one slot left, the last node has no domain
    assert found[0].terms == (1000, 1000, 250, 500, 800)  # (40 * 1000 + 30 * 1000 + 20 * 250 + 10 * 500) / 100
    assert found[1].terms == (666, 1000, 0, 500, 616)


def test_the_weights_are_those_of_the_policy() -> None:
    use = NodeUse(array(0, 0, 100, 0, 0, 900, 900, 0), np.full(8, 1000, np.int64))
    slots = array(1, 1, 1, 1, 1, 1, 1, 0)
    by_default = ranking(slots, 2).ranked(use, TopologyWeights())
    assert [each.number for each in by_default] == [2, 0, 1]
    by_tightness = ranking(array(1, 1, 1, 1, 1, 2, 1, 0), 2).ranked(use, TopologyWeights(1, 0, 0, 0))
    assert by_tightness[0].terms.score == by_tightness[0].terms.availability == 1000


def test_few_domains_inside_are_better() -> None:
    slots = array(1, 1, 2, 0, 1, 0, 0, 0)
    assert fewest_inside(LEAVES, NODES, slots, 2, 3).tolist() == [2, 1, 2]  # the third has no room at all
    use = NodeUse(array(1, 1, 1, 1, 1, 1, 1, 1), np.full(8, 1000, np.int64))
    terms = {each.number: each.terms for each in ranking(slots, 2).ranked(use, TopologyWeights())}
    assert (terms[0].alignment, terms[1].alignment) == (500, 1000)


def test_a_domain_that_holds_each_kind_of_pods_but_not_both_is_none() -> None:
    """A pod of two GPUs and two of one: the first domain has two GPUs free, the second four, and the third two."""
    free = array(2000, 0, 2000, 2000, 0, 2000, 0, 0)
    use = NodeUse(4000 - free, np.full(8, 4000, np.int64))
    wants = [PodsWanted(free // 2000, 1, 2000), PodsWanted(free // 1000, 2, 1000)]
    found = DomainRanking([], LEAVES, NODES, wants).ranked(use, TopologyWeights())
    assert sorted(each.number for each in found) == [1]


def test_pods_without_gpus_take_no_room_of_others() -> None:
    free = array(2000, 0, 0, 0, 0, 0, 0, 0)
    use = NodeUse(4000 - free, np.full(8, 4000, np.int64))
    wants = [PodsWanted(free // 2000, 1, 2000), PodsWanted(np.ones(8, np.int64), 2, 1)]
    found = DomainRanking([], LEAVES, NODES, wants).ranked(use, TopologyWeights())
    assert [each.number for each in found] == [0]


def test_past_performance_counts_where_it_is_known() -> None:
    performance = array(900, 700, 0, 0, 0, 0, 0, 0)
    use = NodeUse(np.zeros(8, np.int64), np.full(8, 1000, np.int64), performance)
    found = {each.number: each.terms for each in ranking(np.ones(8, np.int64), 2).ranked(use, TopologyWeights())}
    assert (found[0].performance, found[1].performance) == (800, 0)


def test_small_work_opens_no_empty_leaf() -> None:
    """The empty leaf of two nodes would be the tighter one."""
    world = busy(fabric(4, 2), "l0-n0")
    world.submit("small", pods=1, gpus_each=8, required_level=LEAF)
    world.decide()
    assert leaves_of(world, "small") == {"l0"}


def test_small_work_without_levels_opens_no_empty_leaf_either() -> None:
    """By name, the nodes of the empty leaf would come first."""
    world = busy(fabric(2, 2, gpus=4), "l1-n0", 4)
    for number in range(2):
        world.submit(f"small-{number}", pods=1, gpus_each=2)
    world.settle()
    assert leaves_of(world, "small-0") | leaves_of(world, "small-1") == {"l1"}
    world.submit("more", pods=1, gpus_each=2).settle()
    assert leaves_of(world, "more") == {"l0"}  # nothing else fits


def test_a_new_spine_is_opened_last() -> None:
    world = busy(fabric(1, 1, 1, leaves_per_spine=1, gpus=4), "l1-n0", 4)
    world.tell(
        TopologyChanged(Topology("fabric", (TopologyLevel("spine", "net/other"), TopologyLevel(LEAF, "net/leaf"))))
    )
    for name, spine in (("l0-n0", "a"), ("l1-n0", "b"), ("l2-n0", "b")):
        node = world.state.node_objects[name]
        world.tell(NodeChanged(replace(node, labels={**node.labels, "net/other": spine})))
    world.submit("small", pods=1, gpus_each=2).settle()
    assert leaves_of(world, "small") == {"l2"}


def test_work_that_fills_an_empty_leaf_may_have_it() -> None:
    world = busy(fabric(4, 2), "l0-n0")
    world.submit("pair", pods=2, gpus_each=8, required_level=LEAF)
    assert chosen(world.decide(), "pair") == ("leaf", "leaf-1")


def test_no_empty_spine_is_opened_for_a_leaf() -> None:
    world = busy(fabric(3, 3, 2, 2), "l2-n0")
    world.submit("small", pods=1, gpus_each=4, required_level=LEAF)
    world.decide()
    assert leaves_of(world, "small") <= {"l2", "l3"}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("consolidated", {"l0": 4, "l1": 2}),
        ("balanced", {"l0": 3, "l1": 3}),
        ("distributed", {"l0": 2, "l1": 2, "l2": 2}),
    ],
)
def test_strategies_divide_pods_over_the_leaves(strategy: str, expected: dict[str, int]) -> None:
    world = fabric(4, 4, 4, leaves_per_spine=3)
    world.submit("train", pods=6, gpus_each=8, required_level="spine", placement_strategy=strategy)
    world.decide()
    counts: dict[str, int] = {}
    for node in nodes_of(world, "train").values():
        counts[leaf_of(node)] = counts.get(leaf_of(node), 0) + 1
    assert counts == expected


def test_the_policy_has_a_strategy_for_work_that_names_none() -> None:
    world = fabric(2, 2, policy=Policy(topology_strategy="distributed"))
    world.submit("train", pods=2, gpus_each=8, required_level="spine")
    world.decide()
    assert leaves_of(world, "train") == {"l0", "l1"}


@pytest.mark.parametrize(
    ("room", "count", "expected"),
    [
        ([5, 5, 5], 6, [2, 2, 2]),
        ([1, 5, 5], 7, [1, 3, 3]),
        ([5, 5], 3, [1, 2]),
        ([0, 4], 3, [0, 3]),
        ([2, 2], 4, [2, 2]),
    ],
)
def test_even_shares(room: list[int], count: int, expected: list[int]) -> None:
    assert even_shares(array(*room), count).tolist() == expected


def test_pods_fill_one_domain_before_the_next() -> None:
    slots = array(1, 1, 2, 1, 1, 1, 1, 0)
    area = PlacementArea(np.ones(8, np.bool_), (LEAVES,), "consolidated", np.zeros(8, np.bool_), np.zeros(8, np.int64))
    found = pods_by_node(slots, np.zeros(8, np.int64), area, 6)
    assert [tuple(each) for each in found] == [(0, 1), (1, 1), (2, 2), (3, 1), (4, 1)]
    assert sum(each.pods for each in pods_by_node(slots, np.zeros(8, np.int64), area, 99)) == 8


def test_the_domain_of_its_own_pods_comes_first() -> None:
    slots, own = array(1, 1, 1, 1, 1, 1, 1, 0), array(0, 0, 1, 0, 0, 0, 0, 0)
    area = PlacementArea(np.ones(8, np.bool_), (LEAVES,), "consolidated", np.zeros(8, np.bool_), own)
    (found,) = pods_by_node(slots, np.zeros(8, np.int64), area, 1)
    assert LEAVES[found.row] == 1


def test_the_terms_are_recorded_and_told() -> None:
    world = busy(fabric(2, 3), "l0-n0")
    plan = world.submit("train", pods=3, gpus_each=8, required_level=LEAF).decide()
    (choice,) = plan.domains
    assert (choice.topology, choice.level, choice.domain, choice.strategy) == (
        "fabric", "leaf", "leaf-1", "consolidated",
    )  # fmt: skip
    assert (choice.availability, choice.alignment, choice.utilisation, choice.performance) == (1000, 1000, 0, 500)
    assert (choice.score, choice.candidates) == (750, 1)
    assert chosen_domain(choice) == (
        "its pods were placed in leaf-1, the only domain of level leaf with room "
        "(score 750 of 1000: availability 1000, alignment 1000, utilisation 0, performance 500; consolidated)"
    )
    assert world.state.domain_choices["default/train"] == (choice,)
    world.finish("train")
    assert "default/train" not in world.state.domain_choices


def test_pods_over_several_domains_are_told_as_such() -> None:
    world = fabric(1, 1, leaves_per_spine=1)
    (choice,) = world.submit("train", pods=2, gpus_each=8, preferred_level=LEAF).decide().domains
    assert (choice.level, choice.domain, choice.score) == ("", "", 0)
    assert chosen_domain(choice).startswith("its pods were placed in as few domains as possible")
