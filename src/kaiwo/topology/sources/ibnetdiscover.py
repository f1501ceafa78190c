"""Read the output of `ibnetdiscover`: switches, host adapters and the cables between them.

In:    the text of a dump.   Out: a FabricDump, which `fabric.fabric_topology` turns into a Topology.
A dump lists every cable twice, once at each end. Host ports are joined to the adapter's own section by GUID. A dump
whose sections end before every named device has one was cut off, and is refused.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology import MB_S_PER_GBIT, FindingKind, TopologyFinding

# Gbit/s of data on one lane; 4xNDR is 400 Gbit/s.
LANE_GBIT = {"SDR": 2, "DDR": 4, "QDR": 8, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
_SECTION = re.compile(r'(Switch|Ca|Rt)\s+[0-9]+\s+"([SHR])-([0-9a-fA-F]{1,16})"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(r'\[([0-9]{1,5})\](?:\([0-9a-fA-F]*\))?\s+"[SHR]-([0-9a-fA-F]{1,16})"\[([0-9]{1,5})\]')
_RATE = re.compile(r"([0-9]{1,2})x([A-Z]{3}(?:10)?)")
_SKIPPED = {  # by the first letter, which tells most lines apart: worth 15 ms for 1,000 nodes
    "": ("",),
    "#": ("#",),
    "v": ("vendid=0x",),
    "d": ("devid=0x",),
    "s": ("sysimgguid=0x", "switchguid=0x"),
    "c": ("caguid=0x",),
    "r": ("rtguid=0x",),
}
_WAY_OUT = "run ibnetdiscover again and give its whole output"
_SHOWN = 60


class FabricPort(msgspec.Struct, frozen=True, gc=False):
    """One end of a cable."""

    number: int
    peer: str  # the GUID of the device at the other end
    peer_port: int
    mb_s: int  # 0: the dump does not tell
    line: int


class FabricDevice(NamedTuple):
    """A switch or a host adapter."""

    guid: str
    description: str
    ports: Sequence[FabricPort]
    is_switch: bool
    line: int


class FabricDump(NamedTuple):
    switches: dict[str, FabricDevice]  # by GUID
    adapters: dict[str, FabricDevice]
    findings: tuple[TopologyFinding, ...] = ()


def read_ibnetdiscover(text: str, where: str = "the dump") -> FabricDump:
    found = _read_sections(text, where)
    if not any(device.is_switch for device in found.values()):
        raise ConfigError(f"{where} has no switch; {_WAY_OUT}", where)
    findings = _check_both_ends(found, where)
    switches = {guid: device for guid, device in found.items() if device.is_switch}
    adapters = {guid: device for guid, device in found.items() if not device.is_switch}
    return FabricDump(switches, adapters, tuple(findings))


def _read_sections(text: str, where: str) -> dict[str, FabricDevice]:
    found: dict[str, FabricDevice] = {}
    ports: list[FabricPort] = []
    rates: dict[str, int] = {}
    match_port, is_inside = _PORT.match, False
    for number, line in enumerate(text.splitlines(), start=1):
        if (skipped := _SKIPPED.get(line[:1])) is not None and line.startswith(skipped):
            continue
        if is_inside and (port := match_port(line)) is not None:
            here, peer, there = port.groups()
            word = line[line.rfind(" ") + 1 :]
            if (rate := rates.get(word)) is None:
                rate = rates[word] = _rate(word)
            ports.append(FabricPort(int(here), peer.lower(), int(there), rate, number))
        elif section := _SECTION.match(line):
            guid, ports, is_inside = section[3].lower(), [], True
            if guid in found:
                before = found[guid].line
                fact = f"{where} line {number}: {guid} was described on line {before} already"
                raise ConfigError(f"{fact}; {_WAY_OUT}", guid)
            found[guid] = FabricDevice(guid, section[4] or "", ports, section[1] == "Switch", number)
        elif line.strip():
            shown = line.strip()[:_SHOWN]
            raise ConfigError(f"{where} line {number} is no line of ibnetdiscover: {shown!r}; {_WAY_OUT}", where)
    return found


def _rate(word: str) -> int:
    match = _RATE.fullmatch(word)
    return int(match[1]) * LANE_GBIT.get(match[2], 0) * MB_S_PER_GBIT if match else 0


def _check_both_ends(found: dict[str, FabricDevice], where: str) -> list[TopologyFinding]:
    """Every cable's other end has a section; where the two ends disagree, that is told and the switch's end counts."""
    findings = []
    ends = {(guid, port.number): port for guid, device in found.items() for port in device.ports}
    for device in found.values():
        for port in device.ports:
            if port.peer not in found:
                raise ConfigError(
                    f"{where} line {port.line} names {port.peer}, which has no section: "
                    f"the dump was cut off; {_WAY_OUT}",
                    port.peer,
                )
            if device.is_switch:
                back = ends.get((port.peer, port.peer_port))
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
