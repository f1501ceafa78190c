"""Read the output of `ibnetdiscover`: switches, host adapters and the cables between them.

In:    the text of a dump.   Out: a FabricDump, which `fabric.fabric_topology` turns into a Topology.
A dump lists every cable twice, once at each end. Host ports are joined to the adapter's own section by GUID. A dump
whose sections end before every named device has one was cut off, and is refused.
"""

import re
from typing import NamedTuple

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology import MB_S_PER_GBIT, FindingKind, TopologyFinding

MAX_LINES = 5_000_000
# Gbit/s of data on one lane; 4xNDR is 400 Gbit/s.
LANE_GBIT = {"SDR": 2, "DDR": 4, "QDR": 8, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
_SECTION = re.compile(r'(Switch|Ca|Rt)\s+[0-9]+\s+"([SHR])-([0-9a-fA-F]{1,16})"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(
    r'\[([0-9]{1,5})\](?:\([0-9a-fA-F]*\))?\s+"([SHR])-([0-9a-fA-F]{1,16})"\[([0-9]{1,5})\](?:\([0-9a-fA-F]*\))?([^\n]*)'
)
_RATE = re.compile(r"\s([0-9]{1,2})x([A-Z]{3}(?:10)?)\s*$")
_PEER = re.compile(r'"([^"]*)"')
_FACT = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x[0-9a-fA-F]+.*")
_WAY_OUT = "run ibnetdiscover again and give its whole output"
_SHOWN = 60


class Port(NamedTuple):
    """One end of a cable."""

    number: int
    peer: str  # the GUID of the device at the other end
    peer_port: int
    mb_s: int  # 0: the dump does not tell
    line: int


class Device(NamedTuple):
    """A switch or a host adapter."""

    guid: str
    description: str
    ports: tuple[Port, ...]
    is_switch: bool
    line: int


class FabricDump(NamedTuple):
    switches: dict[str, Device]  # by GUID
    adapters: dict[str, Device]
    findings: tuple[TopologyFinding, ...] = ()


def read_ibnetdiscover(text: str, where: str = "the dump") -> FabricDump:
    found = _read_sections(text, where)
    if not any(device.is_switch for device in found.values()):
        raise ConfigError(f"{where} has no switch; {_WAY_OUT}", where)
    findings = _check_both_ends(found, where)
    switches = {guid: device for guid, device in found.items() if device.is_switch}
    adapters = {guid: device for guid, device in found.items() if not device.is_switch}
    return FabricDump(switches, adapters, tuple(findings))


def _read_sections(text: str, where: str) -> dict[str, Device]:
    found: dict[str, Device] = {}
    current: Device | None = None
    ports: list[Port] = []

    def close() -> None:
        if current is not None:
            found[current.guid] = current._replace(ports=tuple(ports))
            ports.clear()

    for number, raw in enumerate(text.splitlines(), start=1):
        if number > MAX_LINES:
            raise ConfigError(f"{where} has more than {MAX_LINES:,} lines; {_WAY_OUT}", where)
        line = raw.strip()
        if not line or line.startswith("#") or _FACT.fullmatch(line):
            continue
        if section := _SECTION.match(line):
            close()
            guid, kind = section[3].lower(), section[1]
            if guid in found:
                first = found[guid].line
                raise ConfigError(
                    f"{where} line {number}: {guid} was described on line {first} already; {_WAY_OUT}", guid
                )
            current = Device(guid, section[4] or "", (), kind == "Switch", number)
        elif (port := _PORT.match(line)) and current is not None:
            ports.append(Port(int(port[1]), port[3].lower(), int(port[4]), _rate(port[5]), number))
        else:
            raise ConfigError(
                f"{where} line {number} is no line of ibnetdiscover: {line[:_SHOWN]!r}; {_WAY_OUT}", where
            )
    close()
    return found


def _rate(rest: str) -> int:
    match = _RATE.search(rest)
    return int(match[1]) * LANE_GBIT.get(match[2], 0) * MB_S_PER_GBIT if match else 0


def _check_both_ends(found: dict[str, Device], where: str) -> list[TopologyFinding]:
    """Every cable's other end has a section; where the two ends disagree, that is told and the switch's end counts."""
    findings = []
    for device in found.values():
        for port in device.ports:
            other = found.get(port.peer)
            if other is None:
                raise ConfigError(
                    f"{where} line {port.line} names {port.peer}, which has no section: "
                    f"the dump was cut off; {_WAY_OUT}",
                    port.peer,
                )
            if device.is_switch:
                back = next((each for each in other.ports if each.number == port.peer_port), None)
                if back is None or (back.peer, back.peer_port) != (device.guid, port.number):
                    seen = f"{back.peer}[{back.peer_port}] on line {back.line}" if back else "nothing"
                    findings.append(
                        TopologyFinding(
                            FindingKind.CONTRADICTION,
                            f"{device.description or device.guid} port {port.number}",
                            f"is cabled to {port.peer}[{port.peer_port}] (line {port.line}), "
                            f"and that port is cabled to {seen}",
                        )
                    )
    return findings
