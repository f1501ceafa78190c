"""Levels from node labels: presets, and keys in any order."""

from itertools import permutations

import pytest
import yaml

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.snapshot.network.topology_tables import TopologyTables
from kaiwo.topology.contradictions import find_contradictions
from kaiwo.topology.sources.node_labels import (
    PRESETS,
    find_presets,
    kueue_topology,
    labelled_topology,
    order_keys,
    preset_topology,
)
from kaiwo.topology.sources.slurm import read_topology_conf
from tests.conftest import find_shared_dir

ZONE, BLOCK, RACK = "example.com/zone", "example.com/block", "example.com/rack"
NODES = [
    {ZONE: f"z{at // 4}", BLOCK: f"b{at // 2}", RACK: f"r{at}"} for at in range(8)
] * 2  # two nodes a rack, two racks a block, two blocks a zone


@pytest.mark.parametrize("keys", list(permutations([ZONE, BLOCK, RACK])))
def test_keys_may_be_written_in_any_order(keys: tuple[str, ...]) -> None:
    topology = labelled_topology(keys, "labels", NODES)
    assert [(level.name, level.node_label) for level in topology.levels] == [
        ("zone", ZONE),
        ("block", BLOCK),
        ("rack", RACK),
    ]


def test_keys_that_nodes_do_not_tell_apart_stay_as_written() -> None:
    assert order_keys(["b", "a"], []) == ["b", "a"]
    assert order_keys(["b", "a"], [{"a": "1", "b": "1"}, {"a": "2", "b": "2"}]) == ["b", "a"]


def test_levels_whose_keys_end_alike_have_the_whole_key_as_name() -> None:
    topology = labelled_topology(["x.com/rack", "y.com/rack"], "labels", [])
    assert [level.name for level in topology.levels] == ["x.com/rack", "y.com/rack"]
    with pytest.raises(ConfigError, match="named twice"):
        labelled_topology(["a", "a"], "labels", [])


def test_a_preset_has_the_levels_that_the_nodes_have() -> None:
    prefix = "fabric.topograph.run/tier-"
    topology = preset_topology("topograph", "net", [{f"{prefix}0": "l1", f"{prefix}1": "s1"}, {}])
    assert topology is not None
    assert [level.name for level in topology.levels] == ["tier-1", "tier-0"]
    assert preset_topology("aws", "net", [{"a": "b"}]) is None
    with pytest.raises(ConfigError, match=r"no preset 'azure'; write one of kaiwo, .*oci"):
        preset_topology("azure", "net", [])


def test_presets_are_found_by_their_labels() -> None:
    assert [topology.name for topology in find_presets([{level.node_label: "x" for level in PRESETS["oci"]}])] == [
        "oci"
    ]
    assert find_presets([{"other": "x"}]) == ()
    for levels in PRESETS.values():
        assert len({level.name for level in levels}) == len({level.node_label for level in levels}) == len(levels)


def test_the_levels_of_a_kueue_topology_are_read() -> None:
    text = (find_shared_dir() / "fixtures/gpu/kueue/site/static/examples/tas/sample-queues.yaml").read_text()
    topology = kueue_topology(yaml.safe_load_all(text), "kueue", "queues.yaml")
    assert [level.name for level in topology.levels] == ["topology-block", "topology-rack"]
    assert [level.node_label for level in topology.levels] == [level.node_label for level in PRESETS["kueue-example"]]


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "has no Topology of Kueue"),
        ([{"kind": "ResourceFlavor"}, 4], "has no Topology of Kueue"),
        ([{"kind": "Topology"}], "spec.levels is no list"),
        ([{"kind": "Topology", "spec": {"levels": 4}}], "spec.levels is no list"),
        ([{"kind": "Topology", "spec": {"levels": [{"nodeLabel": 4}]}}], "spec.levels is no list"),
        ([{"kind": "Topology", "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}}], "has no levels"),
        (
            [{"kind": "Topology", "spec": {"levels": [{"nodeLabel": f"example.com/l{at}"} for at in range(20_000)]}}],
            "has 20,000 levels and the maximum is 8",
        ),
        ([{"kind": "Topology", "spec": {"levels": [{"nodeLabel": "x" * 1_000}]}}], "has 1,000 characters"),
    ],
)
def test_what_is_no_kueue_topology_is_refused(documents: list[object], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        kueue_topology(documents, "kueue", "queues.yaml")
    assert words in str(raised.value)


def tables(nodes: list[Node], *topologies: Topology) -> TopologyTables:
    found = TopologyTables()
    for topology in topologies:
        found = found.with_topology(topology, nodes)
    return found


def test_a_label_that_says_another_leaf_than_a_file_is_told() -> None:
    slurm = read_topology_conf("SwitchName=leaf-3 Nodes=a\nSwitchName=leaf-5 Nodes=b,c", "slurm")
    labels = labelled_topology(["x/leaf"], "labels", [])
    nodes = [Node(name, labels={"x/leaf": leaf}) for name, leaf in (("a", "leaf-3"), ("b", "leaf-5"), ("c", "leaf-3"))]
    (found,) = find_contradictions(tables(nodes, labels, slurm), ["a", "b", "c"])
    assert (found.subject, found.detail) == (
        "c",
        "is in leaf leaf-3 by node labels, and in leaf-5 by Slurm topology.conf",
    )


def test_other_names_for_the_same_switches_contradict_only_where_nodes_differ() -> None:
    slurm = read_topology_conf("SwitchName=s-a Nodes=n[1-3]\nSwitchName=s-b Nodes=n[4-6]", "slurm")
    labels = labelled_topology(["x/leaf"], "labels", [])
    values = dict(zip((f"n{at}" for at in range(1, 7)), ["1", "1", "1", "2", "2", "1"], strict=True))
    nodes = [Node(name, labels={"x/leaf": value}) for name, value in values.items()]
    (found,) = find_contradictions(tables(nodes, labels, slurm), list(values))
    assert found.subject == "n6"
    assert found.detail.endswith("and in s-b by Slurm topology.conf, where the other nodes of 1 are in s-a")
