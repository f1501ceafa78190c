"""A made fabric of 1,000 nodes: leaves of 32 nodes, 4 rails, half of the leaves oversubscribed 2:1, some links dead."""

from collections.abc import Iterator

NODES, PER_LEAF, RAILS, SPINES = 1_000, 32, 4, 16
GUID_SWITCH, GUID_SPINE, GUID_HOST = 0xAA << 40, 0xBB << 40, 0xCC << 40


def node_name(number: int) -> str:
    return f"node-{number:04d}"


def dump(swapped: bool = False) -> str:
    """As ibnetdiscover prints it. `swapped`: the first nodes of two units have changed places."""
    return "\n".join(_lines(swapped)) + "\n"


def _lines(swapped: bool) -> Iterator[str]:
    units = -(-NODES // PER_LEAF)
    hosts: dict[int, list[int]] = {unit: [] for unit in range(units)}
    for number in range(NODES):
        unit = number // PER_LEAF
        if swapped and number in (0, PER_LEAF):
            unit = 1 - unit
        hosts[unit].append(number)
    spines: dict[int, list[str]] = {spine: [] for spine in range(SPINES)}
    for unit in range(units):
        links = 2 if unit % 2 else 1  # 32 or 16 links up for 32 nodes
        for rail in range(RAILS):
            guid = f"{GUID_SWITCH + unit * RAILS + rail:x}"
            yield from _head("Switch", "S", guid, f"MF0;leaf-{rail + 1}-{unit + 1:02d}:MQM9700/U1", "switchguid")
            for port, number in enumerate(hosts[unit], start=1):
                host = f"{GUID_HOST + number * RAILS + rail:x}"
                yield f'[{port}]\t"H-{host}"[1]({host})\t\t# "{node_name(number)} mlx5_{rail}" lid 1 4xNDR'
            for spine in range(SPINES):
                for link in range(links):
                    if (unit * 7 + rail * 5 + spine * 3 + link) % 33 == 0:
                        continue  # 3 % of the links are dead
                    port, other = 33 + spine * links + link, f"{GUID_SPINE + spine:x}"
                    far = len(spines[spine]) + 1
                    yield f'[{port}]\t"S-{other}"[{far}]\t\t# "MF0;spine-{spine + 1}:MQM9700/U1" lid 1 4xNDR'
                    spines[spine].append(f'[{far}]\t"S-{guid}"[{port}]\t\t# "leaf" lid 1 4xNDR')
            yield ""
    for spine, ports in spines.items():
        yield from _head("Switch", "S", f"{GUID_SPINE + spine:x}", f"MF0;spine-{spine + 1}:MQM9700/U1", "switchguid")
        yield from ports
        yield ""
    for unit, numbers in hosts.items():
        for port, number in enumerate(numbers, start=1):
            for rail in range(RAILS):
                guid, leaf = f"{GUID_HOST + number * RAILS + rail:x}", f"{GUID_SWITCH + unit * RAILS + rail:x}"
                yield from _head("Ca", "H", guid, f"{node_name(number)} mlx5_{rail}", "caguid")
                yield f'[1]({guid})\t"S-{leaf}"[{port}]\t\t# lid 1 lmc 0 "leaf" lid 1 4xNDR'
                yield ""


def _head(kind: str, letter: str, guid: str, text: str, fact: str) -> Iterator[str]:
    yield from ("vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guid}", f"{fact}=0x{guid}")
    yield f'{kind}\t65 "{letter}-{guid}"\t\t# "{text}"'
