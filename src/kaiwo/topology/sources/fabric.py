"""Turn a dump of a fabric into a Topology: which switches are leaves, which leaves form a unit, and which rail each is.

In:    a FabricDump, and the nodes of adapters that have no name of their own.   Out: a Topology with findings.

A leaf is a switch with host adapters. Leaves that share hosts form a *unit*: in a rail-optimised fabric each host has
one adapter on every leaf of its unit. A rail is known by the number in the adapters' names (`HCA-1`, `mlx5_0`), which
is the same on all leaves of a rail.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.check_topology import check_topology
from kaiwo.model.network.connected_groups import connected_groups
from kaiwo.model.network.topology import (
    NO_RAIL,
    Attachment,
    Domain,
    FindingKind,
    NetworkLink,
    Topology,
    TopologyFinding,
    TopologyLevel,
)
from kaiwo.topology.link_capacity import oversubscribed_leaves
from kaiwo.topology.sources.ibnetdiscover import FabricDevice, FabricDump
from kaiwo.topology.switch_graph import switch_tiers

AGGREGATION = "Aggregation Node"  # a switch's own adapter for in-network reductions
MAX_DIGITS = 3  # of an adapter's number
_SWITCH_NAME = re.compile(r"(?:MF[0-9]+;)?([^:]*)(?::.*)?")
_NUMBERS = re.compile(r"([0-9]+)")


class AdapterPort(msgspec.Struct, frozen=True, gc=False):
    """An adapter's port on a leaf."""

    leaf: str  # GUID
    port: int
    guid: str
    host: str  # empty: the adapter has no name
    scheme: str  # "HCA-" or "mlx5_"
    adapter: int  # the number after it
    mb_s: int


def fabric_topology(
    dump: FabricDump, name: str, where: str = "the dump", nodes_by_guid: Mapping[str, str] | None = None
) -> Topology:
    """`nodes_by_guid`: the node of an adapter, for adapters whose description names none."""
    ports = host_ports(dump, nodes_by_guid or {})
    shown = _switch_names(dump.switches)
    leaves = sorted({port.leaf for port in ports}, key=lambda leaf: shown[leaf])
    if not leaves:
        raise ConfigError(f"{where} has no host on any switch; run ibnetdiscover from a node of the fabric", where)
    unit_of = _units(ports, leaves, shown)
    ports = _name_by_position(ports, unit_of)
    rail_of = _rails(ports)
    has_rails = len(set(rail_of.values())) > 1
    tiers = switch_tiers({guid: _switch_peers(device, dump) for guid, device in dump.switches.items()}, leaves)
    levels, wider = _wider_levels(dump, tiers, leaves)
    domains, above_leaf = list(wider.domains), wider.above
    if has_rails:
        levels = (*levels, TopologyLevel("unit"))
        for unit in sorted(set(unit_of.values())):
            members = [leaf for leaf in leaves if unit_of[leaf] == unit]
            above = sorted({above for leaf in members for above in above_leaf[leaf]})
            domains.append(Domain(unit, "unit", tuple(above)))
        above_leaf = {leaf: (unit_of[leaf],) for leaf in leaves}
    domains += [Domain(shown[leaf], "leaf", above_leaf[leaf]) for leaf in leaves]
    links, missing_links = _links(dump, tiers, shown)
    attachments = tuple(_attachments(ports, shown, rail_of if has_rails else {}))
    topology = Topology(
        name,
        (*levels, TopologyLevel("leaf")),
        tuple(domains),
        attachments,
        links,
        f"ibnetdiscover {where}",
        (
            *dump.findings,
            *(_missing_leaves(unit_of, rail_of, shown) if has_rails else ()),
            *missing_links,
            *oversubscribed_leaves(attachments, links),
            *(_mixed_rails(ports, rail_of, shown) if has_rails else ()),
            *_unnamed(ports, shown),
        ),
    )
    check_topology(topology, where)
    return topology


