"""Who may take capacity back, and from whom: stories, then laws over random trees."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.queue import Fairness, Queue, QueueAmounts, ReclaimStrategy
from kaiwo.queues.fair_share import QueueDemand, fair_shares
from kaiwo.queues.reclaim_rules import (
    QueueShares,
    ReclaimCheck,
    ReclaimRefusal,
    ReclaimRequest,
    RefusalRule,
    queue_shares,
    refusal_to_reclaim,
    victim_queues,
)
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.queue_table import EditableQueueTable
from tests.queues.strategies import TOTALS, demands, queue_sets
from tests.queues.victims import VictimUsage, may_take, take


def gpus(count: float) -> IntArray:
    return np.array([round(count * 1000), 0, 0])


class Cluster:
    """Queues with what they use and wait for, in GPUs."""

    def __init__(self, total: int, **queues: dict[str, Any]) -> None:
        amounts = {
            name: Queue(
                name,
                each.get("parent", ""),
                gpu=QueueAmounts(each.get("quota", 0) * 1000, -1, each.get("weight", 1)),
                fairness=Fairness(reclaim_strategy=each.get("strategy")),
            )
            for name, each in queues.items()
        }
        used, fixed, waits = (
            {name: (each[what] * 1000, 0, 0) for name, each in queues.items() if what in each}
            for what in ("used", "fixed", "waits")
        )
        self.table = EditableQueueTable(amounts, used, fixed)
        wants = QueueDemand(np.array([total * 1000, 0, 0]), self.table.used + self.table.sum_up_tree(waits))
        self.now = queue_shares(self.table, fair_shares(self.table, wants).share)

    def claim(self, queue: str, count: float, preemptible: bool = True) -> ReclaimRequest:
        return ReclaimRequest(self.table.row[queue], gpus(count), preemptible)

    def take(self, queue: str, count: float) -> VictimUsage:
        return VictimUsage(self.table.row[queue], gpus(count))

    def says(self, refusal: ReclaimRefusal | None) -> tuple[RefusalRule, str, int, int] | None:
        return refusal and (refusal.rule, self.table.names[refusal.queue], refusal.amount, refusal.bound)


def test_a_queue_that_is_owed_takes_from_one_over_its_quota() -> None:
    world = Cluster(8, rich={"quota": 2, "used": 8}, poor={"quota": 6, "waits": 6})
    claim = world.claim("poor", 6)
    assert refusal_to_reclaim(world.now, claim) is None
    assert victim_queues(world.now, claim).tolist() == [False, True]
    assert may_take(world.now, claim, [world.take("rich", 1)] * 6) is None
    assert world.says(may_take(world.now, claim, [world.take("rich", 1)] * 7)) == (
        RefusalRule.WITHIN_QUOTA, "rich", 2_000, 2_000,
    )  # fmt: skip


def test_nobody_takes_more_than_its_fair_share() -> None:
    world = Cluster(8, rich={"quota": 0, "used": 8}, poor={"quota": 0, "waits": 8})
    assert refusal_to_reclaim(world.now, world.claim("poor", 4)) is None
    assert world.says(refusal_to_reclaim(world.now, world.claim("poor", 5))) == (
        RefusalRule.OVER_FAIR_SHARE,
        "poor",
        5_000,
        4_000,
    )


def test_the_strategy_says_how_far_a_queue_reaches() -> None:
    def answer(strategy: ReclaimStrategy, count: int) -> RefusalRule | None:
        poor = {"quota": 2, "waits": 8, "strategy": strategy}
        world = Cluster(8, rich={"used": 8}, poor=poor)
        claim = world.claim("poor", count)
        refusal = refusal_to_reclaim(world.now, claim) or may_take(world.now, claim, [world.take("rich", count)])
        return refusal and refusal.rule

    assert answer(ReclaimStrategy.AGGRESSIVE, 5) is None  # 2 deserved and half of the other 6
    assert answer(ReclaimStrategy.AGGRESSIVE, 6) is RefusalRule.OVER_FAIR_SHARE
    assert answer(ReclaimStrategy.CONSERVATIVE, 2) is None
    assert answer(ReclaimStrategy.CONSERVATIVE, 3) is RefusalRule.OVER_QUOTA
    assert answer(ReclaimStrategy.NONE, 1) is RefusalRule.NEVER_RECLAIMS


def test_a_strategy_comes_from_above_unless_the_queue_has_its_own() -> None:
    none, aggressive = ReclaimStrategy.NONE, ReclaimStrategy.AGGRESSIVE
    world = Cluster(
        8, lab={"strategy": none, "quota": 4}, a={"parent": "lab", "quota": 2, "waits": 2},
        b={"parent": "lab", "quota": 2, "waits": 2, "strategy": aggressive}, rich={"used": 8},
    )  # fmt: skip
    assert world.says(refusal_to_reclaim(world.now, world.claim("a", 1))) == (RefusalRule.NEVER_RECLAIMS, "a", 0, 0)
    assert refusal_to_reclaim(world.now, world.claim("b", 1)) is None


def test_paths_are_compared_where_they_part() -> None:
    """The departments part; that the leaf itself is over its share is its department's business."""
    world = Cluster(
        8, red={"quota": 4}, blue={"quota": 4},
        r1={"parent": "red", "quota": 4, "waits": 4}, b1={"parent": "blue", "quota": 0, "used": 8},
    )  # fmt: skip
    claim = world.claim("r1", 4)
    assert may_take(world.now, claim, [world.take("b1", 4)]) is None
    assert world.says(may_take(world.now, claim, [world.take("b1", 4), world.take("b1", 1)])) == (
        RefusalRule.WITHIN_QUOTA, "blue", 4_000, 4_000,
    )  # fmt: skip


