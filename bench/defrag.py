"""Defragmentation on the openb trace: the curve of allocated GPUs against moved pods, and even load with few moves.

The protocol is that of the traces' README: best-fit fills the cluster, dropped pods are tried once more in the order of
their arrival, then Kaiwo plans moves and every step is carried out on the cluster state. For even load, the
strategy `load-balanced` fills the cluster, and half of the pods end at random. Then the highest load of a node less the
mean is to be halved with at most 5 % of the pods moved. All of it is shipped code: `decide.defragment`. Times are
processor time.
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kaiwo.cli.verbs.operate.simulation_options import seed_numbers
from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.defragment.assume_step import assume_step
from kaiwo.decide.defragment.plan_moves import plan_balance
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.policy import Policy
from kaiwo.simulate.defrag_run import run_defrag, run_down
from kaiwo.simulate.openb_trace import OpenbTrace, read_openb
from kaiwo.snapshot.cluster_state import ClusterState
from tests.worlds import World

DATA = Path(__file__).resolve().parents[2] / "shared" / "traces" / "openb"
MAX_MOVED_PERCENT, LEAST_ALLOCATED, MOST_PLAN_S = 8.0, 96.0, 60.0
ENDED_PART, BALANCE_MOVED_PERCENT, LEAST_HALVED = 0.5, 5.0, 0.5
LOAD_BALANCED = Policy(gpu_strategy="load-balanced", placement="spread")
NOW_S = 1_000_000
LARGE_NODES, LARGE_GPUS, MOST_LARGE_MS = 1_250, 8, 200.0
REPEATS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--variant", default="default")
    parser.add_argument("--seeds", default="42-46")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not given.data.is_dir():
        print(json.dumps({"name": "defrag", "is_measured": False, "why": f"the trace is not at {given.data}"}))
        return 0
    trace = read_openb(given.data, given.variant)
    seeds = seed_numbers(given.seeds)
    runs = [run_defrag(trace, seed, MAX_MOVED_PERCENT) for seed in seeds]
    balanced = [_balance(trace, seed) for seed in seeds]
    large = _balance_large()
    missed = [f"seed {run.seed}: {run.allocated} %" for run in runs if run.allocated < LEAST_ALLOCATED]
    missed += [f"seed {run.seed}: {run.plan_cpu_s} s" for run in runs if run.plan_cpu_s > MOST_PLAN_S]
    missed += [f"seed {each['seed']}: load gap {each['gap']}" for each in balanced if not each["is_halved"]]
    if large["p50_ms"] > MOST_LARGE_MS:
        missed.append(f"rebalancing plan of {LARGE_NODES} nodes: {large['p50_ms']} ms")
    found = {
        "name": "defrag", "variant": given.variant, "runs": msgspec.to_builtins(runs), "balance": balanced,
        "balance_large": large, "missed": missed,
    }  # fmt: skip
    print(json.dumps(found if given.json else {**found, "runs": [_short(run) for run in found["runs"]]}, indent=2))
    return 1 if missed else 0


def _short(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name != "curve"}


def _balance(trace: OpenbTrace, seed: int) -> dict[str, Any]:
    """The strategy `load-balanced` filled the cluster; then pods ended at random, and left it uneven."""
    state = run_down(trace, seed, LOAD_BALANCED, BUILTIN, ENDED_PART)
    running = sum(len(pods) for pods in state.pods.values())
    snapshot, began = state.snapshot(NOW_S), time.process_time()
    plan = plan_balance(snapshot, LOAD_BALANCED, BUILTIN, int(running * BALANCE_MOVED_PERCENT / 100))
    took_s = time.process_time() - began
    counted = _counted(state)
    before = _gap(state, counted)
    for step in plan.steps:
        assume_step(state, step, NOW_S)
    after = _gap(state, counted)
    return {
        "seed": seed, "strategy": LOAD_BALANCED.gpu_strategy, "ended_part": ENDED_PART, "pods": running,
        "moves": plan.moves, "moved_percent": round(100 * plan.moves / running, 3),
        "gap": [round(before, 4), round(after, 4)], "is_halved": after <= before * LEAST_HALVED,
        "plan_cpu_s": round(took_s, 3),
    }  # fmt: skip


def _counted(state: ClusterState) -> list[str]:
    """Nodes with GPUs, without those that one pod fills and that are as large as any: it would fill any other."""
    size = {name: len(node.gpus) for name, node in state.node_objects.items() if node.gpus}
    pods_on = Counter(pod.node for pods in state.pods.values() for pod in pods.values() if pod.devices)
    return [name for name in size if not (pods_on[name] == 1 and size[name] == max(size.values()))]


def _gap(state: ClusterState, counted: Sequence[str]) -> float:
    """The highest load of these nodes less the mean, counted from the pods, not from the planner's tables."""
    total = {name: len(node.gpus) * WHOLE_MILLI for name, node in state.node_objects.items() if node.gpus}
    used = dict.fromkeys(total, 0)
    for pods in state.pods.values():
        for pod in pods.values():
            if pod.node in used:
                used[pod.node] += sum(share.milli for share in pod.devices)
    loads = [used[name] / total[name] for name in counted]
    return max(loads) - sum(loads) / len(loads)


def packed_world() -> tuple[World, int]:
    """10,000 GPUs, packed: every second node is full and the others have one GPU in use. With the number of pods."""
    world = World(nodes=LARGE_NODES, gpus_per_node=LARGE_GPUS, policy=Policy(placement="pack"))
    count = LARGE_NODES * LARGE_GPUS * 9 // 16
    for number in range(count):
        world.submit(f"w{number}", gpus_each=1)
    world.settle()
    world.now_s = 100
    return world, count


def _balance_large() -> dict[str, Any]:
    world, count = packed_world()
    times = []
    for _ in range(REPEATS):
        snapshot = world.state.snapshot(world.now_s)
        gc.collect()
        began = time.process_time()
        plan = plan_balance(snapshot, world.policy, BUILTIN, count * 5 // 100)
        times.append((time.process_time() - began) * 1000)
    before, after = plan.load_gap_ppm
    return {
        "nodes": LARGE_NODES, "gpus": LARGE_NODES * LARGE_GPUS, "pods": count, "moves": plan.moves,
        "gap": [round(before / 1e6, 4), round(after / 1e6, 4)], "p50_ms": round(sorted(times)[REPEATS // 2], 1),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
