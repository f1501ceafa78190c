"""Who is active on which link, and what was asked for: kept in step with a log, whatever is placed and undone."""

import random

import numpy as np

from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.working_copy import PodMove
from kaiwo.topology.link_use import LinkUse, has_bandwidth
from kaiwo.topology.network_rates import NetworkRates, RailRates, TierRates

NODES = 12
LEAF, SPINE = np.arange(NODES) // 3, np.arange(NODES) // 6


def rates() -> NetworkRates:
    """Four leaves of three nodes on two rails, under two spines; the second rail lacks the last node."""
    second = np.where(np.arange(NODES) == NODES - 1, -1, LEAF)
    port, up = np.full(NODES, 100, np.int64), np.array([100, 200, 300, 400], np.int64)
    rails = (RailRates(LEAF, port, up), RailRates(second, port, up))
    inside = np.full(NODES, 1, np.int64)
    return NetworkRates(rails, (TierRates(SPINE, np.array([300, 300], np.int64)),), inside, inside > 0)


def as_lists(use: LinkUse) -> list[list[int]]:
    arrays: list[IntArray] = [*use.active.rails, *use.active.tiers, use.asked.ports, *use.asked.rails, *use.asked.tiers]
    return [each.tolist() for each in arrays]


def test_only_what_crosses_a_link_counts_on_it() -> None:
    use = LinkUse(rates(), lambda _: 10, {"inside": [0, 1], "over leaves": [2, 3], "over spines": [5, 6, 6]})
    assert np.flatnonzero(use.active.rails[0]).tolist() == [2, 3, 5, 6]
    assert np.flatnonzero(use.active.tiers[0]).tolist() == [5, 6]
    assert use.asked.ports.tolist() == [10, 10, 10, 10, 0, 10, 20, 0, 0, 0, 0, 0]
    assert use.asked.rails[0].tolist() == [5, 10, 10, 0]  # each rail carries half
    assert use.asked.tiers[0].tolist() == [10, 20]


def test_it_follows_a_log_that_grows_and_shrinks() -> None:
    chance = random.Random(3)
    begun = {f"w{at}": [chance.randrange(NODES) for _ in range(chance.randint(1, 4))] for at in range(5)}
    use, moves = LinkUse(rates(), len, begun), list[PodMove]()
    for _ in range(200):
        if moves and chance.random() < 0.4:
            del moves[chance.randrange(len(moves)) :]
        else:
            name = f"w{chance.randrange(8)}"
            moves.append(PodMove(name, tuple(chance.randrange(NODES) for _ in range(chance.randint(1, 3))), +1))
        use.follow(moves)
        places = {name: list(rows) for name, rows in begun.items()}
        for move in moves:
            places.setdefault(move.workload, []).extend(move.rows)
        assert as_lists(use) == as_lists(LinkUse(rates(), len, places))


def test_without_a_workload_is_as_if_it_had_never_been_there() -> None:
    begun = {"a": [0, 3], "b": [3, 6], "c": [1]}
    use, before = LinkUse(rates(), lambda _: 7, begun), LinkUse(rates(), lambda _: 7, {"b": [3, 6], "c": [1]})
    active, asked = use.without("a")
    assert [each.tolist() for each in active.rails] == [each.tolist() for each in before.active.rails]
    assert asked.ports.tolist() == before.asked.ports.tolist()
    assert as_lists(use) == as_lists(LinkUse(rates(), lambda _: 7, begun))


def test_a_link_carries_its_rate_and_not_more() -> None:
    nothing = LinkUse(rates(), lambda _: 0, {}).asked
    assert has_bandwidth(rates(), nothing, {0: 1, 3: 1}, 200)  # 100 on each rail
    assert not has_bandwidth(rates(), nothing, {0: 1, 3: 1}, 201)
    assert not has_bandwidth(rates(), nothing, {0: 1, 1: 1, 3: 1}, 101)  # two nodes of the first leaf
    assert not has_bandwidth(rates(), nothing, {3: 1, 4: 1, 9: 1, 10: 1}, 151)  # 300 out of a spine
    assert has_bandwidth(rates(), nothing, {0: 4}, 1_000)  # one node uses no links
