"""What single operations cost on 1,250 nodes with 8 GPUs each, as a table that names the function and its input.

In:    clusters made here; 100,000 waiting workloads, batches of 64 and 1,000 alert rules where a size matters.
Out:   milliseconds of processor time: the median of some rounds, and the longest. Other processes slow a processor down
       by a third all the same, so of three parts of the rounds the one with the lowest median counts.
Every function is the one that a running Kaiwo calls. `--only PART` measures operations whose names contain it.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import _operations_decide as deciding
from bench import _operations_watch as watching

PARTS = 3


@dataclass(frozen=True)
class Operation:
    name: str
    most_ms: float
    function: str
    input: str
    rounds: Callable[[], Iterator[Callable[[], object]]]  # each yields what is to be timed, made ready


OPERATIONS = (
    Operation(
        "priority ordering", 10, "ClusterState.patch, Allocate.line_up, Turns.requeue",
        "100,000 wait in 200 queues and 50 shapes with 10 priorities; one more arrives, all are lined up, 64 turns",
        deciding.priority_ordering,
    ),
    Operation(
        "one allocation", 1, "CycleRunner.cycle",
        "a pod of one GPU is submitted while 100,000 wait in a queue that is at its limit; the whole cycle",
        deciding.one_allocation,
    ),
    Operation(
        "batch allocation", 5, "CycleRunner.cycle",
        "64 pods of one GPU are submitted at once, beside the same 100,000; the whole cycle",
        deciding.batch_allocation,
    ),
    Operation(
        "list all GPUs", 10, "ClusterOverview.find_gpus",
        "10,000 GPUs, half of them in use: which exist, and which are free",
        deciding.find_gpus,
    ),
    Operation(
        "page of GPUs", 10, "gpu_page",
        "the first 1,000 of 10,000 GPUs with their tenants, as the API shows them",
        deciding.page_of_gpus,
    ),
    Operation(
        "load balancing", 100, "CycleRunner.cycle with gpu_strategy load-balanced",
        "625 pods of a quarter GPU, each on a node of its own; the whole cycle",
        deciding.load_balancing,
    ),
    Operation(
        "memory optimisation", 20, "CycleRunner.cycle",
        "64 pods that ask for 24,000 MiB of a GPU each share as few GPUs as possible; the whole cycle",
        deciding.memory_optimisation,
    ),
    Operation(
        "performance-driven choice", 30, "CycleRunner.cycle",
        "a gang of 16 nodes requires one leaf of 32; the speeds of all 1,250 nodes were measured; the whole cycle",
        deciding.performance_driven,
    ),
    Operation(
        "rebalancing plan", 200, "plan_balance",
        "every second node full, the others with one GPU in use; at most 5 % of 5,625 pods move",
        deciding.rebalancing_plan,
    ),
    Operation(
        "performance tracking", 5, "PerformanceTracker.measure, ClusterState.patch",
        "one report of progress; the speeds of all 1,250 nodes are known",
        deciding.performance_tracking,
    ),
    Operation(
        "adjustment", 5, "advise.resized_workload",
        "the next run of one of 2,000 kinds of recurring work, ten runs of each known, just after a node changed",
        deciding.adjustment,
    ),
    Operation(
        "one metric sample", 1, "LineReader.feed, AgentRegistry.receive",
        "one line of an agent with 8 GPUs, while 1,250 agents report",
        watching.metric_sample,
    ),
    Operation(
        "efficiency analytics", 100, "GpuUseMeter.add, GpuUseMeter.take",
        "use of 10,000 workloads with one GPU each from one sample of 10,000 GPUs, and who holds idle GPUs",
        watching.efficiency,
    ),
    Operation(
        "consumption report", 100, "PastReader.consumption",
        "31 days of 200 queues with 10 users each, by queue and user",
        watching.consumption,
    ),
    Operation(
        "one alert evaluation", 10, "telemetry.alerts.evaluate",
        "1,000 rules of all kinds on a sample of 10,000 GPUs, 1,250 nodes and 200 queues",
        watching.alert_evaluation,
    ),
    Operation(
        "aggregation", 50, "ClusterOverview.sum_nodes, sample_nodes, sample_users, counts by queue",
        "totals of 1,250 nodes, 200 queues and 2,000 users with 100,000 waiting workloads",
        watching.aggregation,
    ),
    Operation(
        "aggregation over time", 50, "SeriesWriter.record",
        "a sample of 1,250 nodes and 10,000 GPUs that ends a minute: six samples become one, mean and most",
        watching.minutes,
    ),
    Operation(
        "discovery, 8 GPUs", 10, "discover",
        "the sysfs and KFD trees of a node with 8 MI300X, as its agent reads them",
        watching.discovery_whole,
    ),
    Operation(
        "discovery, 64 partitions", 10, "discover",
        "the same in CPX: 64 devices and 4,096 links",
        watching.discovery_partitions,
    ),
)  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--only", default="", help="operations whose names contain this")
    given = options.parse_args()
    rows = []
    if not given.json:
        print(f"{'OPERATION':<26}{'P50 MS':>9}{'LONGEST':>9}{'DUE':>6}  FUNCTION; INPUT")
    for operation in OPERATIONS:
        if given.only in operation.name:
            rows.append(measured(operation))
            print("" if given.json else line_of(rows[-1]), end="" if given.json else "\n", flush=True)
    if given.json:
        print(json.dumps({"nodes": deciding.NODES, "gpus": deciding.NODES * deciding.GPUS, "operations": rows}))
    missed = [f"{row['name']} takes {row['p50_ms']} ms, at most {row['most_ms']:g} is due" for row in rows
              if row["p50_ms"] > row["most_ms"]]  # fmt: skip
    print("\n".join(missed), end="\n" if missed else "", file=sys.stderr)
    return 1 if missed else 0


def measured(operation: Operation) -> dict[str, object]:
    took_ms = []
    for work in operation.rounds():
        began = time.thread_time()
        work()
        took_ms.append((time.thread_time() - began) * 1000)
    part = -(-len(took_ms) // PARTS)
    p50_ms = min(statistics.median(took_ms[at : at + part]) for at in range(0, len(took_ms), part))
    return {
        "name": operation.name, "p50_ms": round(p50_ms, 3), "longest_ms": round(max(took_ms), 3),
        "most_ms": operation.most_ms, "rounds": len(took_ms), "function": operation.function, "input": operation.input,
    }  # fmt: skip


def line_of(row: dict[str, object]) -> str:
    head = f"{row['name']:<26}{row['p50_ms']:>9.3f}{row['longest_ms']:>9.3f}{row['most_ms']:>6g}"
    return f"{head}  {row['function']}; {row['input']}"


if __name__ == "__main__":
    sys.exit(main())
