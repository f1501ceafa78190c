"""How long the fair shares of 1,000 queues in three levels take, contended at every level.

In:    10 departments of 9 groups of 10 teams, of every policy, wanting more than there is.
Out:   milliseconds of processor time: other processes do not count.
"""

import json
import random
import sys
import time

import numpy as np

from kaiwo.model.queue import Fairness, Queue, QueueAmounts, SharePolicy
from kaiwo.queues.fair_share import DEFAULT_RULES, QueueDemand, fair_shares
from kaiwo.queues.past_usage import WHOLE_PART
from kaiwo.snapshot.queue_table import EditableQueueTable, ResourceVector

TOTALS = np.array([8_000_000, 96_000_000, 500_000_000])
ROUNDS = 50
P50_MS = 5.0


def main() -> int:
    result = measure()
    print(json.dumps(result))
    if result["p50_ms"] > P50_MS:
        print(f"p50_ms is {result['p50_ms']}, at most {P50_MS} is due", file=sys.stderr)
        return 1
    return 0


def measure() -> dict[str, float]:
    draw = random.Random(7)
    queues = make_queues(draw)
    began = time.thread_time()
    table = EditableQueueTable(queues)
    table.tree  # noqa: B018 (built when first asked for)
    build_ms = (time.thread_time() - began) * 1000
    wants = QueueDemand(
        TOTALS, table.sum_up_tree(make_demand(queues, draw)), past=np.full((len(queues), 3), WHOLE_PART // 1000)
    )
    return {
        "queues": len(queues),
        "levels": len(table.tree.levels),
        "p50_ms": timed(table, wants, 0),
        "with_past_use_p50_ms": timed(table, wants, 1000),
        "build_table_ms": round(build_ms, 2),
        "target_p50_ms": P50_MS,
    }


def timed(table: EditableQueueTable, wants: QueueDemand, strength: int) -> float:
    rules = DEFAULT_RULES._replace(usage_strength_milli=strength)
    took_ms = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        fair_shares(table, wants, rules)
        took_ms.append((time.thread_time() - began) * 1000)
    return round(sorted(took_ms)[ROUNDS // 2], 2)


def make_queues(draw: random.Random) -> dict[str, Queue]:
    queues = {}
    for department in range(10):
        top = f"d{department}"
        policy = draw.choice(list(SharePolicy))
        queues[top] = Queue(top, gpu=QueueAmounts(400_000, -1, draw.randint(1, 4)), fairness=Fairness(policy))
        for group in range(9):
            middle = f"{top}-{group}"
            queues[middle] = Queue(middle, top, gpu=QueueAmounts(40_000, -1, draw.randint(1, 4)))
            for team in range(10):
                name = f"{middle}-{team}"
                gpu = QueueAmounts(1_000 * draw.randint(0, 6), -1, draw.randint(0, 4))
                queues[name] = Queue(name, middle, priority=draw.choice([50, 100, 200]), gpu=gpu)
    return queues


def make_demand(queues: dict[str, Queue], draw: random.Random) -> dict[str, ResourceVector]:
    leaves = [name for name in queues if name.count("-") == 2]
    return {
        name: (1_000 * draw.randint(0, 40), 1_000 * draw.randint(0, 400), 1_000 * draw.randint(0, 2_000))
        for name in leaves
    }


if __name__ == "__main__":
    sys.exit(main())
