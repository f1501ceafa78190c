"""The links inside a node, from the files that NCCL and RCCL write."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.errors import ConfigError
from kaiwo.topology.sources.nccl_xml import NodeLinks, read_nccl_xml

SWITCHED = """<system version="1">
  <cpu numaid="1" arch="x86_64">
    <pci busid="0000:0a:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0B:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1"><nvlink target="0000:c0:00.0" count="6" tclass="0x068000"/>
        <nvlink target="0000:c1:00.0" count="12" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020000">
        <nic><net name="mlx5_0" dev="0" speed="400000" guid="0x1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="0" arch="x86_64">
    <pci busid="0000:0d:00.0" class="0x030200" link_speed="5 GT/s" link_width="8">
      <gpu dev="0" sm="90" rank="0"><nvlink target="0000:c0:00.0" count="18" tclass="0x068000"/></gpu>
    </pci>
  </cpu>
</system>"""


def model(shared: Path, name: str) -> NodeLinks:
    return read_nccl_xml((shared / "fixtures/gpu/rocm-rccl/tools/topo_expl/models" / name).read_text(), name)


def test_mi300x_is_a_full_mesh_with_one_nic_a_gpu(shared_dir: Path) -> None:
    node = model(shared_dir, "topo_8p_940.xml")
    assert len(node.gpus) == 8
    for at, row in enumerate(node.links.mb_s):
        assert [rate for other, rate in enumerate(row) if other != at] == [48_000] * 7
        assert row[at] == 0
    assert node.links.nic == tuple(range(8))
    assert node.links.numa == (0, 0, 0, 0, 1, 1, 1, 1)
    assert {nic.mb_s for nic in node.nics} == {50_000}
    assert set(node.pcie_mb_s) == {63_008}
    assert not node.has_switch


def test_mi250_has_four_links_in_its_package(shared_dir: Path) -> None:
    node = model(shared_dir, "topo_16p1h.xml")
    assert node.links.mb_s[0][:5] == (0, 144_000, 36_000, 0, 72_000)
    assert node.links.nic == tuple(at // 2 for at in range(16))


def test_every_file_of_rccl_is_read(shared_dir: Path) -> None:
    files = sorted((shared_dir / "fixtures/gpu/rocm-rccl/tools/topo_expl/models").glob("*.xml"))
    assert len(files) == 57
    for path in files:
        node = read_nccl_xml(path.read_text(), path.name)
        count = len(node.gpus)
        assert [len(row) for row in node.links.mb_s] == [count] * count
        assert all(node.links.mb_s[a][b] == node.links.mb_s[b][a] for a in range(count) for b in range(a)), path.name
        assert all(-1 <= nic < len(node.nics) for nic in node.links.nic)


def test_an_nvswitch_gives_every_pair_the_full_rate() -> None:
    node = read_nccl_xml(SWITCHED)
    assert node.gpus == ("0000:0d:00.0", "0000:0b:00.0")
    assert node.links.mb_s == ((0, 18 * 20_600), (18 * 20_600, 0))
    assert node.has_switch
    assert node.links.nic == (-1, 0)
    assert node.links.numa == (0, 1)
    assert node.pcie_mb_s == (4_000, 31_504)  # the narrowest link on the way counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1 is no XML; dump it again"),
        ("<system>", "line 1 is no XML"),
        ("<system/>", "describes no GPU"),
        ("<graph/>", "begins with <graph> and not with <system>"),
        ("\n<!DOCTYPE x [<!ENTITY a 'aaaa'>]><system>&a;</system>", "line 2 declares a document type"),
        (SWITCHED.replace("0d:", "0b:"), "describes two GPUs at one PCI address"),
        (
            "<system><cpu>"
            + "".join(f'<pci busid="{at}"><gpu dev="{at}"/></pci>' for at in range(20_000))
            + "</cpu></system>",
            "describes 20,000 GPUs in one node, and the maximum is 512; dump it again",
        ),
        (SWITCHED.replace("</cpu>", "<nic>" + "<net/>" * 600 + "</nic></cpu>", 1), "describes 601 network cards"),
        ("<system><cpu>" + "<pci>" * 70 + "</pci>" * 70 + "</cpu></system>", "is nested more than 64 deep"),
    ],
)
def test_what_is_no_topology_file_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_nccl_xml(text, "file.xml")
    assert words in str(raised.value)
    assert str(raised.value).startswith("file.xml")


@given(st.data())
def test_a_damaged_file_raises_nothing_but_a_config_error(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(SWITCHED)))
    text = SWITCHED[:at] + data.draw(st.text(max_size=6)) + SWITCHED[at + data.draw(st.integers(0, 40)) :]
    with suppress(ConfigError):
        read_nccl_xml(text)