def host_ports(dump: FabricDump, nodes_by_guid: Mapping[str, str]) -> list[AdapterPort]:
    """All ports of hosts, joined to the adapters' sections by GUID, without the switches' own adapters."""
    found = []
    for switch in dump.switches.values():
        for port in switch.ports:
            adapter = dump.adapters.get(port.peer)
            if adapter is None or AGGREGATION in adapter.description:
                continue
            host, scheme, number = _host_of(adapter.description)
            host = nodes_by_guid.get(adapter.guid, host)
            found.append(AdapterPort(switch.guid, port.number, adapter.guid, host, scheme, number, port.mb_s))
    seen = Counter([(port.host, port.scheme, port.adapter) for port in found])
    # Two adapters with the same name are on two machines (`localhost`, `ubuntu`): the name tells nothing.
    twice = {name for name, count in seen.items() if count > 1 and name[0]}
    if not twice:
        return found
    return [
        replace(port, host="")
        if (port.host, port.scheme, port.adapter) in twice and port.guid not in nodes_by_guid
        else port
        for port in found
    ]


def _host_of(description: str) -> tuple[str, str, int]:
    """`dgx-01 HCA-5` is adapter 5 of dgx-01. An adapter that nobody named describes its model in several words."""
    words = description.split()
    if len(words) != 2 or not words[1][0].isalpha():
        return "", "", NO_RAIL
    host, adapter = words
    scheme = adapter.rstrip("0123456789")
    digits = adapter[len(scheme) :]
    return (host, scheme, int(digits)) if 0 < len(digits) <= MAX_DIGITS else ("", "", NO_RAIL)


def _switch_names(switches: Mapping[str, FabricDevice]) -> dict[str, str]:
    """A readable name for each switch: its description without the chassis, or its GUID where that is not unique."""
    short = {}
    for guid, device in switches.items():
        match = _SWITCH_NAME.fullmatch(device.description)
        short[guid] = (match[1].strip() if match else "") or guid
    taken = Counter(short.values())
    return {guid: name if taken[name] == 1 else guid for guid, name in short.items()}


def _units(ports: Iterable[AdapterPort], leaves: list[str], shown: Mapping[str, str]) -> dict[str, str]:
    """By leaf: the name of its unit. Leaves that share a host are in one."""
    by_host: dict[str, list[str]] = {}
    for port in ports:
        if port.host:
            by_host.setdefault(port.host, []).append(port.leaf)
    groups = connected_groups(leaves, by_host.values())
    ordered = sorted(
        (sorted(group, key=lambda leaf: shown[leaf]) for group in groups), key=lambda each: _unit_key(each, shown)
    )
    width = len(str(len(ordered)))
    return {leaf: f"unit-{at:0{width}d}" for at, group in enumerate(ordered, start=1) for leaf in group}


def _unit_key(leaves: list[str], shown: Mapping[str, str]) -> tuple[tuple[int, ...], str]:
    """In the order of the numbers in the leaves' names, the last number first: leaf-02-07 is before leaf-01-08."""
    numbers = [
        tuple(int(each) for each in reversed(_NUMBERS.findall(shown[leaf])) if len(each) < 10) for leaf in leaves
    ]
    return min(numbers), shown[leaves[0]]


def _name_by_position(ports: list[AdapterPort], unit_of: Mapping[str, str]) -> list[AdapterPort]:
    """Name unnamed adapters by the host that the unit's other leaves have at the same port, where all of them agree."""
    at: dict[tuple[str, int], set[str]] = {}
    on_leaf: set[tuple[str, str]] = set()
    for port in ports:
        if port.host:
            at.setdefault((unit_of[port.leaf], port.port), set()).add(port.host)
            on_leaf.add((port.leaf, port.host))
    named = []
    for port in ports:
        hosts = at.get((unit_of[port.leaf], port.port), set())
        if not port.host and len(hosts) == 1 and (port.leaf, host := next(iter(hosts))) not in on_leaf:
            port = replace(port, host=host)
        named.append(port)
    return named


def _rails(ports: Iterable[AdapterPort]) -> dict[str, int]:
    """By leaf: the rank of its adapters' usual number among all leaves that use the same scheme of names."""
    seen: dict[str, Counter[tuple[str, int]]] = {}
    for (leaf, scheme, adapter), count in Counter([(port.leaf, port.scheme, port.adapter) for port in ports]).items():
        counts = seen.setdefault(leaf, Counter())
        if scheme:
            counts[scheme, adapter] += count
    usual = {leaf: min(counts, key=lambda key: (-counts[key], key)) for leaf, counts in seen.items() if counts}
    numbers: dict[str, set[int]] = {}
    for scheme, number in usual.values():
        numbers.setdefault(scheme, set()).add(number)
    ranks = {scheme: {number: rank for rank, number in enumerate(sorted(each))} for scheme, each in numbers.items()}
    return {leaf: ranks[usual[leaf][0]][usual[leaf][1]] if leaf in usual else NO_RAIL for leaf in seen}


