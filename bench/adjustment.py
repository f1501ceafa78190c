"""How many wasted GPU-hours adjusted shares recover, and how much any job is slowed for it.

Generated recurring work (`_kinds`) runs twice on the same virtual cluster, by shipped code: `decide` places it, and in
the second run `advise.right_size` sizes the next run of a kind from what a sampler saw of the last ones. The slowdown
model is that of `_adjustment_simulation`. Needs vary from run to run; some grow late in every run, some grow from run
to run, and some make an unprecedented jump. `surprises` is a row without a target: there the jumps of memory come late
and exceed every headroom.
"""

import argparse
import json
import random
import sys
import time
from typing import Any

from bench._adjustment_simulation import DEVICE_MIB, HOUR_S, Job, Phase, Simulation
from kaiwo.advise.right_size import SizeRule
from kaiwo.cli.verbs.operate.simulation_options import seed_numbers
from kaiwo.model.request import Request

LEAST_RECOVERED_PERCENT, MOST_SLOWED_PERCENT = 20.0, 5.0
NODES, GPUS, KINDS, RUNS = 5, 8, 90, 14
MEMORY_FAILS_WITHIN_S = 90  # of the start, mostly: frameworks take their memory with the first batches
SHAPES = (  # weight, name
    (30, "heavy"), (24, "light"), (16, "interactive"), (10, "input-bound"), (8, "late"), (7, "drift"), (5, "jump"),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--kinds", type=int, default=KINDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows, missed = [], []
    for seed in seed_numbers(given.seeds):
        for name, rule in (("burst", SizeRule()), ("capped", SizeRule(may_burst=False))):
            row = _compare(seed, given.kinds, name, rule)
            rows.append(row)
            if row["recovered_percent"] < LEAST_RECOVERED_PERCENT:
                missed.append(f"seed {seed} {name}: {row['recovered_percent']} % recovered")
            if row["most_slowed_percent"] > MOST_SLOWED_PERCENT:
                missed.append(f"seed {seed} {name}: a job slowed by {row['most_slowed_percent']} %")
    surprises = [_compare(seed, given.kinds, "burst", SizeRule(), surprises=True) for seed in seed_numbers(given.seeds)]
    found = {"name": "adjustment", "rows": rows, "surprises": surprises, "missed": missed}
    print(json.dumps(found, indent=None if given.json else 2))
    return 1 if missed else 0


def _compare(seed: int, kinds: int, name: str, rule: SizeRule, surprises: bool = False) -> dict[str, Any]:
    jobs = _jobs(seed, kinds, surprises)
    began = time.process_time()
    off = Simulation(jobs, None, seed, NODES, GPUS).run()
    act = Simulation(jobs, rule, seed, NODES, GPUS).run()
    assert set(off.slowdown) == set(act.slowdown) == {job.name for job in jobs}, "a job was lost"
    slowed = sorted(act.slowdown.values())
    return {
        "seed": seed, "shares": name, "jobs": len(jobs), "adjusted": act.adjusted, "failed": act.failed,
        "held_gpu_h": [round(off.held_gpu_h), round(act.held_gpu_h)],
        "wasted_gpu_h": [round(off.wasted_gpu_h), round(act.wasted_gpu_h)],
        "recovered_percent": round(100 * (1 - act.wasted_gpu_h / off.wasted_gpu_h), 1),
        "most_slowed_percent": round(100 * slowed[-1], 2),
        "p99_slowed_percent": round(100 * slowed[len(slowed) * 99 // 100], 2),
        "slowed_over_5_percent": sum(each > MOST_SLOWED_PERCENT / 100 for each in slowed),
        "mean_wait_min": [round(each.mean_wait_s / 60, 1) for each in (off, act)],
        "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip


def _jobs(seed: int, kinds: int, surprises: bool) -> list[Job]:
    random_of = random.Random(seed)
    found: list[Job] = []
    for number in range(kinds):
        (shape,) = random_of.choices([name for _, name in SHAPES], [weight for weight, _ in SHAPES])
        found += _runs_of(random_of, f"{shape}{chr(97 + number // 26)}{chr(97 + number % 26)}", shape, surprises)
    return found


def _runs_of(random_of: random.Random, kind: str, shape: str, surprises: bool) -> list[Job]:
    """All runs of one kind, one after the other, every few hours."""
    nominal_s = min(12 * HOUR_S, max(900, random_of.lognormvariate(8.6, 0.7)))  # half of them above 1.5 h
    every_s = nominal_s + random_of.uniform(1, 10) * HOUR_S
    pods = random_of.choice((1, 2, 4, 8)) if shape == "heavy" else 1
    need, memory = _usual_use(random_of, shape)
    growth = random_of.uniform(0.03, 0.08)  # by run, of a drifting kind
    late, jumps_at = random_of.uniform(1.3, 2.2), random_of.randrange(6, RUNS)
    jump_need, jump_memory = random_of.uniform(1.2, 2.2), random_of.uniform(1.1, 3.0 if surprises else 1.35)
    jump_memory_early = random_of.uniform(1.35, 2.5)  # of half of the jumps, at the start
    is_early = random_of.random() < 0.5
    at_s, found = random_of.uniform(0, every_s), []
    for run in range(RUNS):
        varied = need * random_of.gauss(1, 0.05) * (1 + growth * run if shape == "drift" else 1)
        mib = memory * random_of.gauss(1, 0.02) * (1 + growth * run if shape == "drift" else 1)
        took_s = nominal_s * random_of.lognormvariate(0, 0.15)
        phases = _phases(random_of, shape, took_s, varied, mib, late)
        if shape == "jump" and run >= jumps_at:
            phases = _with_jump(phases, jump_need, jump_memory_early if is_early else jump_memory, is_early)
        request = Request(cpu_milli=4000, memory_mib=32_768, gpus=1)
        found.append(Job(f"{kind}-{run}", int(at_s), kind, request, tuple(phases), pods))
        at_s += every_s * random_of.uniform(0.8, 1.2)
    return found


def _usual_use(random_of: random.Random, shape: str) -> tuple[float, float]:
    """The need of the processors in thousandths, and of the memory in MiB."""
    needs = {"heavy": (800, 980), "interactive": (30, 150), "input-bound": (250, 450), "late": (150, 350),
             "drift": (150, 300), "jump": (150, 350), "light": (200, 600)}  # fmt: skip
    memories = {"heavy": (0.5, 0.9), "light": (0.1, 0.4), "interactive": (0.05, 0.3)}
    need = random_of.uniform(*needs[shape])
    return need, random_of.uniform(*memories.get(shape, (0.1, 0.35))) * DEVICE_MIB


def _phases(random_of: random.Random, shape: str, took_s: float, need: float, mib: float, late: float) -> list[Phase]:
    """A short warm-up, then parts with noise; interactive work idles in between."""
    warm_s = min(MEMORY_FAILS_WITHIN_S, took_s / 20)
    phases = [Phase(warm_s, max(10, int(need * 0.3)), int(mib * 0.6))]
    parts = 5
    for part in range(parts):
        busy = need * random_of.gauss(1, 0.05)
        if shape == "interactive" and part % 2:
            busy = need * 0.2
        if shape == "late" and part == parts - 1:
            busy, mib = busy * late, mib * 1.2
        phases.append(Phase((took_s - warm_s) / parts, max(10, min(1000, int(busy))), min(DEVICE_MIB, int(mib))))
    return phases


def _with_jump(phases: list[Phase], need: float, memory: float, is_early: bool) -> list[Phase]:
    """More than any run before: from the beginning, or in the last two parts only."""
    found = []
    for number, phase in enumerate(phases):
        if (is_early and number) or number >= len(phases) - 2:
            more = min(1000, int(phase.need_milli * need)), min(DEVICE_MIB, int(phase.mib * memory))
            phase = Phase(phase.work_s, *more)
        found.append(phase)
    return found


if __name__ == "__main__":
    sys.exit(main())
