"""Groups of names that are connected, directly or over others."""

from collections.abc import Iterable


def connected_groups(members: Iterable[str], joined: Iterable[Iterable[str]]) -> list[set[str]]:
    """Members that are joined directly or over others, in groups; names that are no members are ignored."""
    group: dict[str, str] = {name: name for name in members}

    def first(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    for names in set(map(tuple, joined)):  # the order does not matter: the first name of a group stands for it
        known = [name for name in names if name in group]
        for other in known[1:]:
            one, two = first(known[0]), first(other)
            group[max(one, two)] = min(one, two)
    found: dict[str, set[str]] = {}
    for name in group:
        found.setdefault(first(name), set()).add(name)
    return [found[name] for name in sorted(found)]
