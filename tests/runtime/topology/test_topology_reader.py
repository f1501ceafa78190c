"""Sources are followed while Kaiwo runs; a source that cannot be read leaves the last good topology in force."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.clusters.local.cluster_file import (
    parse_topology_option,
    read_cluster_file,
    read_topology_sources,
    virtual_nodes,
)
from kaiwo.model.errors import ConfigError
from kaiwo.model.events import NodeChanged, NodeGone, TopologyChanged
from kaiwo.model.network.topology import DomainAccess, Topology, TopologyLevel
from kaiwo.model.network.topology_source import SourceKind, TopologySource
from kaiwo.model.node import Node
from kaiwo.plugins.builtin.topology_sources import HCA_GUIDS
from kaiwo.runtime.topology.kept_topologies import KeptTopologies
from kaiwo.runtime.topology.read_source import read_network, with_inner_links
from kaiwo.runtime.topology.topology_reader import TopologyReader
from tests.api.fake_loop import FakeLoop
from tests.topology.fabrics import rail_fabric
from tests.waiting import run

CONF = "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n"


def loop_of(*nodes: Node) -> FakeLoop:
    loop = FakeLoop()
    loop.state.patch([NodeChanged(node) for node in nodes])
    return loop


def domains(loop: FakeLoop, level: str, topology: str = "") -> dict[str, str]:
    """By node: the name of its domain."""
    loop.state.refresh_tables()
    found = loop.state.nodes.topologies.level(level, topology)
    if found is None:
        return {}
    numbers = found.domain_of_node.tolist()
    return {name: found.names[at] for name, at in zip(loop.state.nodes.names, numbers, strict=True) if at >= 0}


def write(path: Path, text: str) -> None:
    """A new version of a file, whose time differs from the one before even on a coarse clock."""
    path.write_text(text)
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1_000_000_000))


def test_access_rules_of_the_cluster_file_hold_for_any_source(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "topology.conf"
        path.write_text(CONF)
        rule = "{domains: [leaf1], queues: [lab]}"
        sources = read_topology_sources(f"nodes: []\ntopology: [{{name: t, slurm: {path}, access: [{rule}]}}]")
        loop = loop_of(*(Node(f"n{at}") for at in range(1, 5)))
        reader = TopologyReader(loop, sources)
        await reader.refresh()
        assert loop.state.topology_objects["t"].access == (DomainAccess(("leaf1",), ("lab",)),)
        write(path, CONF.replace("leaf1", "leaf9"))  # now the rule is about nothing: the last good version stays
        await reader.refresh()
        assert domains(loop, "leaf")["n1"] == "leaf1"
        assert "access names the domain leaf1, which is not in it" in reader.faults["t"]

    run(test())


def test_a_changed_file_changes_the_domains_without_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "topology.conf"
        path.write_text(CONF)
        loop = loop_of(*(Node(f"n{at}") for at in range(1, 5)))
        reader = TopologyReader(loop, [TopologySource(SourceKind.SLURM, "slurm", str(path))])
        await reader.refresh()
        assert domains(loop, "leaf") == {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}
        assert await reader.read_again() == []
        write(path, CONF.replace("n[1-2]", "n1").replace("n[3-4]", "n[2-4]"))
        await reader.refresh()
        assert domains(loop, "leaf") == {"n1": "leaf1", "n2": "leaf2", "n3": "leaf2", "n4": "leaf2"}

    run(test())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("SwitchName=leaf1 Nodes=n[1-", "topology.conf line 1: 'n[1-' has a bracket that is not closed"),
        ("", "names no switch"),
        ("garbage\n" * 100_000, "topology.conf line 1 has 'garbage', which is no KEY=VALUE; correct it"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "a is above itself (a > b > a)"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "node n1 is in both a and b"),
    ],
)
def test_a_damaged_file_is_told_and_the_last_good_topology_stays_in_force(
    tmp_path: Path, damage: str, words: str
) -> None:
    async def test() -> None:
        path = tmp_path / "topology.conf"
        path.write_text(CONF)
        loop = loop_of(Node("n1"), Node("n3"))
        reader = TopologyReader(loop, [TopologySource(SourceKind.SLURM, "slurm", str(path))])
        await reader.refresh()
        write(path, damage)
        assert await reader.read_again() == []
        assert domains(loop, "leaf") == {"n1": "leaf1", "n3": "leaf2"}
        assert words in reader.faults["slurm"]
        path.unlink()
        assert await reader.read_again() == []
        assert "cannot be read (No such file or directory)" in reader.faults["slurm"]
        path.write_text(CONF.replace("leaf1", "first"))
        await reader.refresh()
        assert reader.faults == {}
        assert domains(loop, "leaf") == {"n1": "first", "n3": "leaf2"}

    run(test())


def test_a_file_that_is_damaged_during_a_restart_leaves_the_last_good_topology_in_force(tmp_path: Path) -> None:
    async def test() -> None:
        path, home = tmp_path / "topology.conf", str(tmp_path)
        path.write_text(CONF)

        async def start(source: TopologySource) -> tuple[TopologyReader, FakeLoop]:
            loop = loop_of(Node("n1"), Node("n3"))
            reader = TopologyReader(loop, [source])
            reader.kept = KeptTopologies(home)
            await reader.refresh()
            return reader, loop

        slurm = TopologySource(SourceKind.SLURM, "slurm", str(path), access=(DomainAccess(("leaf1",), ("lab",)),))
        await start(slurm)
        write(path, "garbage\n" * 1_000)
        reader, loop = await start(slurm)
        assert domains(loop, "leaf") == {"n1": "leaf1", "n3": "leaf2"}
        assert "which is no KEY=VALUE" in reader.faults["slurm"]
        # The rules are those of today, not those of the last start.
        rule = DomainAccess(("leaf2",), ("lab",))
        _, loop = await start(replace(slurm, access=(rule,)))
        assert loop.state.topology_objects["slurm"].access == (rule,)
        for other in (
            replace(slurm, name="renamed", access=()),
            replace(slurm, kind=SourceKind.IBNETDISCOVER),
            replace(slurm, access=(DomainAccess(("nowhere",), ("lab",)),)),
        ):
            assert domains((await start(other))[1], "leaf") == {}
        (tmp_path / "topologies.msgpack").write_bytes(b"damaged, too")
        assert domains((await start(slurm))[1], "leaf") == {}

    run(test())


def test_labels_of_known_tools_are_found_and_followed() -> None:
    async def test() -> None:
        loop = loop_of(*virtual_nodes(8))
        reader = TopologyReader(loop)
        await reader.refresh()
        assert set(domains(loop, "leaf").values()) == {"leaf-1", "leaf-2"}
        node = loop.state.node_objects["node-1"]
        loop.state.patch([NodeChanged(replace(node, labels={**node.labels, "topology.kaiwo.ai/leaf": "leaf-9"}))])
        loop.tell()
        assert await reader.read_again() == []  # the levels are the same: the state follows the label itself
        assert domains(loop, "leaf")["node-1"] == "leaf-9"
        loop.state.patch([NodeGone(name) for name in list(loop.state.node_objects)])
        loop.tell()
        await reader.refresh()
        assert loop.state.topology_objects == {}

    run(test())


def test_a_topology_of_the_cluster_comes_before_the_labels_it_uses() -> None:
    async def test() -> None:
        loop = loop_of(*virtual_nodes(8))
        levels = tuple(TopologyLevel(name, f"topology.kaiwo.ai/{name}") for name in ("spine", "leaf"))
        loop.state.patch([TopologyChanged(Topology("own", levels))])
        assert await TopologyReader(loop).read_again() == []
        reader = TopologyReader(loop, [TopologySource(SourceKind.LABELS, "own", keys=("a",))])
        assert await reader.read_again() == []
        assert "topology own exists already in the cluster" in reader.faults["own"]

    run(test())


def test_a_label_names_the_node_of_an_adapter(tmp_path: Path) -> None:
    async def test() -> None:
        made = rail_fabric(2, 1, 2, 1)
        unnamed = dict.fromkeys(made.adapters, "MT4129 ConnectX7   Mellanox Technologies")
        path = tmp_path / "fabric.out"
        path.write_text(made._replace(adapters={**unnamed, "cc0001000100": "b mlx5_0"}).dump())
        loop = loop_of(Node("a"), Node("b"))
        reader = TopologyReader(loop, [TopologySource(SourceKind.IBNETDISCOVER, "fabric", str(path))])
        await reader.refresh()
        assert domains(loop, "leaf") == {"b": "leaf-01-02"}
        loop.state.patch([NodeChanged(Node("a", labels={HCA_GUIDS: "CC0000000000.cc09"}))])
        loop.tell()
        await reader.refresh()
        assert domains(loop, "leaf") == {"a": "leaf-01-01", "b": "leaf-01-02"}

    run(test())


FILE = """
nodes:
  - {name: n, count: 4, gpus: 8}
