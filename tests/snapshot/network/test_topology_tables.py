"""The domains of nodes are the same arrays, whatever the source of a level and whatever the order of events."""

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.events import Event, NodeChanged, NodeGone, TopologyChanged, TopologyGone
from kaiwo.model.network.topology import Attachment, Domain, NetworkLink, Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.network.topology_tables import LevelConflict, LevelTable, TopologyTables, build_table

SPINE, LEAF = "example.com/spine", "example.com/leaf"
BY_LABELS = Topology("labels", (TopologyLevel("spine", SPINE), TopologyLevel("leaf", LEAF)))


def labelled(name: str, spine: str = "", leaf: str = "") -> Node:
    return Node(name, labels={key: value for key, value in ((SPINE, spine), (LEAF, leaf)) if value})


def level_of(tables: TopologyTables, key: str, topology: str = "") -> LevelTable:
    found = tables.level(key, topology)
    assert found is not None
    return found


def members(level: LevelTable, nodes: list[str]) -> dict[str, list[str]]:
    """By name: the nodes of each domain."""
    found: dict[str, list[str]] = {name: [] for name in level.names}
    for node, number in zip(nodes, level.domain_of_node.tolist(), strict=True):
        if number >= 0:
            found[level.names[number]].append(node)
    return found


def test_labels_make_levels() -> None:
    nodes = [labelled("a", "s1", "l1"), labelled("b", "s1", "l2"), labelled("c", "s2", "l3"), labelled("d", "s2")]
    table = build_table(BY_LABELS, nodes)
    spine, leaf = table.levels
    assert members(spine, ["a", "b", "c", "d"]) == {"s1": ["a", "b"], "s2": ["c", "d"]}
    assert members(leaf, ["a", "b", "c", "d"]) == {"l1": ["a"], "l2": ["b"], "l3": ["c"]}
    assert leaf.domain_of_node.tolist() == [0, 1, 2, -1]
    assert leaf.parent.tolist() == [0, 0, 1]
    assert spine.parent.tolist() == [-1, -1]


def test_written_domains_make_the_same_arrays_as_labels() -> None:
    nodes = [labelled("a", "s1", "l1"), labelled("b", "s1", "l2"), labelled("c", "s2", "l3")]
    written = Topology(
        "written",
        (TopologyLevel("spine"), TopologyLevel("leaf")),
        (
            Domain("s2", "spine"),
            Domain("s1", "spine"),
            Domain("l3", "leaf", ("s2",), ("c", "ghost")),
            Domain("l2", "leaf", ("s1",), ("b",)),
            Domain("l1", "leaf", ("s1",), ("a",)),
            Domain("l9", "leaf", ("s1",), ("ghost",)),
        ),
    )
    for one, other in zip(build_table(BY_LABELS, nodes).levels, build_table(written, nodes).levels, strict=True):
        assert one.names == other.names
        assert one.domain_of_node.tolist() == other.domain_of_node.tolist()
        assert one.parent.tolist() == other.parent.tolist()


def test_the_same_leaf_name_under_two_spines_makes_two_domains() -> None:
    leaf = build_table(BY_LABELS, [labelled("a", "s1", "1"), labelled("b", "s2", "1"), labelled("c", "s2", "1")])
    assert leaf.levels[1].domain_of_node.tolist() == [0, 1, 1]
    assert leaf.levels[1].parent.tolist() == [0, 1]


def test_leaves_that_share_nodes_are_one_domain() -> None:
    rails = Topology(
        "rails",
        (TopologyLevel("leaf"),),
        (Domain("l1", "leaf"), Domain("l2", "leaf"), Domain("l3", "leaf")),
        (Attachment("a", "l1", 0), Attachment("a", "l2", 1), Attachment("b", "l2", 1), Attachment("c", "l3", 0)),
    )
    (leaf,) = build_table(rails, [Node("a"), Node("b"), Node("c"), Node("d")]).levels
    assert leaf.names == ("l1+l2", "l3")
    assert leaf.domain_of_node.tolist() == [0, 0, 1, -1]


def test_a_label_that_contradicts_a_written_domain_is_told() -> None:
    both = Topology("fabric", (TopologyLevel("leaf", LEAF),), (Domain("leaf-5", "leaf", (), ("a",)),))
    table = build_table(
        both, [labelled("a", leaf="leaf-3"), labelled("b", leaf="leaf-3"), labelled("c", leaf="leaf-5")]
    )
    assert table.conflicts == (LevelConflict("a", "leaf", "leaf-3", "leaf-5"),)
    assert members(table.levels[0], ["a", "b", "c"]) == {"leaf-3": ["b"], "leaf-5": ["a", "c"]}


def test_a_level_is_found_by_name_and_by_label() -> None:
    other = Topology("zones", (TopologyLevel("zone", "z"), TopologyLevel("leaf", "zl")))
    tables = TopologyTables().with_topology(BY_LABELS, [labelled("a", "s", "l")]).with_topology(other, [Node("a")])
    assert level_of(tables, LEAF) is level_of(tables, "leaf")
    assert level_of(tables, "leaf", "zones").node_label == "zl"
    assert tables.level("rack") is None
    assert tables.level("leaf", "nobody") is None


