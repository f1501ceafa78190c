"""A leaf below several spines: the spines of a fat tree count as one, and a mistake in a tree is told."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.manifests.kinds.topology import read_topology_spec
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.snapshot.network.topology_tables import build_table

Parents = dict[str, list[str]]  # by leaf: its spines


def fabric(parents: Parents) -> Topology:
    """Each leaf has one node, named after it."""
    spines = sorted({each for found in parents.values() for each in found})
    leaves = [
        {"name": leaf, "level": "leaf", "parents": above, "nodes": [f"on-{leaf}"]} for leaf, above in parents.items()
    ]
    domains = [*({"name": spine, "level": "spine"} for spine in spines), *leaves]
    document = {"levels": [{"name": "spine"}, {"name": "leaf"}], "domains": domains}
    return read_topology_spec(FieldReader(document, "fabric", []), "fabric", "fabric", "a test")


def spine_of(parents: Parents) -> dict[str, str]:
    """By leaf: the spine, or the joined spines, that its node is in."""
    level = build_table(fabric(parents), [Node(f"on-{leaf}") for leaf in parents]).levels[0]
    return {leaf: level.names[number] for leaf, number in zip(parents, level.domain_of_node.tolist(), strict=True)}


@pytest.mark.parametrize(
    "parents",
    [
        {"l1": ["s1", "s2"], "l2": ["s1", "s2"], "l3": ["s1", "s2"]},
        {"l1": ["s1", "s2"], "l2": ["s2"], "l3": ["s1", "s2"]},  # a leaf without links to one of them
        {"l1": ["s1", "s2"], "l2": ["s2", "s3"], "l3": ["s1", "s3"]},
    ],
)
def test_the_spines_of_a_fat_tree_are_one(parents: Parents) -> None:
    assert len(set(spine_of(parents).values())) == 1


def test_planes_of_a_fat_tree_stay_apart() -> None:
    parents = {"l1": ["s1", "s2"], "l2": ["s1", "s2"], "l3": ["s3", "s4"], "l4": ["s3", "s4"]}
    assert spine_of(parents) == {"l1": "s1+s2", "l2": "s1+s2", "l3": "s3+s4", "l4": "s3+s4"}


def test_a_leaf_that_joins_two_trees_is_told() -> None:
    with pytest.raises(ConfigError) as raised:
        fabric({"l1": ["s1"], "l2": ["s1", "s2"], "l3": ["s2"]})
    assert str(raised.value) == (
        "fabric: l2 is below both s1 and s2, so they count as one spine, but l1 and l3 below them have no spine in "
        "common; name one parent of l2, or the same parents for all of them"
    )


cablings = st.dictionaries(
    st.sampled_from([f"l{at}" for at in range(5)]),
    st.lists(st.sampled_from([f"s{at}" for at in range(4)]), min_size=1, max_size=3, unique=True),
    min_size=1,
)


@given(cablings)
def test_nodes_in_one_spine_have_a_spine_in_common(parents: Parents) -> None:
    """And no cabling of which that holds is refused."""
    joined = {leaf: {leaf} for leaf in parents}
    for one, other in list(combinations(parents, 2)) * len(parents):
        if any(set(parents[a]) & set(parents[b]) for a in joined[one] for b in joined[other]):
            together = joined[one] | joined[other]
            joined |= dict.fromkeys(together, together)
    is_true = all(
        set(parents[one]) & set(parents[other]) for group in joined.values() for one, other in combinations(group, 2)
    )
    try:
        found = spine_of(parents)
    except ConfigError:
        assert not is_true
        return
    assert is_true
    for one, other in combinations(parents, 2):
        assert (found[one] == found[other]) == (other in joined[one])