topology:
  - {name: dump, ibnetdiscover: fabric.out}
  - {slurm: /etc/slurm/topology.yaml}
  - {name: racks, labels: [example.com/block, example.com/rack]}
  - {preset: aws}
  - {nccl: node.xml, nodes: [n-1]}
  - name: own
    nodePortGbps: 400
    nodePorts: 8
    levels: [{name: leaf, uplinkGbps: 400, uplinks: 16}]
    domains: [{name: l1, level: leaf, nodes: [n-1, n-2], uplinkGbps: 200}]
"""


def test_a_cluster_file_names_sources() -> None:
    assert len(read_cluster_file(FILE)) == 4
    found = read_topology_sources(FILE)
    assert [(source.kind.value, source.name, source.path, source.keys) for source in found] == [
        ("ibnetdiscover", "dump", "fabric.out", ()),
        ("slurm", "slurm", "/etc/slurm/topology.yaml", ()),
        ("labels", "racks", "", ("example.com/block", "example.com/rack")),
        ("preset", "aws", "", ("aws",)),
        ("nccl", "nccl", "node.xml", ()),
        ("levels", "own", "", ()),
    ]
    own = found[-1].written
    assert own is not None
    assert (own.node_port_mb_s, own.node_ports) == (50_000, 8)
    assert (own.levels[0].uplink_mb_s, own.levels[0].uplinks) == (50_000, 16)
    assert [(link.lower, link.upper, link.mb_s, link.count) for link in own.links] == [("l1", "outside", 25_000, 1)]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{}", "topology[0] names no source; write exactly one of preset, labels,"),
        ("{preset: aws, slurm: x}", "topology[0] has both preset and slurm"),
        ("{slurm: ''}", "slurm is empty; write a path"),
        ("{slurm: x, colour: red}", "colour is not a known field"),
        ("{labels: [a b]}", "topology[0].labels[0]"),
        ("{levels: [{name: leaf}]}", "without a nodeLabel, and no domain is of that level"),
        ("{levels: [{name: leaf, nodeLabel: x}], domains: [{name: a, level: rack}]}", "names the level rack"),
    ],
)
def test_a_mistake_in_a_source_names_its_field(entry: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_topology_sources(f"nodes: []\ntopology:\n  - {entry}\n", "cluster.yaml")
    assert words in str(raised.value)
    assert "cluster.yaml" in str(raised.value)


def test_two_sources_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="has two topologies named slurm; give each a name of its own"):
        read_topology_sources("nodes: []\ntopology: [{slurm: a}, {slurm: b}]")


def test_options_of_the_command_line() -> None:
    assert parse_topology_option("ibnetdiscover=a=b") == TopologySource(
        SourceKind.IBNETDISCOVER, "ibnetdiscover", "a=b"
    )
    assert parse_topology_option("labels=x,y") == TopologySource(SourceKind.LABELS, "labels", "", ("x", "y"))
    assert parse_topology_option("preset=gke") == TopologySource(SourceKind.PRESET, "gke", "", ("gke",))
    for wrong in ("slurm", "slurm=", "levels=x", "=x", "ib=x"):
        with pytest.raises(ConfigError, match="write KIND=VALUE with KIND one of preset, labels, ibnetdiscover"):
            parse_topology_option(wrong)


def test_links_inside_nodes_come_from_a_file_of_nccl(shared_dir: Path) -> None:
    path = str(shared_dir / "fixtures/gpu/rocm-rccl/tools/topo_expl/models/topo_8p_940.xml")
    nodes = read_cluster_file("nodes: [{name: a, gpus: 8}, {name: b, gpus: 4}]")
    wired = with_inner_links(nodes, [TopologySource(SourceKind.NCCL, "nccl", path)])
    assert [node.wiring.is_known for node in wired] == [True, False]
    assert wired[0].wiring.nic == tuple(range(8))
    with pytest.raises(ConfigError, match="describes 8 GPUs and node b has 4; leave the node out"):
        with_inner_links(nodes, [TopologySource(SourceKind.NCCL, "nccl", path, nodes=("b",))])


@pytest.mark.parametrize("kind", [SourceKind.SLURM, SourceKind.KUEUE, SourceKind.KAIWO])
def test_text_that_is_no_yaml_is_told_with_its_file_and_line(kind: SourceKind, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text("spec:\n  levels: [\n")
    with pytest.raises(ConfigError, match=rf"^{path}: document 1, line \d+: the YAML is malformed"):
        read_network(TopologySource(kind, "t", path=str(path)), ())
