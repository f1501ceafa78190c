"""What the simulator measures: completion times on Muri, learned run times on Philly, Kaiwo against its first release.

In:    the traces (`--data`, `../shared/traces` by default).   Out: one JSON object; a part that is missed is named.
`muri`      mean completion times against the published ones, without and with a restart cost
`philly`    the part of the gain of known run times over the order of arrival that learned ones recover
`promises`  20 % less mean wait and makespan and 15 % more utilisation than the first release (policy `seed`)
`month`     30 simulated days of 1,000 nodes with 100,000 jobs, in CPU seconds of one core
`replay`    a simulated run with preemptions, journaled and decided again
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.simulate.engine.job import SimulatedJob
from kaiwo.simulate.job_run import JobRun, JobRunFigures, equal_nodes
from kaiwo.simulate.journal_replay import replay_journal
from kaiwo.simulate.openb_trace import read_nodes
from kaiwo.simulate.parallel_runs import run_tasks
from kaiwo.simulate.policy_comparison import compare
from kaiwo.simulate.trace_files import find_file
from kaiwo.simulate.workloads.generated_jobs import JobsToGenerate, generated_jobs
from kaiwo.simulate.workloads.openb_jobs import at_load, openb_jobs
from kaiwo.simulate.workloads.published_jobs import muri_jobs, philly_jobs

DATA = Path(__file__).resolve().parents[2] / "shared" / "traces"
BLIND, KNOWING = "least-attained-service", "shortest-remaining-service"
# Published mean completion times in thousand seconds: min(Tiresias, Themis), and SRSF.
PUBLISHED = {
    "trace1": {BLIND: 1823, KNOWING: 980},
    "trace3": {BLIND: 347, KNOWING: 185},
    "trace1_pr": {BLIND: 3314, KNOWING: 1802},
    "trace3_pr": {BLIND: 1503, KNOWING: 798},
}
RESTART_COSTS_S = (0, 120)
PHILLY_NODES, PHILLY_POLICIES = 60, ("fifo", "group-mean", "learned", "shortest-job-first")
LESS_WAIT_PCT, LESS_MAKESPAN_PCT, MORE_USED_PCT = 20, 20, 15
OPENB_LOAD, OPENB_PODS, OPENB_NODES_PART = 1.1, 20_000, 10  # every tenth node: the pods then fill it several times
SAMPLE_PODS, SAMPLE_JOBS, SAMPLE_AFTER, SAMPLE_NODES = 8_000, 3_000, 0.4, 50
MONTH_NODES, MONTH_JOBS, MONTH_DAYS, MONTH_LOAD, MONTH_MOST_S = 1_000, 100_000, 30, 1.3, 600
# Judged are what is shipped, and the blind order. The last one knows all run times: what waiting could be saved so.
PROMISE_POLICIES, JUDGED = ("seed", "default", BLIND, "fifo", "learned", "shortest-job-first"), ("default", BLIND)
PARTS = ("muri", "philly", "promises", "month", "replay")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--jobs", type=int, default=0, help="runs at the same time (default: one per core)")
    parser.add_argument("--first", type=int, help="only the first jobs of Philly")
    parser.add_argument("--sample", action="store_true", help="`promises` on the parts of the traces that 0166 shows")
    parser.add_argument("--policies", nargs="+", help="`promises` for these alone, beside `seed`")
    options = parser.parse_args()
    result, missed = dict[str, Any](), list[str]()
    for part in options.parts:
        if part in ("muri", "philly", "promises") and not options.data.is_dir():
            result[part] = {"is_measured": False, "why": f"the traces are not at {options.data}"}
            continue
        result[part], lines = globals()[f"measure_{part}"](options)
        missed += lines
    print(json.dumps(result, indent=None if options.json else 2))
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure_muri(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    folder, nodes, tasks = options.data / "muri", equal_nodes(8), list[JobRun]()
    for name in sorted(path.name.partition(".csv")[0] for path in folder.glob("trace*.csv*")):
        jobs = tuple(muri_jobs(find_file(folder, f"{name}.csv")))
        tasks += [
            JobRun(name, nodes, jobs, policy, restart_s=cost) for policy in (BLIND, KNOWING) for cost in RESTART_COSTS_S
        ]
    result, missed = dict[str, Any](), list[str]()
    for run in _run(tasks, options):
        found = run.figures.average_jct_s / 1000
        due = PUBLISHED.get(run.workload, {}).get(run.policy)
        entry = result.setdefault(run.workload, {}).setdefault(run.policy, {"published_at_most": due})
        entry[f"jct_ks_restart_{run.restart_s}s"] = round(found, 1)
        entry[f"evictions_restart_{run.restart_s}s"] = sum(run.figures.evictions.values())
        if due is not None and not run.restart_s and found > due:
            missed.append(f"muri {run.workload}, {run.policy}: {found:.1f} thousand s, at most {due} is due")
    return result, missed


def measure_philly(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    jobs, nodes = _philly(options), equal_nodes(PHILLY_NODES)
    rows = compare(_run([JobRun("philly", nodes, jobs, policy) for policy in PHILLY_POLICIES], options))
    result: dict[str, Any] = {"jobs": len(jobs), "gpus": 8 * PHILLY_NODES}
    for row in rows:
        result[row.policy] = {"mean_wait_h": round(row.mean_wait_s / 3600, 2), "recovered_pct": row.recovered_pct}
    learned, mean = result["learned"]["recovered_pct"], result["group-mean"]["recovered_pct"]
    missed = [] if learned > mean else [f"philly: learned recovers {learned} %, the group mean {mean} %"]
    return result, missed


def measure_promises(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    folder = options.data / "openb"
    nodes = tuple(read_nodes(find_file(folder, "openb_node_list_gpu_node.csv"))[::OPENB_NODES_PART])
    models = {gpu.model for node in nodes for gpu in node.gpus}
    pods = [
        job
        for job in openb_jobs(find_file(folder, "openb_pod_list_default.csv"))
        if job.gpu_milli and (not job.request.gpu_models or models.intersection(job.request.gpu_models))
    ]
    gpus = sum(len(node.gpus) for node in nodes)
    arriving = tuple(at_load(pods, gpus, OPENB_LOAD, SAMPLE_PODS if options.sample else OPENB_PODS, seed=42))
    jobs, machines = _philly(options), equal_nodes(PHILLY_NODES)
    if options.sample:
        begin = int(len(jobs) * SAMPLE_AFTER)
        jobs, machines = jobs[begin : begin + SAMPLE_JOBS], equal_nodes(SAMPLE_NODES)
    policies = ("seed", *(each for each in options.policies or PROMISE_POLICIES if each != "seed"))
    tasks = [JobRun("openb", nodes, arriving, policy) for policy in policies]
    tasks += [JobRun("philly", machines, jobs, policy) for policy in policies]
    runs = _run(tasks, options)
    by_size = {(run.workload, run.policy): run.figures.waits_by_size for run in runs}
    rows = {(row.workload, row.policy): row for row in compare(runs)}
    result, missed = dict[str, Any](), list[str]()
    bounds = {"openb": best_possible(arriving, nodes), "philly": best_possible(jobs, machines)}
    for (workload, policy), row in rows.items():
        base = rows[workload, "seed"]
        entry = {
            "mean_wait_h": round(row.mean_wait_s / 3600, 3),
            "makespan_h": round(row.makespan_s / 3600, 1),
            "utilisation_pct": row.busy_utilisation_pct,
            "p99_wait_h": round(row.p99_wait_s / 3600, 3),
            "mean_wait_h_by_gpus": {each.gpus: round(each.mean_wait_s / 3600, 3) for each in by_size[workload, policy]},
        }
        if policy != "seed":
            entry |= {
                "less_wait_pct": _less(base.mean_wait_s, row.mean_wait_s),
                "less_makespan_pct": _less(base.makespan_s, row.makespan_s),
                "more_utilisation_pct": -_less(base.busy_utilisation_pct, row.busy_utilisation_pct),
            }
            least_s, most_pct = bounds[workload]
            entry["possible"] = {
                "less_makespan_pct": _less(base.makespan_s, least_s),
                "more_utilisation_pct": -_less(base.busy_utilisation_pct, most_pct),
            }
            dues = (LESS_WAIT_PCT, LESS_MAKESPAN_PCT, MORE_USED_PCT)
            for name, due in zip(("less_wait_pct", "less_makespan_pct", "more_utilisation_pct"), dues, strict=True):
                if policy in JUDGED and entry[name] < due:
                    bound = f", and at most {entry['possible'][name]} is possible" if name in entry["possible"] else ""
                    missed.append(f"promises, {workload}, {policy}: {name} is {entry[name]}, {due} is due{bound}")
        result.setdefault(workload, {})[policy] = entry
    return result, missed


def best_possible(jobs: Sequence[SimulatedJob], nodes: Sequence[Node]) -> tuple[float, float]:
    """Bounds that no scheduler beats: the least makespan, in seconds, and the most use while jobs arrive, in percent.

    No job ends before it has run, all work needs all GPUs, and by the last arrival a job has run since its own at most.
    """
    capacity = sum(len(node.gpus) for node in nodes) * WHOLE_MILLI
    first_s, last_s = min(job.submitted_s for job in jobs), max(job.submitted_s for job in jobs)
    need = sum(job.gpu_milli * job.runs_s for job in jobs)
    least_s = max(need / capacity, max(job.submitted_s + job.runs_s for job in jobs) - first_s)
    by_then = sum(job.gpu_milli * min(job.runs_s, last_s - job.submitted_s) for job in jobs)
    return least_s, min(100.0, 100 * by_then / (capacity * max(1, last_s - first_s)))


def measure_month(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """One run at a time, in a process of its own: its CPU time is that of one core."""
    order = JobsToGenerate("philly", MONTH_JOBS, MONTH_DAYS, 1, 8 * MONTH_NODES, MONTH_LOAD)
    task = JobRun("month", equal_nodes(MONTH_NODES), tuple(generated_jobs(order)), "fifo")
    (run,) = _run([task], options)
    result = {
        "cpu_s": run.took_s,
        "peak_rss_mb": run.peak_rss_mb,
        "cycles": run.figures.cycles,
        "ended": run.figures.ended,
        "mean_wait_h": round(run.figures.mean_wait_s / 3600, 2),
        "utilisation_pct": run.figures.busy_utilisation_pct,
    }
    missed = [f"month: {run.took_s} s, at most {MONTH_MOST_S} is due"] if run.took_s > MONTH_MOST_S else []
    return result, missed


def measure_replay(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    order = JobsToGenerate("philly", 3_000, 3, 1, 64, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        task = JobRun("replay", equal_nodes(8), tuple(generated_jobs(order)), KNOWING, journal=folder)
        _run([task], options)
        found = replay_journal(Path(folder))
    result = {"cycles": found.cycles, "same": found.same, "starts": found.starts, "evictions": found.evictions}
    missed = [] if found.is_same else [f"replay: {found.cycles - found.same} of {found.cycles} cycles differ"]
    return result, missed


def _run(tasks: Sequence[JobRun], options: argparse.Namespace) -> list[JobRunFigures]:
    done, is_complete = run_tasks(tasks, jobs=options.jobs)
    if not is_complete:
        raise KeyboardInterrupt
    return [done[number] for number in range(len(tasks))]


def _philly(options: argparse.Namespace) -> tuple[Any, ...]:
    found = philly_jobs(find_file(options.data / "philly", "philly_jobs.csv"))
    return tuple(sorted(found, key=lambda job: (job.submitted_s, job.name)))[: options.first]


def _less(before: float, after: float) -> float:
    return round(100 * (before - after) / before, 2) if before else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
