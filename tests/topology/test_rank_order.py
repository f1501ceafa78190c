"""Ranks are a permutation, neighbours are as near as any order allows, and a pod that stays keeps its rank."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.topology.rank_order import NO_RANK, RankedPod, by_name, rank_order, total_distance

SPINES, LEAVES, NODES = 2, 2, 2


@st.composite
def gangs(draw: st.DrawFn, most: int = 7, leaders: int = 1) -> list[RankedPod]:
    """Pods on a tree of two spines, two leaves each, two nodes each; up to `leaders` of them lead."""
    places = draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in (SPINES, LEAVES, NODES))), min_size=1,
                           max_size=most))  # fmt: skip
    lead = draw(st.integers(0, leaders))
    pods = []
    for at, (spine, leaf, node) in enumerate(places):
        path = (spine, spine * LEAVES + leaf, (spine * LEAVES + leaf) * NODES + node)
        pods.append(RankedPod(f"p-{at}", (0, at), path, draw(st.integers(0, 7)), at < lead))
    return draw(st.permutations(pods))


def in_order(pods: list[RankedPod], ranks: dict[str, int]) -> list[RankedPod]:
    return sorted(pods, key=lambda pod: ranks[pod.name])


@given(gangs())
def test_ranks_are_a_permutation_and_do_not_depend_on_the_order_of_arrival(pods: list[RankedPod]) -> None:
    ranks = rank_order(pods)
    assert sorted(ranks.values()) == list(range(len(pods)))
    assert ranks == rank_order(sorted(pods)) == rank_order(pods[::-1])


@given(gangs())
def test_no_order_has_nearer_neighbours(pods: list[RankedPod]) -> None:
    found = in_order(pods, rank_order(pods))
    best = min(
        (order for order in permutations(pods) if not any(pod.leads for pod in order) or order[0].leads),
        key=total_distance,
    )
    assert total_distance(found) == total_distance(best)
    ring = [*found, found[0]]
    assert total_distance(ring) == min(total_distance([*order, order[0]]) for order in permutations(pods))


@given(gangs(most=40, leaders=5))
def test_neighbours_are_never_farther_than_in_the_order_of_names(pods: list[RankedPod]) -> None:
    found = in_order(pods, rank_order(pods))
    assert total_distance(found) <= total_distance(by_name(pods))
    leads = [pod.leads for pod in found]
    assert leads == sorted(leads, reverse=True)


@given(gangs(most=7), st.data())
def test_a_pod_that_stays_keeps_its_rank_and_the_others_fill_the_gaps_best(
    pods: list[RankedPod], data: st.DataObject
) -> None:
    ranks = rank_order(pods)
    replaced = set(data.draw(st.lists(st.sampled_from(pods), max_size=5)))
    moved = [
        pod._replace(path=data.draw(st.sampled_from(pods)).path) if pod in replaced
        else pod._replace(rank=ranks[pod.name])
        for pod in pods
    ]  # fmt: skip
    again = rank_order(moved)
    assert sorted(again.values()) == list(range(len(pods)))
    stays = [pod for pod in moved if pod.rank != NO_RANK]
    assert not stays or all(again[pod.name] == pod.rank for pod in stays)
    if not stays:
        return
    new = [pod for pod in moved if pod.rank == NO_RANK]
    free = sorted(again[pod.name] for pod in new)
    best = min(
        total_distance(in_order(moved, again | dict(zip((pod.name for pod in order), free, strict=True))))
        for order in permutations(new)
        if not any(pod.leads for pod in order) or order[0].leads
    )
    assert total_distance(in_order(moved, again)) == best


@given(gangs(most=40, leaders=3), st.data())
def test_many_replaced_pods_are_never_farther_than_in_the_order_of_names(
    pods: list[RankedPod], data: st.DataObject
) -> None:
    ranks = rank_order(pods)
    replaced = set(data.draw(st.lists(st.sampled_from(pods), min_size=min(6, len(pods)), unique=True)))
    moved = [
        pod._replace(path=data.draw(st.sampled_from(pods)).path) if pod in replaced
        else pod._replace(rank=ranks[pod.name])
        for pod in pods
    ]  # fmt: skip
    again = rank_order(moved)
    assert sorted(again.values()) == list(range(len(pods)))
    if replaced == set(pods):
        return
    new = [pod for pod in moved if pod.rank == NO_RANK]
    free = sorted(again[pod.name] for pod in new)
    plain = again | dict(zip((pod.name for pod in by_name(new)), free, strict=True))
    assert total_distance(in_order(moved, again)) <= total_distance(in_order(moved, plain))


def test_pods_of_one_node_follow_their_gpus_so_that_ranks_one_node_apart_share_rails() -> None:
    pods = [
        RankedPod("p-0", (0, 0), (0, 1), device=4),
        RankedPod("p-1", (0, 1), (0, 2), device=0),
        RankedPod("p-2", (0, 2), (0, 1), device=0),
        RankedPod("p-3", (0, 3), (0, 2), device=4),
    ]
    assert rank_order(pods) == {"p-2": 0, "p-0": 1, "p-1": 2, "p-3": 3}


def test_a_gang_that_grew_after_it_shrank_uses_the_smallest_free_ranks() -> None:
    pods = [RankedPod(f"p-{at}", (0, at), (0, at), rank=rank) for at, rank in enumerate((0, -1, 5, -1))]
    assert rank_order(pods) == {"p-0": 0, "p-1": 1, "p-2": 5, "p-3": 2}
