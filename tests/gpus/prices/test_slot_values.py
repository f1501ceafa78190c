"""The value of a node: what the mix of requests could make of it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.gpus.prices.packings import UNITS_PER_GPU
from kaiwo.gpus.prices.slot_values import SlotValues, slot_values
from kaiwo.model.request_mix import PricedKind, RequestKind, RequestPrices

MODELS = ("G2", "T4")


def prices(*kinds: RequestKind) -> RequestPrices:
    """Everything is worth what it asks for."""
    priced = (PricedKind(kind, 4, kind.total_milli * UNITS_PER_GPU // 1000) for kind in kinds)
    return RequestPrices(tuple(priced), 0, 16, 0)


def value(values: SlotValues, cpu_milli: int, *free: int, model: int = 0) -> int:
    devices = np.array([[*free, *[0] * (4 - len(free))]])
    models = np.array([model])
    return int(values.with_cpu(np.array([cpu_milli]), values.of_gpus(models, devices))[0])


def test_gpus_without_cpu_are_worth_nothing() -> None:
    values = slot_values(prices(RequestKind(4000, 1, 1000)), MODELS, 4)
    assert value(values, 0, 1000, 1000) <= 0
    both, one = value(values, 8000, 1000, 1000), value(values, 4000, 1000, 1000)
    assert one < 0.65 * both
    assert both > 1.9 * UNITS_PER_GPU


def test_a_gpu_is_worth_nothing_to_requests_for_another_model() -> None:
    values = slot_values(prices(RequestKind(0, 1, 1000, ("T4",))), MODELS, 4)
    assert value(values, 1000, 1000, model=0) == 0
    assert value(values, 1000, 1000, model=1) > 0.9 * UNITS_PER_GPU


def test_what_no_share_of_the_mix_can_use_is_worth_nothing() -> None:
    values = slot_values(prices(RequestKind(0, 1, 700), RequestKind(0, 1, 300)), MODELS, 4)
    assert value(values, 1000, 290) == 0
    assert value(values, 1000, 700) > value(values, 1000, 690) > value(values, 1000, 590)
    assert value(values, 1000, 590) < 0.5 * UNITS_PER_GPU  # 300, and little for the rest


def test_gpus_that_several_need_together_are_worth_more_together() -> None:
    values = slot_values(prices(RequestKind(0, 4, 1000)), MODELS, 4)
    assert value(values, 0, 1000, 1000, 1000) <= 0
    assert value(values, 0, 1000, 1000, 1000, 1000) > 3.9 * UNITS_PER_GPU


kinds = st.builds(
    RequestKind,
    st.integers(0, 20_000),
    st.just(1),
    st.integers(1, 100).map(lambda part: part * 10),
    st.sampled_from([(), ("T4",), ("G2", "T4")]),
) | st.builds(RequestKind, st.integers(0, 60_000), st.sampled_from([2, 4]), st.just(1000))


@given(st.lists(kinds, min_size=1, max_size=8, unique=True), st.lists(st.integers(0, 100), min_size=4, max_size=4))
def test_more_free_gpu_or_cpu_is_never_worth_less(mix: list[RequestKind], parts: list[int]) -> None:
    values = slot_values(prices(*mix), MODELS, 4)
    free = [10 * part for part in parts]
    here = value(values, 16_000, *free, model=1)
    assert value(values, 20_000, *free, model=1) >= here
    for at in range(4):
        less = [*free[:at], free[at] // 2, *free[at + 1 :]]
        assert value(values, 16_000, *less, model=1) <= here + 4  # of 3,200: tables are rounded


@given(st.lists(kinds, min_size=2, max_size=8, unique=True), st.lists(st.integers(0, 1000), min_size=8, max_size=8))
def test_a_node_has_the_same_value_whichever_nodes_are_looked_at_together(
    mix: list[RequestKind], free: list[int]
) -> None:
    values = slot_values(prices(*mix), MODELS, 4)
    devices, models, cpu = np.array(free).reshape(2, 4), np.array([0, 1]), np.array([9_000, 50_000])
    together = values.with_cpu(cpu, values.of_gpus(models, devices)).tolist()
    alone = [value(values, int(cpu[at]), *devices[at].tolist(), model=at) for at in range(2)]
    assert together == alone