def _switch_peers(device: FabricDevice, dump: FabricDump) -> list[str]:
    return [port.peer for port in device.ports if port.peer in dump.switches]


class _Wider(NamedTuple):
    domains: tuple[Domain, ...]
    above: dict[str, tuple[str, ...]]  # by leaf: the narrowest of these domains that contains it


def _wider_levels(
    dump: FabricDump, tiers: Mapping[str, int], leaves: list[str]
) -> tuple[tuple[TopologyLevel, ...], _Wider]:
    """A level for every tier of switches that leaves some leaves unconnected, and one for the whole fabric."""
    top = max(tiers.values())
    levels: list[TopologyLevel] = []
    domains: list[Domain] = []
    above: dict[str, tuple[str, ...]] = dict.fromkeys(leaves, ())
    count = 0
    for tier in range(top, 0, -1):
        inside = [guid for guid, each in tiers.items() if each <= tier]
        cables = {
            (guid, peer)
            for guid in inside
            for peer in set(_switch_peers(dump.switches[guid], dump))
            if guid < peer and tiers[peer] <= tier  # each cable has two ends
        }
        groups = [sorted(set(group).intersection(leaves)) for group in connected_groups(inside, cables)]
        groups = sorted(group for group in groups if group)
        if tier != top and len(groups) <= count:
            continue
        count = len(groups)
        level = "fabric" if tier == top else "pod" if tier == 1 else f"pod-{tier}"
        levels.append(TopologyLevel(level))
        for number, group in enumerate(groups, start=1):
            name = level if count == 1 else f"{level}-{number:0{len(str(count))}d}"
            domains.append(Domain(name, level, tuple(sorted({each for leaf in group for each in above[leaf]}))))
            above.update(dict.fromkeys(group, (name,)))
    return tuple(levels), _Wider(tuple(domains), above)


def _links(
    dump: FabricDump, tiers: Mapping[str, int], shown: Mapping[str, str]
) -> tuple[tuple[NetworkLink, ...], list[TopologyFinding]]:
    """Links up from leaves. Where most pairs of switches have the same number of cables, the others miss some."""
    found = Counter(
        [
            (guid, port.peer, port.mb_s)
            for guid, device in dump.switches.items()
            if tiers.get(guid) == 0
            for port in device.ports
            if tiers.get(port.peer) == 1
        ]
    )
    if not found:
        return (), []
    pairs: Counter[tuple[str, str]] = Counter()
    rates_of: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for (lower, upper, mb_s), count in sorted(found.items()):
        pairs[lower, upper] += count
        rates_of.setdefault((lower, upper), []).append((mb_s, count))
    lowers, uppers = sorted({lower for lower, _ in pairs}), sorted({upper for _, upper in pairs})
    # A spine outside a leaf's pod is no missing cable: only pairs whose pod has other cables count.
    usual, share = Counter(pairs.values()).most_common(1)[0]
    is_regular = share * 2 > len(pairs) and len(pairs) * 2 > len(lowers) * len(uppers)
    fastest = max(mb_s for _, _, mb_s in found)
    links, missing = [], Counter[str]()
    for lower in lowers:
        for upper in uppers:
            dead = max(0, usual - pairs[lower, upper]) if is_regular else 0
            missing[lower] += dead
            rates = rates_of.get((lower, upper), [])
            for at, (mb_s, count) in enumerate(rates):
                gone = dead if at == len(rates) - 1 else 0
                links.append(NetworkLink(shown[lower], shown[upper], mb_s, count + gone, gone))
            if dead and not rates:
                links.append(NetworkLink(shown[lower], shown[upper], fastest, dead, dead))
    total = Counter[str]()
    for (lower, _), count in pairs.items():
        total[lower] += count
    findings = [
        TopologyFinding(
            FindingKind.MISSING_LINKS,
            shown[lower],
            f"has {total[lower]} links up, {count} fewer than the other leaves; check the cables",
        )
        for lower, count in sorted(missing.items(), key=lambda each: shown[each[0]])
        if count
    ]
    return tuple(links), findings


