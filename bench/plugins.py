"""What a plugin in a confined worker costs: a batch at 1,000 nodes, and pods a second with and without it.

In:    the example plugin `prefer-cheap-nodes`, and the backlogs of `bench.decide`.
Out:   microseconds of one batch, and the part of the throughput that is lost. The scheduler waits while the worker
       computes, so the loss follows from the processor time of both: other work on the machine does not count.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.decide import GPUS, NODES, cluster, equal_singles, mixed_singles, submitted, take
from kaiwo.history import Journal
from kaiwo.model.events import Event
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.plugin_files import plugin_in
from kaiwo.runtime.plugin_worker.try_plugin import try_plugin
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugins" / "prefer-cheap-nodes"
PAIRS = 5
AT_MOST = {"score_batch_us": 1_000, "equal_lost_percent": 10.0, "mixed_lost_percent": 30.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    given = parser.parse_args()
    result = measure(given.nodes, given.pairs)
    print(json.dumps(result) if given.json else json.dumps(result, indent=2))
    missed = [
        f"{name} is {result[name]}, at most {most} is due" for name, most in AT_MOST.items() if result[name] > most
    ]
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure(nodes: int, pairs: int = PAIRS) -> dict[str, float]:
    tried = try_plugin(plugin_in(str(EXAMPLE)), {}, nodes, calls=300)
    (cost,) = tried.costs
    figures: dict[str, float] = {"nodes": nodes, "score_batch_us": cost.median_us, "score_batch_p90_us": cost.p90_us}
    for name, backlog in (("equal", equal_singles), ("mixed", mixed_singles)):
        figures |= compare(name, nodes, backlog, pairs)
    return figures


def compare(name: str, nodes: int, backlog: Callable[[int], list[Event]], pairs: int) -> dict[str, float]:
    """The plugin may place pods elsewhere: both runs start the same number of them."""
    found = plugin_in(str(EXAMPLE))
    load = Load(found.manifest.name, str(found.folder.parent), found.manifest.object)
    events = backlog(nodes * GPUS)
    without, with_plugin, batches = [], [], 0
    for _ in range(pairs):
        without.append(drain(nodes, events, builtin_registry()))
        worker = WorkerProcess(load, deadline_ms=5_000)
        registry = builtin_registry()
        registry.add(ConfinedPlugin(load.name, "1", worker))
        with_plugin.append(drain(nodes, events, registry, worker))
        batches = worker.costs.calls
        worker.close()
    lost = [100 * (1 - before.cpu_s / after.cpu_s) for before, after in zip(without, with_plugin, strict=True)]
    return {
        f"{name}_pods_per_s": round(statistics.median(run.pods / run.took_s for run in without)),
        f"{name}_pods_per_s_with_plugin": round(statistics.median(run.pods / run.took_s for run in with_plugin)),
        f"{name}_lost_percent": round(statistics.median(lost), 1),
        f"{name}_batches": batches,
    }


class Run(NamedTuple):
    pods: int
    took_s: float
    cpu_s: float  # of the scheduler and the worker, which take turns


def drain(nodes: int, backlog: Sequence[Event], registry: Registry, worker: WorkerProcess | None = None) -> Run:
    """The first workload comes before the clock starts: a running scheduler has told the worker about its nodes."""
    with tempfile.TemporaryDirectory() as folder, Journal(folder) as journal:
        # Steps that adapt to measured time would give a busy machine more and shorter cycles, and each asks again.
        scheduler = CycleRunner(journal, DEFAULT_POLICY, registry, is_budget_fixed=True)
        take(scheduler, cluster(nodes))
        take(scheduler, [submitted("first", Request(1_000, 1_024), 0)])
        while scheduler.cycle(now_s=0):
            pass
        take(scheduler, backlog)
        gc.collect()  # what earlier runs left must not be this one's cost
        pods, began, cpu_s = 0, time.perf_counter(), _cpu_s(worker)
        while decision := scheduler.cycle(now_s=0):
            assert not decision.plan.notes or decision.plan.notes[0].code == "budget-spent", decision.plan.notes
            pods += len(decision.plan.starts)
        return Run(pods, time.perf_counter() - began, _cpu_s(worker) - cpu_s)


def _cpu_s(worker: WorkerProcess | None) -> float:
    own_s = time.process_time()
    if worker is None:
        return own_s
    on_processor_ns = int(Path(f"/proc/{worker.pid}/schedstat").read_text().split()[0])
    return own_s + on_processor_ns / 1e9


if __name__ == "__main__":
    sys.exit(main())
