"""Slurm's topology files: trees and blocks, hostlists, and every mistake with its line."""

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology import Domain, FindingKind, Topology
from kaiwo.topology.sources.hostlist import expand_hostlist, fold_hostlist
from kaiwo.topology.sources.slurm import read_topology_conf, read_topology_yaml, render_conf
from tests.conftest import find_shared_dir

TREE = """
# a comment
SwitchName=core Switches=spine[1-2]
switchname=spine1 switches=leaf1,leaf2
SwitchName=spine2 \\
    Switches=leaf3 LinkSpeed=100
SwitchName=leaf1 Nodes=n[1-2]
SwitchName=leaf2 Nodes=n[3-4]
SwitchName=leaf3 Nodes=n[5-6]   # the last
"""


def domains(topology: Topology) -> dict[str, Domain]:
    return {domain.name: domain for domain in topology.domains}


def test_a_tree_has_levels_by_the_distance_from_the_nodes() -> None:
    topology = read_topology_conf(TREE, "slurm")
    assert [level.name for level in topology.levels] == ["core", "spine", "leaf"]
    found = domains(topology)
    assert found["leaf2"] == Domain("leaf2", "leaf", ("spine1",), ("n3", "n4"))
    assert found["spine2"] == Domain("spine2", "spine", ("core",))
    assert found["core"] == Domain("core", "core")
    assert ("leaf3", "spine2") in {(link.lower, link.upper) for link in topology.links}
    assert [finding.subject for finding in topology.findings] == ["LinkSpeed"]


def test_blocks_are_joined_in_their_order() -> None:
    text = "".join(f"BlockName=b{at} Nodes=n[{at}01-{at}08]\n" for at in range(1, 6)) + "BlockSizes=8,16,32\n"
    topology = read_topology_conf(text, "slurm")
    assert [level.name for level in topology.levels] == ["blocks-4", "blocks-2", "block"]
    found = domains(topology)
    assert [found[f"b{at}"].parents for at in range(1, 6)] == [
        ("blocks-2-1",), ("blocks-2-1",), ("blocks-2-2",), ("blocks-2-2",), ("blocks-2-3",),
    ]  # fmt: skip
    assert [found[f"blocks-2-{at}"].parents for at in (1, 2, 3)] == [("blocks-4-1",), ("blocks-4-1",), ("blocks-4-2",)]
    assert len(found["b3"].nodes) == 8


def test_the_files_of_topograph_are_read() -> None:
    folder = find_shared_dir() / "fixtures/gpu/nvidia-topograph/tests/ci"
    tree = read_topology_conf((folder / "expected.slinky-oci-sim-tree.conf").read_text(), "slurm")
    assert [sum(domain.level == level.name for domain in tree.domains) for level in tree.levels] == [1, 6, 12]
    assert sum(len(domain.nodes) for domain in tree.domains) == 96
    assert domains(tree)["switch.1.11"].parents == ("switch.2.6",)
    blocks = read_topology_conf((folder / "expected.slinky-dra-block.conf").read_text(), "slurm")
    assert [sum(domain.level == level.name for domain in blocks.domains) for level in blocks.levels] == [3, 6, 12]