def test_a_leaf_within_its_quota_is_safe_even_in_a_department_that_is_not() -> None:
    world = Cluster(
        8, red={"quota": 4}, blue={"quota": 4}, r1={"parent": "red", "quota": 4, "waits": 4},
        greedy={"parent": "blue", "quota": 0, "used": 6}, modest={"parent": "blue", "quota": 2, "used": 2},
    )  # fmt: skip
    claim = world.claim("r1", 2)
    assert may_take(world.now, claim, [world.take("greedy", 2)]) is None
    assert world.says(may_take(world.now, claim, [world.take("modest", 2)])) == (
        RefusalRule.WITHIN_QUOTA, "modest", 2_000, 2_000,
    )  # fmt: skip


def test_work_that_may_not_be_preempted_stays_inside_the_quota_at_every_level() -> None:
    world = Cluster(
        8, lab={"quota": 3}, a={"parent": "lab", "quota": 4, "used": 2, "fixed": 2, "waits": 2}, rich={"used": 6}
    )
    assert refusal_to_reclaim(world.now, world.claim("a", 1, preemptible=False)) is None
    refusal = refusal_to_reclaim(world.now, world.claim("a", 2, preemptible=False))
    assert world.says(refusal) == (RefusalRule.OVER_QUOTA, "lab", 4_000, 3_000)


def test_a_queue_does_not_take_from_itself() -> None:
    world = Cluster(8, a={"quota": 0, "used": 4, "waits": 4}, b={"used": 4})
    claim = world.claim("a", 1)
    assert not victim_queues(world.now, claim)[world.table.row["a"]]
    assert world.says(may_take(world.now, claim, [world.take("a", 1)])) == (RefusalRule.SAME_QUEUE, "a", 0, 0)


def test_too_much_of_one_thing_is_no_reason_to_lose_another() -> None:
    table = EditableQueueTable(
        {
            "hoards-memory": Queue("hoards-memory", gpu=QueueAmounts(4_000), memory=QueueAmounts(0, -1, 0)),
            "needs-gpus": Queue("needs-gpus", gpu=QueueAmounts(4_000), memory=QueueAmounts(64)),
        },
        used={"hoards-memory": (4_000, 0, 512)},
    )
    wants = QueueDemand(TOTALS, table.used + table.sum_up_tree({"needs-gpus": (1_000, 0, 0)}))
    now = queue_shares(table, fair_shares(table, wants).share)
    claim = ReclaimRequest(table.row["needs-gpus"], gpus(1))
    refusal = may_take(now, claim, [VictimUsage(table.row["hoards-memory"], np.array([1_000, 0, 128]))])
    assert refusal == ReclaimRefusal(RefusalRule.WITHIN_QUOTA, table.row["hoards-memory"], 0, 4_000, 4_000)


