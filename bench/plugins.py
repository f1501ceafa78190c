"""What a plugin in a confined worker costs: a batch at 1,000 nodes, and pods a second with and without it.

In:    the example plugin `prefer-cheap-nodes`, and the backlogs of `bench.decide`.
Out:   microseconds of one batch, and the part of the throughput that is lost.

Other work on the machine does not count: the scheduler and the worker take turns, so a batch and the throughput follow
from the processor time of both. The steps of a cycle adapt as they do in a running Kaiwo, but to processor time: each
cycle asks again, and a busy machine would have more of them. Runs with and without the plugin alternate, and either
comes first in half of the pairs.
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
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.plugin_files import plugin_in
from kaiwo.runtime.plugin_worker.try_plugin import QUESTIONS, sample_view
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugins" / "prefer-cheap-nodes"
PAIRS, CALLS = 9, 300
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
    figures: dict[str, float] = {"nodes": nodes, **score_batch(nodes)}
    for name, backlog in (("equal", equal_singles), ("mixed", mixed_singles)):
        figures |= compare(name, nodes, backlog, pairs)
    return figures


def score_batch(nodes: int) -> dict[str, float]:
    """One answer for all nodes: the processor time of both processes, and how long it took by the clock."""
    plugin, view = started(), sample_view(nodes)
    QUESTIONS["score"](plugin, view, 0)  # the first question also tells the worker about the nodes
    cpu_us, took_us = [], []
    for number in range(1, CALLS + 1):
        began_ns, began_cpu_ns = time.perf_counter_ns(), _cpu_ns(plugin.worker)
        QUESTIONS["score"](plugin, view, number)
        cpu_us.append((_cpu_ns(plugin.worker) - began_cpu_ns) / 1_000)
        took_us.append((time.perf_counter_ns() - began_ns) / 1_000)
    plugin.worker.close()
    return {
        "score_batch_us": round(statistics.median(cpu_us)),
        "score_batch_p90_us": round(statistics.quantiles(cpu_us, n=10)[-1]),
        "score_batch_by_the_clock_us": round(statistics.median(took_us)),
    }


def started() -> ConfinedPlugin:
    found = plugin_in(str(EXAMPLE))
    load = Load(found.manifest.name, str(found.folder.parent), found.manifest.object)
    return ConfinedPlugin(load.name, "1", WorkerProcess(load, deadline_ms=5_000))


def compare(name: str, nodes: int, backlog: Callable[[int], list[Event]], pairs: int) -> dict[str, float]:
    """The plugin may place pods elsewhere: both runs start the same number of them."""
    events = backlog(nodes * GPUS)
    pairs_of_runs = []
    for number in range(pairs):
        is_plugin_first = number % 2 == 1
        first, second = drain(nodes, events, is_plugin_first), drain(nodes, events, not is_plugin_first)
        pairs_of_runs.append((second, first) if is_plugin_first else (first, second))
    lost = [100 * (1 - without.cpu_s / with_plugin.cpu_s) for without, with_plugin in pairs_of_runs]
    plain, asked = (
        statistics.median(run.pods / run.cpu_s for run in runs) for runs in zip(*pairs_of_runs, strict=True)
    )
    return {
        f"{name}_pods_per_s": round(plain),
        f"{name}_pods_per_s_with_plugin": round(asked),
        f"{name}_lost_percent": round(statistics.median(lost), 1),
        f"{name}_batches": statistics.median_high(with_plugin.batches for _, with_plugin in pairs_of_runs),
        f"{name}_cycles": statistics.median_high(with_plugin.cycles for _, with_plugin in pairs_of_runs),
    }


class Run(NamedTuple):
    pods: int
    cpu_s: float  # of the scheduler and the worker
    batches: int
    cycles: int


def drain(nodes: int, backlog: Sequence[Event], has_plugin: bool) -> Run:
    """The first workload comes before the clock starts: a running scheduler has told the worker about its nodes."""
    registry, worker = builtin_registry(), None
    if has_plugin:
        plugin = started()
        registry.add(plugin)
        worker = plugin.worker
    with tempfile.TemporaryDirectory() as folder, Journal(folder) as journal:
        scheduler = CycleRunner(journal, DEFAULT_POLICY, registry)
        scheduler.clock_ns = lambda: _cpu_ns(worker)
        take(scheduler, cluster(nodes))
        take(scheduler, [submitted("first", Request(1_000, 1_024), 0)])
        while scheduler.cycle(now_s=0):
            pass
        take(scheduler, backlog)
        gc.collect()  # what earlier runs left must not be this one's cost
        pods, cycles, began_ns = 0, 0, _cpu_ns(worker)
        while decision := scheduler.cycle(now_s=0):
            assert not decision.plan.notes or decision.plan.notes[0].code == "budget-spent", decision.plan.notes
            pods, cycles = pods + len(decision.plan.starts), cycles + 1
        took_ns = _cpu_ns(worker) - began_ns
    batches = worker.costs.calls if worker is not None else 0
    if worker is not None:
        worker.close()
    return Run(pods, took_ns / 1e9, batches, cycles)


def _cpu_ns(worker: WorkerProcess | None) -> int:
    own_ns = time.process_time_ns()
    if worker is None:
        return own_ns
    return own_ns + int(Path(f"/proc/{worker.pid}/schedstat").read_text().split()[0])


if __name__ == "__main__":
    sys.exit(main())