def test_parents_in_a_circle_end() -> None:
    odd = Topology(
        "odd",
        (TopologyLevel("a"), TopologyLevel("b")),
        (Domain("x", "a", ("y",), ("n",)), Domain("y", "b", ("x", "lost"))),
    )
    table = build_table(odd, [Node("n")])
    assert [level.domain_of_node.tolist() for level in table.levels] == [[0], [0]]


def test_domains_are_connected_over_a_switch_with_a_working_link() -> None:
    links = (NetworkLink("l1", "s"), NetworkLink("l2", "s", count=2, dead=1), NetworkLink("l3", "s", count=2, dead=2))
    topology = Topology("t", (), tuple(Domain(name, "leaf") for name in ("l1", "l2", "l3")), (), links)
    assert topology.connected_domains() == {("l1", "l2"), ("l2", "l1")}
    assert [link.state for link in links] == ["up", "degraded", "down"]


names = st.sampled_from(["a", "b", "c", "d"])
values = st.sampled_from(["", "1", "2", "3"])
changes: st.SearchStrategy[Event] = st.one_of(
    st.builds(lambda name, spine, leaf: NodeChanged(labelled(name, spine, leaf)), names, values, values),
    st.builds(NodeGone, names),
    st.sampled_from([TopologyChanged(BY_LABELS), TopologyGone("labels")]),
    st.builds(
        lambda members: TopologyChanged(
            Topology("written", (TopologyLevel("leaf", LEAF),), (Domain("x", "leaf", (), tuple(members)),))
        ),
        st.lists(names, unique=True),
    ),
)


@given(st.lists(st.lists(changes, min_size=1, max_size=3), max_size=12))
def test_patched_tables_equal_those_built_from_scratch(batches: list[list[Event]]) -> None:
    state = ClusterState()
    for batch in batches:
        state.patch(batch)
        state.snapshot(0)
        fresh = ClusterState()
        fresh.patch(reversed(state.events()))
        fresh.snapshot(0)
        assert fresh.events() == state.events()
        assert shown(state) == shown(fresh)


@given(st.lists(st.tuples(names, values, values), unique_by=lambda each: each[0], max_size=4))
def test_domains_of_a_level_partition_its_nodes_and_lie_in_one_wider_domain(drawn: list[tuple[str, str, str]]) -> None:
    nodes = [labelled(*each) for each in sorted(drawn)]
    spine, leaf = build_table(BY_LABELS, nodes).levels
    for level in (spine, leaf):
        inside = [node.name for node in nodes if node.labels.get(level.node_label)]
        found = [level.domain_of_node.tolist().count(number) for number in range(len(level.names))]
        assert all(found)
        assert sum(found) == len(inside)
    for row in range(len(nodes)):
        if (number := leaf.domain_of_node[row]) >= 0:
            assert leaf.parent[number] == spine.domain_of_node[row]


def test_moving_a_node_between_known_domains_keeps_the_other_arrays() -> None:
    state = ClusterState()
    state.patch(
        [TopologyChanged(BY_LABELS)]
        + [NodeChanged(labelled(name, "s", leaf)) for name, leaf in (("a", "1"), ("b", "1"), ("c", "2"), ("d", "2"))]
    )
    state.snapshot(0)
    before = state.nodes.topologies
    state.patch([NodeChanged(labelled("a", "s", "2"))])
    after = state.nodes.topologies
    assert after.version == before.version + 1
    assert level_of(after, "spine") is level_of(before, "spine")
    assert level_of(after, "leaf").names is level_of(before, "leaf").names
    assert level_of(after, "leaf").domain_of_node.tolist() == [1, 0, 1, 1]
    assert level_of(before, "leaf").domain_of_node.tolist() == [0, 0, 1, 1]
    state.patch([NodeChanged(labelled("b", "s", "2"))])
    assert level_of(state.nodes.topologies, "leaf").names == ("2",)
    state.patch([NodeChanged(Node("a", cpu_milli=5, labels={SPINE: "s", LEAF: "2"}))])
    assert state.nodes.topologies.version == after.version + 1


def test_a_fork_keeps_its_own_topologies() -> None:
    state = ClusterState()
    state.patch([TopologyChanged(BY_LABELS), NodeChanged(labelled("a", "s", "1"))])
    other = state.fork()
    other.patch([TopologyGone("labels")])
    other.snapshot(0)
    assert other.nodes.topologies.level("leaf") is None
    assert state.nodes.topologies.level("leaf") is not None
    assert "labels" in state.topology_objects


def shown(state: ClusterState) -> object:
    return {
        name: [
            (level.names, level.domain_of_node.tolist(), level.parent.tolist(), dict(level.number))
            for level in table.levels
        ]
        + [table.conflicts]
        for name, table in sorted(state.nodes.topologies.by_name.items())
    }
