"""Quotas and limits for one GPU model: one more column beside GPUs, CPU and memory."""

import numpy as np

from kaiwo.model.queue import GpuModelAmounts, Queue, QueueAmounts
from kaiwo.queues.fair_share import QueueDemand, fair_shares, share_breakdown
from kaiwo.queues.reclaim_rules import (
    ReclaimRequest,
    RefusalRule,
    queue_shares,
    refusal_to_reclaim,
)
from kaiwo.snapshot.queue_table import EditableQueueTable
from tests.queues.victims import VictimUsage, may_take

MI300X = 3  # the column behind gpu, cpu and memory


def world(used: dict[str, int], wants: dict[str, int]) -> tuple[EditableQueueTable, QueueDemand]:
    """8 GPUs, 4 of them MI300X; `fast` is owed 2 of those and may have 3, `any` says nothing of models."""
    fast = Queue("fast", gpu=QueueAmounts(4_000), gpu_models={"MI300X": GpuModelAmounts(2_000, 3_000)})
    table = EditableQueueTable({"fast": fast, "any": Queue("any", gpu=QueueAmounts(4_000))})
    request = np.zeros((2, 4), np.int64)
    for name, gpus in wants.items():
        request[table.row[name], [0, MI300X]] = 1000 * gpus
    for name, gpus in used.items():
        request[table.row[name], [0, MI300X]] += 1000 * gpus
    return table, QueueDemand(np.array([8_000, 0, 0, 4_000]), request)


def amounts(table: EditableQueueTable, used: dict[str, int]) -> np.ndarray:
    found = np.zeros((2, 4), np.int64)
    for name, gpus in used.items():
        found[table.row[name], [0, MI300X]] = 1000 * gpus
    return found


def test_a_model_is_divided_like_any_resource() -> None:
    table, wants = world({}, {"fast": 6, "any": 1})
    shares = fair_shares(table, wants)
    terms = {each.resource: each for each in share_breakdown(table, wants, shares, table.row["fast"])}
    assert terms["gpu"].share == 6_000
    assert (terms["MI300X"].deserved, terms["MI300X"].share, terms["MI300X"].limit) == (2_000, 3_000, 3_000)
    others = share_breakdown(table, wants, shares, table.row["any"])
    assert (others[MI300X].quota, others[MI300X].limit, others[MI300X].share) == (None, None, 1_000)


def test_a_queue_within_its_gpu_quota_keeps_a_model_it_does_not_list() -> None:
    used = {"any": 4}
    table, wants = world(used, {"fast": 2})
    now = queue_shares(table, fair_shares(table, wants).share, amounts(table, used), np.zeros((2, 4), np.int64))
    claim = ReclaimRequest(table.row["fast"], np.array([2_000, 0, 0, 2_000]))
    assert refusal_to_reclaim(now, claim) is None
    refusal = may_take(now, claim, [VictimUsage(table.row["any"], np.array([2_000, 0, 0, 2_000]))])
    assert refusal is not None
    assert refusal.rule is RefusalRule.WITHIN_QUOTA


def test_a_queue_over_its_model_quota_gives_the_model_back() -> None:
    fast, other = (
        Queue(name, gpu=QueueAmounts(4_000), gpu_models={"MI300X": GpuModelAmounts(quota)})
        for name, quota in (("fast", 3_000), ("other", 1_000))
    )
    table = EditableQueueTable({"fast": fast, "other": other})
    used = np.array([[0, 0, 0, 0], [4_000, 0, 0, 4_000]])
    wants = QueueDemand(np.array([8_000, 0, 0, 4_000]), used + np.array([[3_000, 0, 0, 3_000], [0, 0, 0, 0]]))
    now = queue_shares(table, fair_shares(table, wants).share, used, np.zeros_like(used))
    claim = ReclaimRequest(table.row["fast"], np.array([3_000, 0, 0, 3_000]))
    taking = VictimUsage(table.row["other"], np.array([1_000, 0, 0, 1_000]))
    assert refusal_to_reclaim(now, claim) is None
    assert may_take(now, claim, [taking] * 3) is None
    assert may_take(now, claim, [taking] * 4) is not None
