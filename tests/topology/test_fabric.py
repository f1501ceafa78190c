"""What a dump of an InfiniBand fabric says: units, rails, missing cables; and that half a dump is refused."""

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology import FindingKind, Topology
from kaiwo.model.node import Node
from kaiwo.snapshot.network.topology_tables import build_table
from kaiwo.topology.sources.fabric import fabric_topology, host_ports
from kaiwo.topology.sources.ibnetdiscover import read_ibnetdiscover
from tests.topology.fabrics import Cable, MadeFabric, rail_fabric


def read(text: str) -> Topology:
    return fabric_topology(read_ibnetdiscover(text, "dump"), "fabric", "dump")


def found(topology: Topology, kind: FindingKind) -> dict[str, str]:
    return {each.subject: each.detail for each in topology.findings if each.kind == kind}


@pytest.fixture(scope="module")
def real_dump(shared_dir: Path) -> str:
    return (shared_dir / "fixtures/gpu/nvidia-topograph/tests/output/ibnetdiscover/example.out").read_text()


def test_a_real_fabric_has_four_rails_in_eight_units(real_dump: str) -> None:
    topology = read(real_dump)
    levels = Counter(domain.level for domain in topology.domains)
    assert levels == {"fabric": 1, "unit": 8, "leaf": 31}
    assert [level.name for level in topology.levels] == ["fabric", "unit", "leaf"]
    assert {port.rail for port in topology.attachments} == {0, 1, 2, 3}
    for domain in topology.domains:
        if domain.level == "leaf":
            rail, unit = re.findall(r"LEAF-(\d\d)-(\d\d)", domain.name)[0]
            assert domain.parents == (f"unit-{int(unit)}",)
            assert {port.rail for port in topology.attachments if port.domain == domain.name} == {int(rail) - 1}


def test_the_missing_leaf_of_a_real_fabric_is_named(real_dump: str) -> None:
    missing = found(read(real_dump), FindingKind.MISSING_LEAF)
    assert list(missing) == ["A09-P1-IBLEAF-03-01"]
    assert "unit-1 has no leaf on rail 3" in missing["A09-P1-IBLEAF-03-01"]


def test_all_host_ports_of_a_real_fabric_are_joined_by_guid(real_dump: str) -> None:
    dump = read_ibnetdiscover(real_dump, "dump")
    ports = host_ports(dump, {})
    assert len(ports) == len({port.guid for port in ports}) == 542
    for port in ports:
        (back,) = dump.adapters[port.guid].ports
        assert (back.peer, back.peer_port) == (port.leaf, port.port)
    topology = read(real_dump)
    assert sum(port.count for port in topology.attachments) == 542
    assert {port.mb_s for port in topology.attachments} == {50_000}
    assert len({port.node for port in topology.attachments if not port.node.startswith("guid-")}) == 122
    assert list(found(topology, FindingKind.UNNAMED_PORT)) == ["69 host ports"]


def test_the_leaves_above_one_to_one_of_a_real_fabric_are_listed(real_dump: str) -> None:
    above = found(read(real_dump), FindingKind.OVERSUBSCRIBED)
    assert {name[-5:]: detail.split("(")[1] for name, detail in above.items()} == {
        "01-01": "1.06:1)", "01-02": "1.15:1)", "01-03": "1.13:1)", "02-03": "1.20:1)", "02-04": "1.07:1)",
        "04-04": "1.07:1)", "01-05": "1.13:1)", "01-07": "1.07:1)", "02-06": "1.13:1)", "03-07": "1.14:1)",
        "03-08": "1.06:1)", "04-08": "1.06:1)",
    }  # fmt: skip


def test_swapped_cables_of_a_real_fabric_are_told(real_dump: str) -> None:
    assert list(found(read(real_dump), FindingKind.MIXED_RAILS)) == [
        "b08-p1-dgx-08-c01 HCA-5",
        "b08-p1-dgx-08-c01 HCA-6",
    ]


def test_one_known_guid_names_the_adapters_at_the_same_port_of_every_rail(real_dump: str) -> None:
    dump = read_ibnetdiscover(real_dump, "dump")
    topology = fabric_topology(dump, "fabric", "dump", {"e09d730300858d88": "a06-p1-dgx-02-c06"})
    assert [port.rail for port in topology.attachments if port.node == "a06-p1-dgx-02-c06"] == [0, 1, 2, 3]


def test_a_made_fabric_is_read_as_it_was_made() -> None:
    topology = read(rail_fabric(3, 2, 4, 2).dump())
    assert [domain.name for domain in topology.domains if domain.level == "unit"] == ["unit-1", "unit-2", "unit-3"]
    assert {(link.mb_s, link.count, link.dead) for link in topology.links} == {(50_000, 2, 0)}
    assert len(topology.links) == 3 * 2 * 2
    assert topology.findings == ()
    table = build_table(topology, [Node("n001-01"), Node("n001-04"), Node("n003-02.example.com"), Node("other")])
    unit = table.level("unit")
    assert unit is not None
    assert [unit.names[at] if at >= 0 else "" for at in unit.domain_of_node] == ["unit-1", "unit-1", "unit-3", ""]
    leaf = table.level("leaf")
    assert leaf is not None
    assert leaf.names == ("leaf-01-01+leaf-02-01", "leaf-01-03+leaf-02-03")


