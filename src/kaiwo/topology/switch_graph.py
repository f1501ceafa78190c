"""Arithmetic of a graph of switches: connected groups, and how far each switch is from the hosts."""

from collections.abc import Iterable, Mapping, Sequence


def connected_groups(members: Iterable[str], joined: Iterable[Sequence[str]]) -> list[set[str]]:
    """Members that are joined directly or over others, in groups; names that are no members are ignored."""
    group: dict[str, str] = {name: name for name in members}

    def first(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    for names in joined:
        known = [name for name in names if name in group]
        for other in known[1:]:
            one, two = first(known[0]), first(other)
            group[max(one, two)] = min(one, two)
    found: dict[str, set[str]] = {}
    for name in group:
        found.setdefault(first(name), set()).add(name)
    return [found[name] for name in sorted(found)]


def switch_tiers(peers: Mapping[str, Iterable[str]], leaves: Iterable[str]) -> dict[str, int]:
    """By switch: its distance from the nearest leaf. A switch that no leaf reaches has none."""
    tier = dict.fromkeys(leaves, 0)
    edge = list(tier)
    while edge:
        reached = sorted({peer for name in edge for peer in peers.get(name, ()) if peer in peers and peer not in tier})
        tier.update((name, tier[edge[0]] + 1) for name in reached)
        edge = reached
    return tier
