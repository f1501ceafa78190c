"""What a kind of request is worth follows from what is scarce."""

from kaiwo.gpus.prices.packings import UNITS_PER_GPU
from kaiwo.gpus.prices.solve_prices import free_nodes, solve_prices
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.request_mix import RequestKind
from kaiwo.snapshot.node_table import EditableNodeTable

ANY, T4_ONLY = RequestKind(1000, 1, 1000), RequestKind(1000, 1, 1000, ("T4",))


def cluster(*nodes: tuple[str, int, int]) -> EditableNodeTable:
    """Nodes by model, GPUs and CPUs."""
    made = {
        f"n{at}": Node(f"n{at}", 1000 * cpus, 10**6, gpus=tuple(Gpu(f"g{i}", model, 16_000) for i in range(gpus)))
        for at, (model, gpus, cpus) in enumerate(nodes)
    }
    table = EditableNodeTable(made)
    for node in made.values():
        table.write_node(node, (), 0)
    return table


def worths(weights: dict[RequestKind, int], table: EditableNodeTable) -> dict[RequestKind, float]:
    """In GPUs."""
    found = solve_prices(weights, table, None, 60)
    assert found is not None
    return {each.kind: each.worth / UNITS_PER_GPU for each in found[0]}


def test_a_request_that_needs_a_scarce_model_keeps_its_worth() -> None:
    table = cluster(*[("T4", 2, 64)] * 4, *[("G2", 2, 64)] * 12)
    found = worths({ANY: 20, T4_ONLY: 20}, table)  # half of the mix wants a quarter of the GPUs
    assert found[T4_ONLY] > 0.95
    assert found[ANY] < found[T4_ONLY] - 0.05


def test_the_worth_of_a_model_that_is_not_scarce_is_the_same() -> None:
    table = cluster(*[("T4", 2, 64)] * 8, *[("G2", 2, 64)] * 8)
    found = worths({ANY: 36, T4_ONLY: 4}, table)
    assert abs(found[T4_ONLY] - found[ANY]) < 0.05


def test_what_runs_anywhere_does_not_compete_in_full_for_what_a_part_of_the_mix_depends_on() -> None:
    """Half of the mix depends on half of the GPUs, which it will all need: the other half costs nothing."""
    table = cluster(*[("T4", 2, 64)] * 8, *[("G2", 2, 64)] * 8)
    found = worths({ANY: 50, T4_ONLY: 50}, table)
    assert found[T4_ONLY] > 0.95
    assert found[ANY] < 0.5


def test_a_share_that_leaves_nothing_useful_is_worth_less_for_its_size() -> None:
    """There is no other half for 0.8 of a GPU, so GPUs are better filled with halves."""
    half, most = RequestKind(0, 1, 500), RequestKind(0, 1, 800)
    found = worths({half: 50, most: 50}, cluster(*[("G2", 8, 64)] * 10))
    assert found[most] <= 0.8
    assert found[half] * 2 > 0.75
    assert found[half] < 0.5  # halves find a place anyway


def test_equal_nodes_are_looked_at_once() -> None:
    found = free_nodes(cluster(*[("T4", 2, 64)] * 5, ("G2", 4, 64)))
    assert sorted(zip(found.whole.tolist(), found.count.tolist(), strict=True)) == [(2, 5), (4, 1)]
    assert found.free_milli == 14_000


def test_without_gpus_or_requests_for_them_there_are_no_prices() -> None:
    assert solve_prices({RequestKind(1000): 8}, cluster(("T4", 1, 8)), None, 10) is None
    assert solve_prices({RequestKind(1, 1, 1000, ("H100",)): 8}, cluster(("T4", 1, 8)), None, 10) is None
