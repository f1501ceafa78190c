"""How fast queues are served and capacity is reclaimed: 1,000 nodes x 8 GPUs, 8,000 running one-GPU jobs.

In:    clusters made here, after KAI-Scheduler's own benchmark workloads.   Out: seconds, KAI's figures beside them.
A figure is the sum of all cycles that a case takes, each with its snapshot, decision, journal entry and patch.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable

from bench.decide import GPUS, cluster, mixed_shape
from kaiwo.app.interpreter_tuning import tune_interpreter
from kaiwo.history import Journal
from kaiwo.model.events import Event, PodChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.obstacle import Reason
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner, Decision

NODES = 1_000
NOW_S = 100_000
SMALL = Request(1_000, 1_024, gpus=1)
LARGE = Request(8_000, 8_192, gpus=GPUS)
AT_MOST = {
    "reclaim_half_s": 1.0,
    "verdict_ms": 100.0,
    "gang512_s": 0.5,
    "many_queues_s": 1.0,
    "overdue_queues_s": 2.0,
    "longest_cycle_ms": 400.0,
}
EXACTLY = {"reclaim_half_evictions": 4_000, "gang512_pods": 512, "verdict_evictions": 0}
# Seconds, as published (GitHub runner) and as measured on two cores.
KAI = {
    "reclaim_half_s": {"published": 6.08, "two_cores": 28.4},
    "verdict_ms": {"published_at_100_nodes": 50_800, "two_cores_at_100_nodes": 16_000},
    "gang512_s": {"two_cores_until_bound": 7.3},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--nodes", type=int, default=NODES)
    result = measure(parser.parse_args().nodes)
    missed = [f"{k} is {result[k]}, at most {v} is due" for k, v in AT_MOST.items() if result[k] > v]
    missed += [f"{k} is {result[k]}, {v} are due" for k, v in EXACTLY.items() if result[k] != v]
    print(json.dumps(result) if "--json" in sys.argv else json.dumps(result, indent=2))
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure(nodes: int) -> dict[str, object]:
    longest: list[float] = []
    figures: dict[str, object] = {"nodes": nodes}
    for case in (reclaim_half, verdict, gang512, many_queues, overdue_queues):
        with tempfile.TemporaryDirectory() as folder:
            scheduler = CycleRunner(Journal(folder))
            figures |= case(scheduler, nodes, longest)
    figures["longest_cycle_ms"] = round(max(longest), 1)
    figures["peak_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    figures["kai"] = KAI
    return figures


def reclaim_half(scheduler: CycleRunner, nodes: int, longest: list[float]) -> dict[str, object]:
    """One gang that needs half of the cluster, all of which a queue without quota uses."""
    total = nodes * GPUS * 1000
    tell(scheduler, cluster(nodes), two_queues(QueueAmounts(0), QueueAmounts(total)))
    tell(scheduler, running_singles(scheduler, nodes), [gang("large", nodes // 2, LARGE, "queue-1")])
    took_s, decisions = cycles(scheduler, longest)
    evictions = {(each.workload, each.pod) for decision in decisions for each in decision.plan.evictions}
    placed = sum(len(decision.plan.nominations) for decision in decisions)
    assert placed == nodes // 2, placed
    return {"reclaim_half_s": round(took_s, 3), "reclaim_half_evictions": len(evictions)}


def verdict(scheduler: CycleRunner, nodes: int, longest: list[float]) -> dict[str, object]:
    """One GPU too few may be reclaimed: the answer is no, with the numbers that prove it."""
    total = nodes * GPUS * 1000
    tell(scheduler, cluster(nodes), two_queues(QueueAmounts(total - 79_000, weight=0), QueueAmounts(80_000, weight=0)))
    tell(scheduler, running_singles(scheduler, nodes), [gang("large", 10, LARGE, "queue-1")])
    took_s, decisions = cycles(scheduler, longest)
    obstacles = [o for decision in decisions for wait in decision.plan.waits for o in wait.obstacles]
    proof = next(o for o in obstacles if o.reason is Reason.NOT_ENOUGH_RECLAIMABLE)
    assert (proof.need, proof.have) == (80_000, 79_000), proof
    evictions = sum(len(decision.plan.evictions) for decision in decisions)
    return {"verdict_ms": round(took_s * 1000, 1), "verdict_evictions": evictions}


def gang512(scheduler: CycleRunner, nodes: int, longest: list[float]) -> dict[str, object]:
    """512 pods of 8 GPUs as one gang on the empty cluster."""
    tell(scheduler, cluster(nodes), [gang("large", 512, LARGE, "default")])
    took_s, decisions = cycles(scheduler, longest)
    return {"gang512_s": round(took_s, 3), "gang512_pods": sum(len(d.plan.starts) for d in decisions)}


def many_queues(scheduler: CycleRunner, nodes: int, longest: list[float]) -> dict[str, object]:
    """10,000 waiting jobs of 50 shapes in 1,000 queues, with half of the GPUs free."""
    return serve_queues(scheduler, nodes, longest, "many_queues", NOW_S - 10_000)


def overdue_queues(scheduler: CycleRunner, nodes: int, longest: list[float]) -> dict[str, object]:
    """The same when all of it has waited for more than a day: a place is kept for one job after the other."""
    return serve_queues(scheduler, nodes, longest, "overdue_queues", 0)


def serve_queues(
    scheduler: CycleRunner, nodes: int, longest: list[float], name: str, first_s: int
) -> dict[str, object]:
    draw = random.Random(3)
    names = [f"team-{number:04d}" for number in range(1_000)]
    held = QueueChanged(Queue("default", gpu=QueueAmounts(nodes * GPUS // 2 * 1000)))  # what runs is within its quota
    tell(scheduler, cluster(nodes), [held, *(QueueChanged(Queue(name)) for name in names)])
    tell(scheduler, running_singles(scheduler, nodes, GPUS // 2, "default"))
    shapes = [mixed_shape(number) for number in range(50)]
    jobs = [
        WorkloadChanged(
            Workload(f"default/w{n:05d}", (Role(draw.choice(shapes)),), draw.choice(names), submitted_s=first_s + n)
        )
        for n in range(10_000)
    ]
    tell(scheduler, jobs)
    took_s, decisions = cycles(scheduler, longest)
    started = sum(len(decision.plan.starts) for decision in decisions)
    return {f"{name}_s": round(took_s, 3), f"{name}_started": started, f"{name}_cycles": len(decisions)}


def two_queues(has: QueueAmounts, owed: QueueAmounts) -> list[Event]:
    department = Queue("department", gpu=QueueAmounts(has.quota + owed.quota))
    return [
        QueueChanged(department),
        QueueChanged(Queue("queue-0", "department", gpu=has)),
        QueueChanged(Queue("queue-1", "department", gpu=owed)),
    ]


def running_singles(scheduler: CycleRunner, nodes: int, each: int = GPUS, queue: str = "queue-0") -> Iterable[Event]:
    """One-GPU jobs, one device after the other, spread over all nodes."""
    for number in range(nodes * each):
        node = scheduler.state.node_objects[f"node-{number % nodes:05d}"]
        gpu = node.gpus[number // nodes]
        work = Workload(f"default/r{number:05d}", (Role(SMALL),), queue, submitted_s=number)
        share = Share(gpu.id, 1000, gpu.memory_mib)
        pod = Pod(work.name, "main-0", node.name, Phase.RUNNING, (share,), SMALL.cpu_milli, SMALL.memory_mib)
        yield WorkloadChanged(work)
        yield PodChanged(pod)


def gang(name: str, pods: int, each: Request, queue: str) -> Event:
    return WorkloadChanged(Workload(f"default/{name}", (Role(each, count=pods),), queue, submitted_s=NOW_S - 1))


def tell(scheduler: CycleRunner, *batches: Iterable[Event]) -> None:
    for batch in batches:
        scheduler.state.patch(batch)
    scheduler.state.snapshot(NOW_S)


def cycles(scheduler: CycleRunner, longest: list[float]) -> tuple[float, list[Decision]]:
    """Until nothing is left to decide: the time of all of them together."""
    decisions = []
    tune_interpreter()  # as every Kaiwo process does once its state is loaded
    began = time.perf_counter()
    while (decision := scheduler.cycle(NOW_S)) is not None:
        decisions.append(decision)
        longest.append(decision.summary.took_us / 1000)
        if decision.plan.is_empty and not decision.plan.unfinished:
            break
    return time.perf_counter() - began, decisions


if __name__ == "__main__":
    sys.exit(main())
