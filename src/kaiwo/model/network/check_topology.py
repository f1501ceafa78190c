"""Check that a topology makes sense before it replaces the one in force.

In:    a Topology and the words for its place ("KaiwoTopology 'fabric'").   Out: nothing, or one ConfigError.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations

import msgspec

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.connected_groups import connected_groups
from kaiwo.model.network.topology import NO_RAIL, Domain, Topology

MAX_LEVELS = 8
MAX_CIRCLE = 8  # names of a circle that are shown
MAX_DOMAINS = 20_000
MAX_NAME = 253  # of a domain or a node
MAX_LEVEL_NAME = 317  # the key of a label
MAX_NUMBER = 10**8  # of what a stranger says: sums over all domains stay far below 64 bits
MAX_CABLINGS = 512  # of the domains below joined switches: each is compared with each

_SHOWN = 40


def check_topology(topology: Topology, where: str, is_tree: bool = False) -> None:
    """In a tree a domain has one parent, and a node is in one domain of a level."""
    _check_levels(topology, where)
    by_name = _domains_by_name(topology, where)
    rank = {level.name: at for at, level in enumerate(topology.levels)}
    labelled = {level.name for level in topology.levels if level.node_label}
    for domain in topology.domains:
        _check_parents(domain, by_name, rank, labelled, where)
        if is_tree and len(domain.parents) > 1:
            first, second = domain.parents[:2]
            raise ConfigError(
                f"{where}: {domain.level} {domain.name} is below both {first} and {second}, and a tree allows one; "
                f"remove it from one of the two",
                domain.name,
            )
    for end, what in _ends(topology):
        if end not in by_name:
            raise ConfigError(f"{where}: {what} names the domain {end}, which is not in it; add the domain", end)
    if is_tree:
        _check_single_places(topology.domains, where)
    else:
        _check_overlaps(topology.domains, where)
    _check_levels_of_nodes(topology.domains, by_name, where)
    _check_access(topology, by_name, bool(labelled), where)


def check_words_and_numbers(topology: Topology, where: str) -> None:
    """Of a topology that code of others made: its names are shown to people, and its numbers are added up."""
    for value in _plain_values(msgspec.to_builtins(topology)):
        if isinstance(value, str) and (len(value) > MAX_LEVEL_NAME or not value.isprintable()):
            raise ConfigError(f"{where} has the text {value[:80]!r}, which is too long or not printable")
        if isinstance(value, int) and not NO_RAIL <= value <= MAX_NUMBER:
            raise ConfigError(f"{where} has the number {value:,}; expected 0 to {MAX_NUMBER:,}")


def _plain_values(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        value = list(value.values())  # its keys are fields
    if isinstance(value, list | tuple):
        for each in value:
            yield from _plain_values(each)
    else:
        yield value


def check_orphans(topology: Topology, where: str) -> None:
    """A domain that lies in no wider one, while the others of its level do: a parent was left out."""
    labelled = {level.name for level in topology.levels if level.node_label}
    wider = [level.name for level in topology.levels]
    for at, level in enumerate(topology.levels[1:], start=1):
        if labelled.intersection(wider[:at]):
            continue  # its nodes may have the label of a wider level
        own = [domain for domain in topology.domains if domain.level == level.name]
        orphan = next((domain for domain in own if not domain.parents), None)
        if orphan is not None and (other := next((domain for domain in own if domain.parents), None)) is not None:
            raise ConfigError(
                f"{where}: domain {orphan.name} of level {level.name} names no parent, as {other.name} does; name the "
                f"{wider[at - 1]} that it is in, or write one for it",
                orphan.name,
            )


def check_joined_domains(topology: Topology, where: str) -> None:
    """Switches above the same domain count as one: the spines of a fat tree, to all of which each leaf is connected. So
    any two domains below them must have one in common; otherwise their level would promise what does not hold."""
    by_name = {domain.name: domain for domain in topology.domains}
    of_node: dict[tuple[str, str], list[str]] = {}
    for domain in topology.domains:
        for node in domain.nodes:
            of_node.setdefault((domain.level, node), []).append(domain.name)
    # The leaves of several rails are one place.
    units = connected_groups([domain.name for domain in topology.domains if domain.nodes], of_node.values())
    for level in topology.levels:
        cabling: dict[frozenset[str], str] = {}  # an example of what is below exactly these domains
        for unit in units:
            if above := frozenset(_domains_of_level(unit, by_name, level.name)):
                cabling.setdefault(above, min(unit))
        if len(cabling) == sum(map(len, cabling)):
            continue  # nothing is joined: a tree
        for group in [each for each in connected_groups(by_name, cabling) if len(each) > 1]:
            own = {above: name for above, name in cabling.items() if not above.isdisjoint(group)}
            if len(own) > MAX_CABLINGS:
                raise ConfigError(
                    f"{where}: what is below {level.name} {min(group)} is connected in {len(own):,} different ways, "
                    f"and the maximum is {MAX_CABLINGS}; name fewer parents",
                    level.name,
                )
            if len(own) > 1:
                _check_common_switch(own, level.name, where)


def check_tree_cycle(parents: Mapping[str, Iterable[str]], where: str) -> None:
    """Raise a ConfigError that shows the circle, if going up from some name comes back to it."""
    done: set[str] = set()
    for start in sorted(parents):
        path: list[str] = []
        on_path: set[str] = set()
        left: list[tuple[str, bool]] = [(start, False)]
        while left:
            name, is_leaving = left.pop()
            if is_leaving:
                path.pop()
                on_path.discard(name)
                done.add(name)
            elif name in on_path:
                circle = _show_circle(path[path.index(name) :])
                raise ConfigError(f"{where}: {name} is above itself ({circle}); remove one of these links", name)
            elif name not in done:
                path.append(name)
                on_path.add(name)
                left.append((name, True))
                left += [(above, False) for above in sorted(parents.get(name, ()))]


def check_name_length(name: str, where: str, most: int = MAX_NAME) -> None:
    """Names are shown in tables and messages; no host name is longer."""
    if len(name) > most:
        raise ConfigError(
            f"{where}: the name {name[:_SHOWN]}... has {len(name):,} characters and the maximum is {most}; "
            "check whether it is the right file",
            where,
        )


def _show_circle(names: list[str]) -> str:
    """All of a short circle; of a long one the beginning and the end."""
    shown = names if len(names) <= MAX_CIRCLE else [*names[: MAX_CIRCLE - 1], f"... {len(names):,} in all", names[-1]]
    return " > ".join([*shown, names[0]])


def _check_levels(topology: Topology, where: str) -> None:
    names = [level.name for level in topology.levels]
    if not names:
        raise ConfigError(f"{where} has no levels; name at least one, such as leaf", "levels")
    if len(names) > MAX_LEVELS:
        raise ConfigError(f"{where} has {len(names)} levels and the maximum is {MAX_LEVELS}; leave some out", "levels")
    for name in names:
        check_name_length(name, where, MAX_LEVEL_NAME)
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"{where} has two levels named {twice}; rename one of them", "levels")


def _domains_by_name(topology: Topology, where: str) -> dict[str, Domain]:
    if len(topology.domains) > MAX_DOMAINS:
        count = f"{len(topology.domains):,}"
        raise ConfigError(f"{where} has {count} domains and the maximum is {MAX_DOMAINS:,}; split it", "domains")
    levels = {level.name for level in topology.levels}
    found: dict[str, Domain] = {}
    for domain in topology.domains:
        if domain.name in found:
            raise ConfigError(f"{where} has two domains named {domain.name}; rename one of them", domain.name)
        if domain.level not in levels:
            known = ", ".join(level.name for level in topology.levels)
            raise ConfigError(
                f"{where}: domain {domain.name} names the level {domain.level}, which is not in levels; "
                f"write one of {known}",
                domain.name,
            )
        found[domain.name] = domain
    return found


def _check_parents(
    domain: Domain, by_name: Mapping[str, Domain], rank: Mapping[str, int], labelled: set[str], where: str
) -> None:
    for name in domain.parents:
        parent = by_name.get(name)
        if parent is None:
            if any(rank[level] < rank[domain.level] for level in labelled):
                continue  # it may be a value of a wider level's label
            raise ConfigError(
                f"{where}: domain {domain.name} names the parent {name}, which is not in domains; add it, or remove it",
                domain.name,
            )
        if rank[parent.level] >= rank[domain.level]:
            raise ConfigError(
                f"{where}: domain {domain.name} of level {domain.level} names the parent {name} of level "
                f"{parent.level}, which is not wider; name one of an earlier level",
                domain.name,
            )


def _ends(topology: Topology) -> Iterable[tuple[str, str]]:
    for link in topology.links:
        yield link.lower, f"the link to {link.upper}"
    for port in topology.attachments:
        yield port.domain, f"the port of node {port.node}"


def _check_access(topology: Topology, by_name: Mapping[str, Domain], has_labels: bool, where: str) -> None:
    """A domain that no label can define must be written; otherwise a typing error would leave it open."""
    for rule in topology.access:
        for name in rule.domains:
            if not has_labels and name not in by_name:
                raise ConfigError(
                    f"{where}: access names the domain {name}, which is not in it; write the name of a domain, as "
                    "`kaiwo topology` shows it",
                    name,
                )


def _check_single_places(domains: Iterable[Domain], where: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    for domain in domains:
        for node in domain.nodes:
            other = seen.setdefault((domain.level, node), domain.name)
            if other != domain.name:
                raise ConfigError(
                    f"{where}: node {node} is in both {other} and {domain.name}, and a tree allows one {domain.level}; "
                    "remove it from one of them",
                    node,
                )


def _check_levels_of_nodes(domains: Iterable[Domain], by_name: Mapping[str, Domain], where: str) -> None:
    """A node that is written on two levels is in one place: its wider domain is around its narrower one."""
    of_node: dict[str, list[Domain]] = {}
    for domain in domains:
        for node in domain.nodes:
            of_node.setdefault(node, []).append(domain)
    for node, found in of_node.items():
        if len({domain.level for domain in found}) < 2:
            continue
        for narrow, wide in ((one, other) for one in found for other in found if one.level != other.level):
            around = set(_domains_of_level([narrow.name], by_name, wide.level))
            if around and wide.name not in around:
                raise ConfigError(
                    f"{where}: node {node} is in {wide.level} {wide.name}, and also in {narrow.name}, which is in "
                    f"{min(around)}; remove it from one of them",
                    node,
                )


def _check_overlaps(domains: Iterable[Domain], where: str) -> None:
    """Leaves of several rails have about the same nodes, and count as one domain. A few nodes in two domains are a
    mistake: it would join the domains, and break the promise of the level."""
    in_domains: dict[tuple[str, str], list[Domain]] = {}
    for domain in domains:
        for node in domain.nodes:
            in_domains.setdefault((domain.level, node), []).append(domain)
    shared = Counter((one.name, other.name) for found in in_domains.values() for one, other in combinations(found, 2))
    for (_, node), found in in_domains.items():
        for one, other in combinations(found, 2):
            smaller = min(len(set(one.nodes)), len(set(other.nodes)))
            if shared[one.name, other.name] * 2 <= smaller:
                raise ConfigError(
                    f"{where}: node {node} is in both {one.name} and {other.name}, which share too few nodes to be two "
                    "rails of the same nodes; remove it from one of them",
                    node,
                )


def _domains_of_level(unit: Iterable[str], by_name: Mapping[str, Domain], level: str) -> Iterable[str]:
    """These domains and all around them, as far as they are of this level."""
    seen, left = set(unit), list(unit)
    while left:
        domain = by_name.get(left.pop())
        if domain is None:
            continue  # the value of a wider level's label
        if domain.level == level:
            yield domain.name
        for name in domain.parents:
            if name not in seen:
                seen.add(name)
                left.append(name)


def _check_common_switch(cabling: Mapping[frozenset[str], str], level: str, where: str) -> None:
    """`cabling`: by the domains of a level that are joined, an example of what is below exactly these."""
    bridge = min(name for above, name in cabling.items() if len(above) > 1)
    for (one, first), (other, second) in combinations(sorted(cabling.items(), key=lambda each: each[1]), 2):
        if not one & other:
            names = " and ".join(sorted(next(above for above, name in cabling.items() if name == bridge))[:2])
            raise ConfigError(
                f"{where}: {bridge} is below both {names}, so they count as one {level}, but {first} and {second} "
                f"below them have no {level} in common; name one parent of {bridge}, or the same parents for all of "
                "them",
                bridge,
            )