@given(st.integers(2, 4), st.integers(2, 4), st.data())
def test_any_missing_leaf_is_named(units: int, rails: int, data: st.DataObject) -> None:
    rail, unit = data.draw(st.integers(1, rails)), data.draw(st.integers(1, units))
    name = f"leaf-{rail:02d}-{unit:02d}"
    missing = found(read(rail_fabric(units, rails, 2, 1, without=[name]).dump()), FindingKind.MISSING_LEAF)
    assert list(missing) == [name]


def test_a_fabric_without_rails_has_no_units() -> None:
    topology = read(rail_fabric(3, 1, 4, 2).dump())
    assert [level.name for level in topology.levels] == ["fabric", "leaf"]
    assert {port.rail for port in topology.attachments} == {-1}


def test_missing_cables_count_as_dead_links() -> None:
    made = rail_fabric(4, 1, 2, 2, links=2)
    first = next(cable for cable in made.cables if cable.other.startswith("bb"))
    topology = read(made._replace(cables=tuple(cable for cable in made.cables if cable != first)).dump())
    assert [(link.lower, link.count, link.dead, link.state) for link in topology.links if link.dead] == [
        ("leaf-01-01", 2, 1, "degraded")
    ]
    assert list(found(topology, FindingKind.MISSING_LINKS)) == ["leaf-01-01"]


def test_three_tiers_make_pods() -> None:
    one, two = rail_fabric(2, 1, 2, 1), rail_fabric(2, 1, 2, 1)
    other = {
        f"d{guid[1:]}": text.replace("leaf-01", "leaf-02").replace("spine", "back")
        for guid, text in two.switches.items()
    }
    cables = tuple(
        Cable(f"d{each.leaf[1:]}", each.leaf_port, f"d{each.other[1:]}", each.other_port) for each in two.cables
    )
    adapters = {f"d{guid[1:]}": text.replace("n0", "m0") for guid, text in two.adapters.items()}
    core = {"ee01": "MF0;core:X/U1"}
    up = tuple(Cable(spine, 60 + at, "ee01", at + 1) for at, spine in enumerate(["bb00000000", "db00000000"]))
    made = MadeFabric(one.switches | other | core, one.adapters | adapters, one.cables + cables + up)
    topology = read(made.dump())
    assert [level.name for level in topology.levels] == ["fabric", "pod", "leaf"]
    pods = {domain.name: domain.parents for domain in topology.domains if domain.level == "leaf"}
    assert pods == {
        "leaf-01-01": ("pod-1",), "leaf-01-02": ("pod-1",), "leaf-02-01": ("pod-2",), "leaf-02-02": ("pod-2",),
    }  # fmt: skip


def test_two_machines_with_one_name_join_nothing() -> None:
    made = rail_fabric(2, 1, 2, 1)
    named = dict.fromkeys(made.adapters, "localhost mlx5_0")
    assert {port.node[:5] for port in read(made._replace(adapters=named).dump()).attachments} == {"guid-"}


def test_ends_that_disagree_are_told() -> None:
    text = rail_fabric(2, 1, 2, 1).dump()
    odd = text.replace('[1](cc0000000000)\t"S-aa00000000"[1]', '[1](cc0000000000)\t"S-aa00000000"[2]')
    assert odd != text
    told = found(read(odd), FindingKind.CONTRADICTION)
    assert list(told) == ["MF0;leaf-01-01:MQM9700/U1 port 1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "dump has no switch; run ibnetdiscover again"),
        ('Ca\t1 "H-01"\t\t# "n HCA-1"', "dump has no switch"),
        ('Switch\t65 "S-01"\t\t# "leaf"', "has no host on any switch"),
        (
            'Switch\t65 "S-01"\t\t# "leaf"\n\nSwitch\t65 "S-01"\t\t# "leaf"',
            "line 3: 01 was described on line 1 already",
        ),
        (
            'Switch\t65 "S-01"\t\t# "leaf"\n[1]\t"H-02"[1]\t\t# "n" lid 1 4xNDR',
            "line 2 names 02, which has no section: ",
        ),
        ("one\ntwo", "line 1 is no line of ibnetdiscover: 'one'"),
        ('[1]\t"H-02"[1]', "line 1 is no line of ibnetdiscover"),
    ],
)
def test_what_is_no_dump_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert words in str(raised.value)


def test_half_a_dump_is_refused_wherever_it_was_cut(real_dump: str) -> None:
    lines = real_dump.splitlines()
    for length in (30, 500, 2000, len(lines) - 3):
        with pytest.raises(ConfigError, match="cut off; run ibnetdiscover again"):
            read("\n".join(lines[:length]))


def test_a_hundred_thousand_lines_of_garbage_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="line 1 is no line"):
        read("\n".join(f"garbage {number}" for number in range(100_000)))


@settings(deadline=None)
@given(st.data())
def test_a_damaged_dump_raises_nothing_but_a_config_error(data: st.DataObject) -> None:
    lines = rail_fabric(2, 2, 2, 1).dump().splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = data.draw(
            st.sampled_from(["", lines[at][::-1], lines[at][: len(lines[at]) // 2], lines[at - 1], "x"])
        )
    with suppress(ConfigError):
        build_table(read("\n".join(lines)), [Node("n001-01"), Node("n002-01")])