def _attachments(
    ports: Iterable[AdapterPort], shown: Mapping[str, str], rail_of: Mapping[str, int]
) -> Iterable[Attachment]:
    found: dict[tuple[str, str, int, int], list[str]] = {}
    for port in ports:
        key = (port.host or f"guid-{port.guid}", shown[port.leaf], rail_of.get(port.leaf, NO_RAIL), port.mb_s)
        found.setdefault(key, []).append(f"{port.scheme}{port.adapter}" if port.scheme else "")
    for (node, leaf, rail, mb_s), devices in sorted(found.items()):
        yield Attachment(node, leaf, rail, mb_s, len(devices), devices=tuple(sorted(devices)) if all(devices) else ())


def _missing_leaves(
    unit_of: Mapping[str, str], rail_of: Mapping[str, int], shown: Mapping[str, str]
) -> list[TopologyFinding]:
    rails = sorted(set(rail_of.values()) - {NO_RAIL})
    findings = []
    for unit in sorted(set(unit_of.values())):
        own = {rail_of[leaf]: shown[leaf] for leaf in unit_of if unit_of[leaf] == unit}
        for rail in rails:
            if rail not in own:
                others = {
                    rail_of[leaf]: shown[leaf] for leaf in unit_of if unit_of[leaf] != unit and rail_of[leaf] == rail
                }
                guess = _guess_name(own, others.get(rail, ""), {shown[leaf]: rail_of[leaf] for leaf in rail_of}, rail)
                findings.append(
                    TopologyFinding(
                        FindingKind.MISSING_LEAF,
                        guess or f"rail {rail + 1} of {unit}",
                        f"is not in the dump: {unit} has no leaf on rail {rail + 1}, as the other units have",
                    )
                )
    return findings


def _guess_name(own: Mapping[int, str], example: str, rails: Mapping[str, int], rail: int) -> str:
    """The name of a missing leaf: that of a neighbour in its unit, with the number that tells its rail."""
    if not own or not example:
        return ""
    neighbour = own[min(own)]
    parts, like = _NUMBERS.split(neighbour), _NUMBERS.split(example)
    for at in range(1, len(parts), 2):
        by_rail: dict[int, set[str]] = {}
        for name, each in rails.items():
            pieces = _NUMBERS.split(name)
            if len(pieces) == len(parts):
                by_rail.setdefault(each, set()).add(pieces[at])
        tells = all(len(values) == 1 for values in by_rail.values()) and len({*map(min, by_rail.values())}) == len(
            by_rail
        )
        if tells and len(like) == len(parts):
            return "".join([*parts[:at], min(by_rail[rail]), *parts[at + 1 :]])
    return ""


def _mixed_rails(
    ports: list[AdapterPort], rail_of: Mapping[str, int], shown: Mapping[str, str]
) -> list[TopologyFinding]:
    """Adapters whose number belongs to another rail than their leaf. Machines of another make count their own way."""
    named = [port for port in ports if port.scheme]
    usual = Counter((port.scheme, port.adapter, rail_of[port.leaf]) for port in named)
    rail_of_number: dict[tuple[str, int], int] = {}
    for (scheme, number, rail), _ in sorted(usual.items(), key=lambda each: (each[1], each[0])):
        rail_of_number[scheme, number] = rail
    on_leaf = Counter((port.leaf, port.scheme) for port in named)
    schemes = {port.scheme for port in named}
    mixed = [
        port
        for port in named
        if rail_of_number[port.scheme, port.adapter] != rail_of[port.leaf]
        and on_leaf[port.leaf, port.scheme] * 2 > sum(on_leaf[port.leaf, each] for each in schemes)
    ]
    return [
        TopologyFinding(
            FindingKind.MIXED_RAILS,
            f"{port.host} {port.scheme}{port.adapter}",
            f"is cabled to {shown[port.leaf]} on rail {rail_of[port.leaf] + 1}, and the same adapter of other nodes "
            f"to rail {rail_of_number[port.scheme, port.adapter] + 1}; check whether two cables are swapped",
        )
        for port in sorted(mixed, key=lambda port: (port.host, port.adapter))
    ]


def _unnamed(ports: Iterable[AdapterPort], shown: Mapping[str, str]) -> list[TopologyFinding]:
    by_leaf: Counter[str] = Counter(shown[port.leaf] for port in ports if not port.host)
    if not by_leaf:
        return []
    places = ", ".join(f"{count} on {leaf}" for leaf, count in sorted(by_leaf.items()))
    way_out = "set the node description of these adapters"
    return [
        TopologyFinding(
            FindingKind.UNNAMED_PORT,
            f"{by_leaf.total()} host ports",
            f"belong to adapters that name no node ({places}); {way_out}",
        )
    ]
