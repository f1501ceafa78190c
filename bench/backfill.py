"""How long large gangs wait with planned starts and backfill, against starting the first that fits in the same order.

In:    128 nodes of 8 GPUs for 14 simulated days. Poisson arrivals at load 0.85 (offered GPU-hours over capacity): 70 %
       one GPU, 20 % 2 to 8, 8 % 16 to 64, 2 % 128 to 512, powers of two; run times lognormal, median 30 minutes, sigma
       1.2, cut at 24 hours. Each seed is simulated three times: greedily, with exact run times, and with estimates that
       are wrong by a lognormal factor of sigma 0.5.
Out:   per seed the mean waits by size, the use of the GPUs, and the planned starts that were missed, with their causes.

Everything is decided by `decide` over the shipped cluster state. A planned start is missed when its gang starts later
than the earliest time that was ever planned for it. Backfilled work is to blame when it started after the place was
planned and is in the way at that time. Use counts runs that completed; a run stopped at its deadline starts again and
counts as lost.
"""

import argparse
import json
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from bench._backfill_simulation import DAY_S, DAYS, GPUS, LARGE, NODES, Cluster, Result, make_jobs
from kaiwo.model.policy import DEFAULT_POLICY, Policy

MIN_GAIN, MAX_POINTS = 0.40, 1.0
CLASSES = {"1": (1, 1), "2-8": (2, 8), "16-64": (16, 64), "128-512": (LARGE, 512)}
MODES = ("greedy", "exact", "errors")
# One queue without reclaim or preemption: those actions would find nothing to do in any cycle.
PLANNED = Policy(actions=("allocate",), promises=DEFAULT_POLICY.promises, large_permille=DEFAULT_POLICY.large_permille)
GREEDY = Policy(actions=("allocate",), promises=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seeds", default="1-5", help="for example 1-10 or 4,7 (default: 1-5)")
    parser.add_argument("--days", type=float, default=DAYS, help="shorter for a first look; the targets are for 14")
    options = parser.parse_args()
    result = measure(seeds_of(options.seeds), options.days)
    print(json.dumps(result, indent=None if options.json else 2))
    missed = misses(result)
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure(seeds: list[int], days: float) -> dict[str, Any]:
    """All runs, on as many processors as there are."""
    cases = [(seed, mode, days) for seed in seeds for mode in MODES]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        figures = list(pool.map(play, cases))
    by_seed = {seed: dict(zip(MODES, figures[at * 3 : at * 3 + 3], strict=True)) for at, seed in enumerate(seeds)}
    for each in by_seed.values():
        for mode in ("exact", "errors"):
            before, now = each["greedy"]["wait_h"]["128-512"], each[mode]["wait_h"]["128-512"]
            each[mode]["gain"] = round(1 - now / before, 3)
            each[mode]["points"] = round(each[mode]["used_percent"] - each["greedy"]["used_percent"], 2)
    gains = [each["exact"]["gain"] for each in by_seed.values()]
    return {
        "gain": round(statistics.mean(gains), 3),
        "lowest_gain": min(gains),
        "gain_with_errors": round(statistics.mean(each["errors"]["gain"] for each in by_seed.values()), 3),
        "broken_with_exact_times": sum(sum(each["exact"]["broken"].values()) for each in by_seed.values()),
        "broken_by_backfill": sum(each[mode]["broken_by_backfill"] for each in by_seed.values() for mode in MODES),
        "processor_s": round(sum(figure["processor_s"] for figure in figures)),
        "seeds": {str(seed): each for seed, each in by_seed.items()},
    }


def play(case: tuple[int, str, float]) -> dict[str, Any]:
    seed, mode, days = case
    began = time.process_time()
    jobs = make_jobs(seed, mode == "errors", days)
    result = Cluster(jobs, GREEDY if mode == "greedy" else PLANNED, days).run()
    capacity = NODES * GPUS * days * DAY_S
    return {
        "jobs": len(jobs),
        "offered_percent": round(100 * sum(job.gpus * job.runs_s for job in jobs) / capacity, 2),
        "used_percent": round(100 * result.useful_gpu_s / capacity, 2),
        "wait_h": {name: _mean_h(result, *sizes) for name, sizes in CLASSES.items()},
        "promised": result.promised,
        "moved_later": dict(sorted(result.moved_later.items())),
        "broken": dict(sorted(result.broken.items())),
        "broken_by_backfill": result.broken_by_backfill,
        "stopped": result.stopped,
        "lost_percent": round(100 * result.lost_gpu_s / capacity, 2),
        "cycles": result.cycles,
        "processor_s": round(time.process_time() - began, 1),
    }


def _mean_h(result: Result, least: int, most: int) -> float:
    waits = [wait for gpus, each in result.waits_s.items() if least <= gpus <= most for wait in each]
    return round(statistics.mean(waits) / 3600, 3) if waits else 0.0


def misses(result: dict[str, Any]) -> list[str]:
    """The targets that were missed."""
    found = []
    for name in ("broken_with_exact_times", "broken_by_backfill"):
        if result[name]:
            found.append(f"{name} is {result[name]}, none is due")
    for seed, each in result["seeds"].items():
        if each["exact"]["gain"] < MIN_GAIN:
            found.append(f"seed {seed}: the gain is {each['exact']['gain']}, at least {MIN_GAIN} is due")
        if abs(each["exact"]["points"]) > MAX_POINTS:
            found.append(f"seed {seed}: the use differs by {each['exact']['points']} points, at most 1 is due")
    return found


def seeds_of(text: str) -> list[int]:
    """`1-3` or `1,2,3`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


if __name__ == "__main__":
    sys.exit(main())
