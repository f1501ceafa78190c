"""How far each switch of a graph is from the hosts."""

from collections.abc import Iterable, Mapping


def switch_tiers(peers: Mapping[str, Iterable[str]], leaves: Iterable[str]) -> dict[str, int]:
    """By switch: its distance from the nearest leaf. A switch that no leaf reaches has none."""
    tier = dict.fromkeys(leaves, 0)
    edge = list(tier)
    while edge:
        reached = sorted({peer for name in edge for peer in peers.get(name, ()) if peer in peers and peer not in tier})
        tier.update((name, tier[edge[0]] + 1) for name in reached)
        edge = reached
    return tier