def test_a_yaml_file_means_the_same() -> None:
    text = """
- topology: flat
  flat: true
- topology: tree
  cluster_default: true
  tree:
    switches:
    - {switch: core, children: "spine[1-2]"}
    - {switch: spine1, children: "leaf[1-2]"}
    - {switch: spine2, children: leaf3}
    - {switch: leaf1, nodes: "n[1-2]"}
    - {switch: leaf2, nodes: "n[3-4]"}
    - {switch: leaf3, nodes: "n[5-6]"}
"""
    found = read_topology_yaml(yaml.safe_load(text), "slurm")
    assert found.domains == read_topology_conf(TREE, "slurm").domains
    blocks = "- topology: b\n  block:\n    block_sizes: [2, 4]\n    blocks:\n    - {block: b1, nodes: 'n[1-2]'}\n"
    assert [level.name for level in read_topology_yaml(yaml.safe_load(blocks), "slurm").levels] == ["blocks-2", "block"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no switch"),
        ("SwitchName=a Nodes=n1\nwhat is this", "line 2 has 'what', which is no KEY=VALUE; correct it"),
        ("Speed=4", "line 1 begins with no key of SwitchName, BlockName, BlockSizes: Speed=4"),
        ("SwitchName=a Nodes=n1 Colour=red", "line 1 has the unknown key colour; write one of"),
        ("SwitchName=a Nodes=n1 Nodes=n2", "line 1 has Nodes twice"),
        ("SwitchName=a", "line 1: switch a has neither Switches nor Nodes"),
        ("SwitchName=a[1-2] Nodes=n1", "line 1: a[1-2] names several at once"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "line 2 names the switch a again"),
        ("SwitchName=a Switches=b", "line 1: switch a is above b, which has no line of its own; add SwitchName=b"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "a is above itself (a > b > a)"),
        ("SwitchName=a Switches=a", "a is above itself (a > a)"),
        (
            "\n".join(f"SwitchName=s{at} Switches=s{(at + 1) % 1000}" for at in range(1000)),
            "s0 is above itself (s0 > s999 > s998 > s997 > s996 > s995 > s994 > ... 1,000 in all > s1 > s0); remove",
        ),
        (f"SwitchName={'a' * 254} Nodes=n1", f"line 1: the name {'a' * 40}... has 254 characters"),
        (f"SwitchName=a Nodes=n1,{'n' * 300}", f"line 1: the name {'n' * 40}... has 300 characters"),
        (f"SwitchName=a Switches={'b' * 500_000}", f"line 1: the name {'b' * 40}... has 500,000 characters"),
        (f"BlockName={'b' * 254} Nodes=n1", "line 1: the name bbb"),
        (
            "SwitchName=s1 Switches=l\nSwitchName=s2 Switches=l\nSwitchName=l Nodes=n1",
            "leaf l is below both s1 and s2, and a tree allows one",
        ),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "node n1 is in both a and b, and a tree allows one leaf"),
        (
            "SwitchName=s Switches=a\nSwitchName=t Switches=b Nodes=n1\nSwitchName=a Nodes=n1\nSwitchName=b Nodes=n2",
            "node n1 is in spine t, and also in a, which is in s; remove it from one of them",
        ),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "has both switches and blocks"),
        ("BlockName=b", "line 1 has no Nodes"),
        ("BlockName=b Nodes=n1\nBlockSizes=8,12", "line 2 has the block size 12; each size must be a multiple"),
        ("BlockName=b Nodes=n1\nBlockSizes=0", "line 2 has the block size 0"),
        ("SwitchName=a Nodes=n[1-", "line 1: 'n[1-' has a bracket that is not closed"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_line_and_the_way_out(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_topology_conf(text, "slurm")
    assert words in str(raised.value)
    assert "topology.conf" in str(raised.value)


def test_a_switch_without_a_way_to_the_others_is_told() -> None:
    """Slurm allows it: it warns, and runs no job on both sides."""
    text = "SwitchName=s Switches=a\nSwitchName=a Nodes=n1\nSwitchName=alone Nodes=n2"
    (found,) = read_topology_conf(text, "slurm").findings
    assert (found.kind, found.subject) == (FindingKind.NOT_CONNECTED, "alone")
    assert found.detail.startswith(
        "is below no other switch, so work that must run in one spine does not use its nodes"
    )
    assert read_topology_conf("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2", "slurm").findings == ()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "is no list of topologies"),
        ([], "is no list of topologies"),
        ([{"topology": "t", "flat": True}], "is of the kind flat; Kaiwo reads tree and block"),
        ([{"topology": "t", "tree": {"switches": 4}}], "switches is no list of mappings"),
        ([{"topology": "t", "tree": {"switches": [{"nodes": "n1"}]}}], "switch is missing or no text"),
        ([{"tree": {}}], "topology is missing or no text"),
        ([{"topology": "t", "tree": {}, "colour": "red"}], "topology t has the unknown key colour; write one of"),
        ([{"topology": "t", "tree": {"switches": [], "ports": 4}}], "has the unknown key ports; write one of switches"),
        (
            [{"topology": "t", "tree": {"switches": [{"switch": "s", "node": "n1"}]}}],
            "an entry of switches has the unknown key node; write one of switch, children, nodes",
        ),
        ([{"topology": "t", "block": {"size": 4, "blocks": []}}], "has the unknown key size; write one of block_sizes"),
        (
            [{"topology": "t", "block": {"blocks": [{"block": "b", "hosts": "n1"}]}}],
            "an entry of blocks has the unknown key hosts",
        ),
    ],
)
def test_a_mistake_in_yaml_is_said(document: object, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_topology_yaml(document, "slurm")
    assert words in str(raised.value)


def test_hostlists() -> None:
    assert expand_hostlist("a", "x") == ("a",)
    assert expand_hostlist("n[1-3,7],m[08-10]", "x") == ("n1", "n2", "n3", "n7", "m08", "m09", "m10")
    assert expand_hostlist("r[1-2]n[1-2]", "x") == ("r1n1", "r1n2", "r2n1", "r2n2")
    assert expand_hostlist("a,a", "x") == ("a",)
    assert fold_hostlist(["n3", "n1", "n2", "n10", "m08", "m09", "login"]) == "login,m[08-09],n[1-3,10]"
    assert len(expand_hostlist("n[1-100000]", "x")) == 100_000
    for wrong in ("", ",", "n[3-1]", "n[a]", "n[]", "n]1[", "n[[1]]", "n[1-100001]", "n[1-99999],m[1-2]"):
        with pytest.raises(ConfigError):
            expand_hostlist(wrong, "x")


hosts = st.from_regex(r"[a-c]{1,2}(0?[0-9]{1,3})?", fullmatch=True)


@given(st.sets(hosts, min_size=1))
def test_a_folded_list_expands_to_the_same_names(names: set[str]) -> None:
    assert set(expand_hostlist(fold_hostlist(names), "x")) == names


@st.composite
def trees(draw: st.DrawFn) -> Topology:
    """A tree of two or three tiers, as the reader would return it."""
    leaves = draw(st.integers(1, 6))
    lines = []
    spines = draw(st.integers(1, leaves))
    spine_of = [draw(st.integers(0, spines - 1)) for _ in range(leaves)]
    for spine in range(spines):
        if below := [f"leaf{leaf}" for leaf in range(leaves) if spine_of[leaf] == spine]:
            lines.append(f"SwitchName=spine{spine} Switches={','.join(below)}")
    lines += [f"SwitchName=leaf{leaf} Nodes=n{leaf}x[1-{draw(st.integers(1, 4))}]" for leaf in range(leaves)]
    return read_topology_conf("\n".join(lines), "slurm")


@given(trees())
def test_a_rendered_tree_is_read_as_itself(tree: Topology) -> None:
    assert read_topology_conf(render_conf(tree), "slurm") == tree


@given(st.text(alphabet="SwitchNameodesBlock=[]-,0123456789ab# \\\n\t", max_size=200) | st.text(max_size=80))
def test_garbage_raises_nothing_but_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        read_topology_conf(text, "slurm")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["topology", "tree", "block", "switches", "blocks", "switch", "nodes"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(json_values | st.lists(st.dictionaries(st.sampled_from(["topology", "tree", "block"]), json_values, max_size=3)))
def test_odd_documents_raise_nothing_but_a_config_error(document: object) -> None:
    with suppress(ConfigError):
        read_topology_yaml(document, "slurm")


def test_garbage_of_a_hundred_thousand_lines_is_refused_at_its_first_line() -> None:
    with pytest.raises(ConfigError, match="line 1 "):
        read_topology_conf("garbage\n" * 100_000, "slurm")


def test_a_tree_of_many_switches_in_a_row_needs_no_recursion() -> None:
    chain = "\n".join(f"SwitchName=s{at} Switches=s{at + 1}" for at in range(5_000)) + "\nSwitchName=s5000 Nodes=n1"
    with pytest.raises(ConfigError, match="has 5001 levels and the maximum is 8"):
        read_topology_conf(chain, "slurm")
