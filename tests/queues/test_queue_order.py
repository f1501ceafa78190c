"""Which queue goes first: each rule decides before the next is asked."""

import numpy as np
import pytest

from kaiwo.model.queue import Fairness, Queue, QueueAmounts, SharePolicy
from kaiwo.queues.fair_share import QueueDemand, fair_shares
from kaiwo.queues.queue_order import dominant_ppm, queue_keys
from kaiwo.queues.reclaim_rules import queue_shares
from kaiwo.snapshot.queue_table import EditableQueueTable

TOTALS = np.array([8_000, 96_000, 1_024])


def first_of(
    *queues: Queue,
    used: dict[str, int],
    waits: dict[str, int],
    needs: int = 1,
    waiting_since: dict[str, int] | None = None,
) -> str:
    """The name of the queue that is served next; amounts in GPUs."""
    table = EditableQueueTable(
        {queue.name: queue for queue in queues},
        {name: (1000 * gpus, 0, 0) for name, gpus in used.items()},
    )
    demand = table.sum_up_tree({name: (1000 * gpus, 0, 0) for name, gpus in waits.items()})
    wants = QueueDemand(TOTALS, table.used + demand)
    now = queue_shares(table, fair_shares(table, wants).share)
    rows = np.array([table.row[name] for name in sorted(waits)])
    need = np.tile([1000 * needs, 0, 0], (len(rows), 1))
    since = np.array([(waiting_since or {}).get(name, 0) for name in sorted(waits)])
    keys = queue_keys(now, TOTALS, rows, need, since)
    return min(zip(keys.tolist(), sorted(waits), strict=True))[1]


def queue(name: str, quota: int = 0, priority: int = 100, parent: str = "", created_s: int = 0) -> Queue:
    return Queue(name, parent, priority=priority, gpu=QueueAmounts(1000 * quota), created_s=created_s)


def test_over_the_fair_share_comes_last_whatever_the_priority() -> None:
    rich = queue("rich", priority=200, quota=2)
    assert first_of(rich, queue("poor", 6), used={"rich": 6}, waits={"rich": 1, "poor": 6}) == "poor"


def test_inside_the_quota_comes_before_priority() -> None:
    assert first_of(queue("a", 0, 200), queue("b", 2), used={}, waits={"a": 2, "b": 2}) == "b"


def test_then_priority_counts() -> None:
    assert first_of(queue("a", 2), queue("b", 2, 200), used={}, waits={"a": 2, "b": 2}) == "b"


def test_then_the_smaller_dominant_share() -> None:
    assert first_of(queue("a", 4), queue("b", 4), used={"a": 2, "b": 1}, waits={"a": 2, "b": 2}) == "b"


def test_then_the_older_queue() -> None:
    old, new = queue("z", 2, created_s=1), queue("a", 2, created_s=2)
    assert first_of(new, old, used={}, waits={"a": 2, "z": 2}) == "z"


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        (SharePolicy.DRF, "owed"),
        (SharePolicy.WEIGHTED_FAIR, "owed"),
        (SharePolicy.STRICT_PRIORITY, "urgent"),
        (SharePolicy.FIFO, "patient"),
    ],
)
def test_the_policy_above_decides_first(policy: SharePolicy, first: str) -> None:
    top = Queue("top", gpu=QueueAmounts(8_000), fairness=Fairness(policy))
    queues = [queue("owed", 2, 50, "top"), queue("urgent", 0, 200, "top"), queue("patient", 0, 50, "top")]
    waits = {"owed": 2, "urgent": 2, "patient": 2}
    since = {"owed": 300, "urgent": 200, "patient": 100}
    assert first_of(top, *queues, used={}, waits=waits, waiting_since=since) == first


def test_use_without_a_share_is_worse_than_any_ratio() -> None:
    used, entitled = np.array([[1, 0, 0], [900, 0, 0]]), np.array([[0, 0, 0], [1, 0, 0]])
    one, other = dominant_ppm(used, entitled)
    assert one > other
