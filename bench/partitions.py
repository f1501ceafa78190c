"""GPU-hours that the partition planner serves, against the best mode that never changes.

In:    16 nodes of 8 MI300X for 48 simulated hours. In phases of 4 hours 90 % of the offered GPU-hours are jobs of one
       CPX partition for 20 to 60 minutes, then 90 % are gangs of 8 GPUs of one node for 1 to 3 hours; offered load 0.9.
       A compute-mode change costs one idle minute of the GPU, a memory-mode change ten drained minutes of the node.
Out:   per seed, what was served: by the planner, by all SPX, by all CPX, by the best of all 17 fixed splits of nodes.

`gain` is over the best static mode: all SPX or all CPX, whichever served more. `gain_over_split` is over the best split
of the nodes between the two, chosen afterwards; `most_over_split` is what serving everything that was offered would be.
By default no job gives up. Phases even out over a day, so a job that waits forever is served by an even split as well,
only hours later; with `--patience` a job that has not started after that many minutes gives up, so time counts too.
The modes change by `plan_partitions`, work is placed by `ClusterState` and `decide`; the driver is emulated.
"""

import argparse
import json
import statistics
import sys
import time
from typing import Any

from bench._partitioning_simulation import CPX, GPUS, HOURS, MODEL, NODES, SPX, Cluster, Job, count_servers, make_jobs
from kaiwo.gpus.partitioning.planner import DEFAULT_SETTINGS, plan_partitions
from kaiwo.gpus.partitioning.planner_types import GpuState, ModeDemand, NodeState, PodSize, Tenant

AT_LEAST = 1.15
NEVER_S = 10**9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seeds", default="1-10", help="for example 4,7 (default: 1-10)")
    parser.add_argument("--patience", type=int, default=0, metavar="MINUTES", help="0, the default: no job gives up")
    parser.add_argument(
        "--partition", default="CPX", help="what small jobs ask for; CPX+NPS4 needs another memory mode"
    )
    options = parser.parse_args()
    result = measure(seeds_of(options.seeds), options.patience, options.partition)
    print(json.dumps(result, indent=None if options.json else 2))
    lowest = result["lowest_gain"]
    if lowest < AT_LEAST:
        print(f"lowest_gain is {lowest}, at least {AT_LEAST} is due", file=sys.stderr)
        return 1
    return 0


def plan_ms() -> float:
    """Processor time of one plan for 1,250 nodes of 8 GPUs, half in use, with 5,700 pods waiting for three modes.

    Work that runs holds half the CPUs; those who wait ask for 20 sizes beside their devices.
    """
    gpus = [
        [GpuState(f"gpu-{gpu}", SPX, used=(at + gpu) % 2, free_in_s=600, idle_gpu_s=0) for gpu in range(GPUS)]
        for at in range(1_250)
    ]
    free = (96_000, 10**6, 106)  # milli-CPU, MiB, pods
    held = [tuple(Tenant((gpu.id,), (24_000, 10**5, 1)) for gpu in here if gpu.used) for here in gpus]
    nodes = [
        NodeState(f"node-{at:04d}", MODEL, tuple(here), free=free, tenants=held[at]) for at, here in enumerate(gpus)
    ]
    needs = [
        ModeDemand("CPX", count=5_000, waited_s=60, sizes=_sizes(5_000)),
        ModeDemand("DPX", count=500, waited_s=30, sizes=_sizes(500)),
        ModeDemand("SPX", devices=8, count=200, sizes=_sizes(200)),
    ]
    began = time.thread_time()
    plan = plan_partitions(0, nodes, needs)
    took = time.thread_time() - began
    assert len(plan.steps) >= 5_000 // GPUS
    return round(took * 1000, 1)


def _sizes(pods: int) -> tuple[PodSize, ...]:
    return tuple(PodSize((1_000 * (1 + kind), 8_000, 1), pods // 20) for kind in range(20))


def seeds_of(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def measure(seeds: list[int], patience_min: int, partition: str = "CPX") -> dict[str, Any]:
    runs = [one_seed(seed, patience_min * 60 or NEVER_S, partition) for seed in seeds]
    gains, splits = [run["gain"] for run in runs], [run["gain_over_split"] for run in runs]
    return {
        "patience_min": patience_min,
        "partition": partition,
        "lowest_gain": min(gains),
        "mean_gain": round(statistics.mean(gains), 3),
        "lowest_gain_over_split": min(splits),
        "mean_gain_over_split": round(statistics.mean(splits), 3),
        "target_gain": AT_LEAST,
        "plan_of_10000_gpus_ms": plan_ms(),
        "seeds": runs,
    }


def one_seed(seed: int, patience_s: int, partition: str) -> dict[str, float]:
    began = time.perf_counter()
    jobs = make_jobs(seed)
    done = Cluster([SPX] * NODES, DEFAULT_SETTINGS, patience_s, partition).run(jobs)
    splits = static_splits(jobs, patience_s)
    cut = max(range(NODES + 1), key=lambda nodes: splits[nodes])
    planner, split = done.served_gpu_s / 3600, splits[cut] / 3600
    one_mode = max(splits[0], splits[NODES]) / 3600
    offered = sum(min(job.lasts_s, HOURS * 3600 - job.arrives_s) / job.lasts_s * job.gpu_s for job in jobs) / 3600
    return {
        "seed": seed,
        "jobs": len(jobs),
        "offered_gpu_h": round(sum(job.gpu_s for job in jobs) / 3600),
        "offered_load": round(sum(job.gpu_s for job in jobs) / (NODES * GPUS * HOURS * 3600), 3),
        "planner_gpu_h": round(planner),
        "best_split_gpu_h": round(split),
        "best_split_cpx_nodes": cut,
        "all_spx_gpu_h": round(splits[0] / 3600),
        "all_cpx_gpu_h": round(splits[NODES] / 3600),
        "gain": round(planner / one_mode, 4),
        "gain_over_split": round(planner / split, 4),
        "most_over_split": round(offered / split, 4),
        "mode_changes": done.changes,
        "gave_up": done.gave_up,
        "mean_wait_min": round(statistics.mean(done.waited_s) / 60, 1),
        "took_s": round(time.perf_counter() - began, 1),
    }


def static_splits(jobs: list[Job], patience_s: int) -> list[float]:
    """By the number of nodes in CPX: GPU-seconds served when the rest is in SPX all the time."""
    small = [job for job in jobs if not job.is_gang]
    gangs = [job for job in jobs if job.is_gang]
    places = GPUS * GPUS  # partitions of a node
    return [
        count_servers(small, nodes * places, patience_s) + count_servers(gangs, NODES - nodes, patience_s)
        for nodes in range(NODES + 1)
    ]


def static_cluster(cpx_nodes: int, patience_s: int) -> Cluster:
    """The same split on the shipped code, to check the counting."""
    return Cluster([CPX] * cpx_nodes + [SPX] * (NODES - cpx_nodes), None, patience_s)


if __name__ == "__main__":
    sys.exit(main())
