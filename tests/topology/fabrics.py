"""Write dumps of made-up fabrics in the words of ibnetdiscover, for tests and benchmarks."""

from collections.abc import Iterable
from typing import NamedTuple


class Cable(NamedTuple):
    """One cable: the lower end is a leaf's port, the upper end a host or a spine."""

    leaf: str
    leaf_port: int
    other: str
    other_port: int
    rate: str = "4xNDR"


class MadeFabric(NamedTuple):
    switches: dict[str, str]  # GUID to description
    adapters: dict[str, str]
    cables: tuple[Cable, ...]

    def dump(self) -> str:
        return render_dump(self)


def rail_fabric(
    units: int, rails: int, hosts: int, spines: int, links: int = 2, without: Iterable[str] = ()
) -> MadeFabric:
    """Each host has one adapter on every leaf of its unit; every leaf has `links` cables to every spine."""
    gone = set(without)
    leaves = {
        f"aa{unit:06x}{rail:02x}": f"MF0;leaf-{rail + 1:02d}-{unit + 1:02d}:MQM9700/U1"
        for unit in range(units)
        for rail in range(rails)
        if f"leaf-{rail + 1:02d}-{unit + 1:02d}" not in gone
    }
    tops = {f"bb{spine:08x}": f"MF0;spine-{spine + 1:02d}:MQM9700/U1" for spine in range(spines)}
    adapters, cables = {}, []
    for unit in range(units):
        for rail in range(rails):
            leaf = f"aa{unit:06x}{rail:02x}"
            if leaf not in leaves:
                continue
            for host in range(hosts):
                guid = f"cc{unit:04x}{host:04x}{rail:02x}"
                adapters[guid] = f"n{unit + 1:03d}-{host + 1:02d} mlx5_{rail}"
                cables.append(Cable(leaf, host + 1, guid, 1))
            for at, spine in enumerate(tops):
                for link in range(links):
                    port = hosts + at * links + link + 1
                    cables.append(Cable(leaf, port, spine, (unit * rails + rail) * links + link + 1))
    return MadeFabric(leaves | tops, adapters, tuple(cables))


def render_dump(fabric: MadeFabric) -> str:
    lines = ["#", "# Topology file: generated on Mon Jan  1 00:00:00 2030", "#", ""]
    ends: dict[str, list[tuple[int, str, int, str]]] = {}
    for cable in fabric.cables:
        ends.setdefault(cable.leaf, []).append((cable.leaf_port, cable.other, cable.other_port, cable.rate))
        ends.setdefault(cable.other, []).append((cable.other_port, cable.leaf, cable.leaf_port, cable.rate))
    described = fabric.switches | fabric.adapters
    kinds = dict.fromkeys(fabric.switches, "S") | dict.fromkeys(fabric.adapters, "H")
    for guid, text in described.items():
        is_switch = kinds[guid] == "S"
        lines += ["vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guid}"]
        lines.append(f"switchguid=0x{guid}({guid})" if is_switch else f"caguid=0x{guid}")
        lines.append(f'{"Switch" if is_switch else "Ca"}\t65 "{kinds[guid]}-{guid}"\t\t# "{text}"')
        for port, other, other_port, rate in sorted(ends.get(guid, [])):
            mine = "" if is_switch else f"({guid})"
            peer = f'"{kinds[other]}-{other}"[{other_port}]'
            lines.append(f'[{port}]{mine}\t{peer}\t\t# "{described[other]}" lid 1 {rate}')
        lines.append("")
    return "\n".join(lines)
