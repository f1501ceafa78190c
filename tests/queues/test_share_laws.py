"""Laws of the fair shares, over random trees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.queue import Queue, QueueAmounts, SharePolicy
from kaiwo.queues.fair_share import DEFAULT_RULES, FairShares, QueueDemand, fair_shares
from kaiwo.queues.past_usage import WHOLE_PART
from kaiwo.snapshot.queue_table import INFINITE, RESOURCES, EditableQueueTable
from tests.queues.plain_division import Claimant, divide
from tests.queues.strategies import TOTALS, worlds

World = tuple[EditableQueueTable, QueueDemand]
NOBODY = -1


def siblings(table: EditableQueueTable) -> dict[int, list[int]]:
    """The rows below each parent."""
    found: dict[int, list[int]] = {}
    for row, parent in enumerate(table.tree.parent.tolist()):
        found.setdefault(parent, []).append(row)
    return found


def policy_below(table: EditableQueueTable, parent: int) -> SharePolicy:
    return SharePolicy.DRF if parent == NOBODY else table.tree.policy[parent]


def pool_of(wants: QueueDemand, shares: FairShares, parent: int) -> list[int]:
    amounts = wants.totals if parent == NOBODY else shares.share[parent]
    return [int(amount) for amount in amounts]


@given(worlds())
def test_the_shares_are_those_of_the_plain_rule(world: World) -> None:
    table, wants = world
    shares = fair_shares(table, wants)
    for parent, rows in siblings(table).items():
        for column in range(len(RESOURCES)):
            claimants = plainly(table, wants, parent, rows, column)
            settles = policy_below(table, parent) in (SharePolicy.STRICT_PRIORITY, SharePolicy.FIFO)
            divide(pool_of(wants, shares, parent)[column], claimants, DEFAULT_RULES.units[column], settles)
            assert [each.share for each in claimants] == shares.share[rows, column].tolist()


def plainly(table: EditableQueueTable, wants: QueueDemand, parent: int, rows: list[int], column: int) -> list[Claimant]:
    policy = policy_below(table, parent)
    assert wants.oldest_s is not None
    waited = sorted(rows, key=lambda row: (wants.oldest_s[row], table.tree.age[row]))
    ranks = {
        SharePolicy.DRF: lambda row: -int(table.priority[row]),
        SharePolicy.STRICT_PRIORITY: lambda row: -int(table.priority[row]),
        SharePolicy.WEIGHTED_FAIR: lambda row: 0,
        SharePolicy.FIFO: waited.index,
    }
    return [
        Claimant(
            int(table.quota[row, column]) if table.quota[row, column] < INFINITE else 1 << 62,
            int(table.limit[row, column]),
            int(wants.request[row, column]),
            int(table.weight[row, column]),
            ranks[policy](row),
            int(table.tree.age[row]),
        )
        for row in rows
    ]


@given(worlds())
def test_no_more_is_given_than_there_is_unless_quotas_promise_more(world: World) -> None:
    table, wants = world
    shares = fair_shares(table, wants)
    for parent, rows in siblings(table).items():
        given_out = shares.share[rows].sum(axis=0)
        promised = shares.deserved[rows].sum(axis=0)
        assert (given_out <= np.maximum(pool_of(wants, shares, parent), promised)).all()


@given(worlds())
def test_nothing_is_left_while_somebody_may_want_it(world: World) -> None:
    table, wants = world
    shares = fair_shares(table, wants)
    wishes = np.minimum(wants.request, table.limit)
    for parent, rows in siblings(table).items():
        left = pool_of(wants, shares, parent) - shares.share[rows].sum(axis=0)
        wanting = ((wishes[rows] > shares.share[rows]) & (table.weight[rows] > 0)).any(axis=0)
        assert not ((left > 0) & wanting).any()


@given(worlds())
def test_a_share_lies_between_what_is_deserved_and_what_is_wanted_and_allowed(world: World) -> None:
    table, wants = world
    shares = fair_shares(table, wants)
    assert (shares.share <= wants.request).all()
    assert (shares.share <= table.limit).all()
    quota = np.where(table.quota < INFINITE, table.quota, shares.total)
    assert (shares.share >= np.minimum(np.minimum(quota, wants.request), table.limit)).all()


@given(worlds())
def test_every_number_is_the_sum_of_its_terms(world: World) -> None:
    table, wants = world
    shares = fair_shares(table, wants)
    assert (shares.share == shares.deserved + shares.whole + shares.remainder).all()
    divided = shares.weights > 0
    units = np.broadcast_to(DEFAULT_RULES.units, shares.share.shape)
    parts = shares.offered * shares.weight // np.maximum(shares.weights * units, 1) * units
    assert (shares.whole[divided] == parts[divided]).all()
    assert (shares.remainder[divided] <= units[divided]).all()
    assert (shares.remainder[~divided] == 0).all()


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_and_the_names_of_others_do_not_matter(world: World, draw: object) -> None:
    table, wants = world
    again = EditableQueueTable({name: table.queues[table.row[name]] for name in reversed(table.names)})
    assert (fair_shares(again, wants).share == fair_shares(table, wants).share).all()
    names = [*table.names]
    draw.shuffle(names)  # type: ignore[attr-defined]
    new_names = dict(zip(table.names, names, strict=True))
    aged = [replace(queue, created_s=int(age)) for queue, age in zip(table.queues, table.tree.age, strict=True)]
    moved = EditableQueueTable(
        {new_names[q.name]: replace(q, name=new_names[q.name], parent=new_names.get(q.parent, "")) for q in aged}
    )
    at = [moved.row[new_names[name]] for name in table.names]
    assert wants.oldest_s is not None
    elsewhere = QueueDemand(wants.totals, wants.request[np.argsort(at)], wants.oldest_s[np.argsort(at)])
    assert (fair_shares(moved, elsewhere).share[at] == fair_shares(table, wants).share).all()


@given(worlds(), st.data())
def test_more_weight_never_costs_more_than_one_unit(world: World, data: st.DataObject) -> None:
    table, wants = world
    row = data.draw(st.integers(0, len(table.names) - 1))
    parent = int(table.tree.parent[row])
    rows = siblings(table)[parent]
    settles = policy_below(table, parent) in (SharePolicy.STRICT_PRIORITY, SharePolicy.FIFO)
    extra = data.draw(st.integers(1, 5))
    before, after = (fair_shares(each, wants) for each in (table, heavier(table, row, extra)))
    for column, unit in enumerate(DEFAULT_RULES.units):
        light, heavy = (plainly(each, wants, parent, rows, column) for each in (table, heavier(table, row, extra)))
        for claimants in (light, heavy):
            divide(pool_of(wants, before, parent)[column], claimants, unit, settles)
        at = rows.index(row)
        assert heavy[at].ideal >= light[at].ideal
        assert after.share[row, column] >= before.share[row, column] - unit


def heavier(table: EditableQueueTable, row: int, extra: int) -> EditableQueueTable:
    queue = table.queues[row]
    more = {name: replace(getattr(queue, name), weight=getattr(queue, name).weight + extra) for name in RESOURCES}
    return EditableQueueTable({each.name: each for each in table.queues} | {queue.name: replace(queue, **more)})


@given(worlds(), st.integers(0, 3_000), st.data())
def test_past_use_never_helps(world: World, strength: int, data: st.DataObject) -> None:
    table, wants = world
    size = wants.request.shape
    past = np.array(data.draw(st.lists(st.integers(0, WHOLE_PART // 4), min_size=size[0], max_size=size[0])))
    past = np.repeat(past[:, None], size[1], axis=1)
    row = data.draw(st.integers(0, size[0] - 1))
    more = past.copy()
    more[row] += data.draw(st.integers(0, WHOLE_PART // 4))
    rules = DEFAULT_RULES._replace(usage_strength_milli=strength)
    before, after = (fair_shares(table, wants._replace(past=each), rules).share[row] for each in (past, more))
    assert (after <= before + DEFAULT_RULES.units).all()


@pytest.mark.parametrize("policy", list(SharePolicy))
def test_a_thousand_queues_of_every_policy_are_divided_exactly(policy: SharePolicy) -> None:
    queues = {f"q{n:04d}": Queue(f"q{n:04d}", priority=n % 5, gpu=QueueAmounts(1_000, -1, n % 4)) for n in range(1_000)}
    table = EditableQueueTable(queues)
    demand = table.sum_up_tree({name: (1_000 * (n % 7), 0, 0) for n, name in enumerate(queues)})
    wants = QueueDemand(np.array([2_000_000, 0, 0]), demand)
    rules = DEFAULT_RULES._replace(root_policy=policy)
    assert fair_shares(table, wants, rules).share[:, 0].sum() == 2_000_000
    assert len(TOTALS) == wants.request.shape[1]