@st.composite
def clashes(draw: st.DrawFn) -> tuple[QueueShares, ReclaimRequest, list[VictimUsage]]:
    """A random tree with used and waiting work, a claim of one leaf, and work of others to take."""
    queues = draw(queue_sets())
    table = EditableQueueTable(queues, draw(demands(queues)))
    wants = QueueDemand(TOTALS, table.used + table.sum_up_tree(draw(demands(queues))))
    now = queue_shares(table, fair_shares(table, wants).share)
    leaves = [row for row, is_leaf in enumerate(table.is_leaf) if is_leaf]
    claimant = draw(st.sampled_from(leaves))
    size = st.integers(0, 8).map(lambda count: count * 1_000)
    need = np.array([draw(size), draw(size), draw(st.integers(0, 500))])
    takings = []
    for row in draw(st.lists(st.sampled_from(leaves), max_size=4)):
        amount = np.minimum([draw(size), draw(size), draw(st.integers(0, 500))], table.used[row])
        takings.append(VictimUsage(row, amount))
    return now, ReclaimRequest(claimant, need), takings


@given(clashes())
def test_whoever_is_taken_from_was_worth_a_look(clash: tuple[QueueShares, ReclaimRequest, list[VictimUsage]]) -> None:
    now, claim, _ = clash
    worth_a_look = victim_queues(now, claim)
    for row, is_leaf in enumerate(now.queues.is_leaf):
        if is_leaf and take(ReclaimCheck(now, claim), VictimUsage(row, now.used[row])) is None:
            assert worth_a_look[row]


@given(clashes())
def test_work_of_a_queue_within_its_quota_is_never_taken(
    clash: tuple[QueueShares, ReclaimRequest, list[VictimUsage]],
) -> None:
    now, claim, takings = clash
    is_safe = [(now.used[taking.queue] <= now.quota[taking.queue]).all() for taking in takings]
    if any(is_safe):
        assert may_take(now, claim, takings) is not None


@given(clashes(), st.sampled_from([500, 1_000, 3_000, 8_000]))
def test_what_was_taken_is_not_taken_back(
    clash: tuple[QueueShares, ReclaimRequest, list[VictimUsage]], size: int
) -> None:
    now, *_ = clash
    leaves = [row for row, is_leaf in enumerate(now.queues.is_leaf) if is_leaf]
    for claimant in leaves:
        for need in (np.array([size, 0, 0]), np.array([size, size, 0]), np.array([0, size, 64])):
            claim = ReclaimRequest(claimant, need)
            if refusal_to_reclaim(now, claim) is not None:
                continue
            for victim in leaves:
                taking = VictimUsage(victim, np.minimum(need, now.used[victim]))
                if taking.amount.any() and may_take(now, claim, [taking]) is None:
                    assert not can_take_back(now, claim, taking)


def can_take_back(now: QueueShares, claim: ReclaimRequest, taking: VictimUsage) -> bool:
    """After the exchange, the victim's queue claims the same from the claimant's."""
    used = now.used.copy()
    for above in now.queues.path[taking.queue]:
        used[above] -= taking.amount
    for above in now.queues.path[claim.queue]:
        used[above] += claim.need
    later, back = now._replace(used=used), ReclaimRequest(taking.queue, taking.amount)
    if refusal_to_reclaim(later, back) is not None:
        return False
    return may_take(later, back, [VictimUsage(claim.queue, claim.need)]) is None


@given(clashes())
def test_a_conservative_queue_reaches_no_further_than_an_aggressive_one(
    clash: tuple[QueueShares, ReclaimRequest, list[VictimUsage]],
) -> None:
    now, claim, takings = clash
    if refusal_to_reclaim(now, claim) is not None or may_take(now, claim, takings) is not None:
        return
    strategies = list(now.queues.tree.reclaim_strategy)
    strategies[claim.queue] = ReclaimStrategy.CONSERVATIVE
    now.queues.tree.reclaim_strategy = strategies
    refusal = refusal_to_reclaim(now, claim)
    is_within = (now.used[claim.queue] + claim.need <= now.quota[claim.queue]).all()
    assert (refusal is None) == is_within
