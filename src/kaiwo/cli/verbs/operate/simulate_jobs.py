"""`kaiwo simulate muri|philly|run|journal`: jobs that arrive, run and end, under one policy or several."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import lay_out, text_columns
from kaiwo.cli.verb_base import LocalVerb
from kaiwo.cli.verbs.operate.simulation_options import INTERRUPTED, ProgressBar, data_option, names_in, seed_numbers
from kaiwo.model.amounts import count
from kaiwo.model.errors import ConfigError

if TYPE_CHECKING:
    from kaiwo.model.events import Event
    from kaiwo.model.node import Node
    from kaiwo.model.policy import Policy
    from kaiwo.simulate.engine.job import SimulatedJob
    from kaiwo.simulate.job_run import JobRun, JobRunFigures

HOUR_S, DAY_S = 3600, 86_400
MURI_NODES, PHILLY_NODES, DEFAULT_NODES = 8, 60, 8  # of 8 GPUs each
PHILLY_FILE = "philly_jobs.csv"
RESTART_S = 120  # a real cost: save, stop, start elsewhere and load again
TITLES = (
    "WORKLOAD", "POLICY", "RESTART", "JCT H", "WAIT H", "P99 WAIT H", "MAKESPAN D", "USED %", "FRAG %", "FAIR",
    "EVICTED", "RECOVERED %",
)  # fmt: skip
MOST_DAYS, MOST_JOBS, MOST_NODES = 3_650, 1_000_000, 10_000


def comparison_options(default_policy: str) -> Callable[[Any], Any]:
    options = (
        click.option("--policy", metavar="NAME", default=default_policy, show_default=True, help="Policy to run."),
        click.option("--compare", metavar="LIST", default="", help="Several policies side by side: NAME,NAME."),
        click.option("--seeds", metavar="LIST", default="0", show_default=True, help="0-4 or 1,3; see above."),
        click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs at the same time (default: per core)."),
        click.option("--html", metavar="FILE", default="", help="Also write a report with plots, as one HTML file."),
        click.option("--json", "is_json", is_flag=True, help="Print one JSON object."),
    )

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command(cls=LocalVerb)
@data_option("muri", "Folder with trace1.csv and others, plain or gzipped")
@click.option("--trace", metavar="NAME", default="", help="Only this trace, such as trace1 (default: all of them).")
@click.option("--restart-costs", metavar="LIST", default=f"0,{RESTART_S}", show_default=True, help="Seconds: 0,120.")
@comparison_options("least-attained-service")
def muri(data: Path, trace: str, restart_costs: str, **options: Any) -> int:
    """Run the jobs of Muri's traces on 8 nodes of 8 GPUs, with preemption, and measure their completion times.

    JCT is the mean time from submission to end, as published. Each preemptive policy runs once for every restart cost:
    0 as published, and a real one, which a job loses each time it is stopped. Seeds other than 0 shuffle the jobs that
    arrive at the same instant.

    \b
    Policies:
      least-attained-service       blind to durations; learns from ended jobs how likely a job ends soon
      shortest-remaining-service   knows durations
      fifo, shortest-job-first     without preemption
    \b
    Examples:
      kaiwo simulate muri --data traces/muri
      kaiwo simulate muri --data traces/muri --trace trace1 --policy shortest-remaining-service --json
    """
    from kaiwo.simulate.engine.service_orders import ORDERS
    from kaiwo.simulate.job_run import JobRun, check_job_run, equal_nodes
    from kaiwo.simulate.trace_files import find_file
    from kaiwo.simulate.workloads.published_jobs import muri_jobs

    nodes = equal_nodes(MURI_NODES)
    names = [trace] if trace else _traces_in(data)
    costs = seed_numbers(restart_costs, "--restart-costs")
    policies, seeds = _policies(options), seed_numbers(options["seeds"])
    runs: list[JobRun] = []
    for name in names:
        path = find_file(data, f"{name}.csv")
        found = tuple(muri_jobs(path))
        for policy in policies:
            check_job_run(policy, found, nodes, str(path))
            preempts = policy in ORDERS and ORDERS[policy]().preempts
            runs += [
                JobRun(name, nodes, found, policy, seed, cost)
                for cost in (costs if preempts else [0])
                for seed in seeds
            ]
    return run_and_print("muri", runs, options)


@click.command(cls=LocalVerb)
@data_option("philly", f"Folder with {PHILLY_FILE}, plain or gzipped")
@click.option(
    "--nodes", type=click.IntRange(1, MOST_NODES), default=PHILLY_NODES, show_default=True, help="8 GPUs each."
)
@click.option("--first", type=click.IntRange(1), metavar="N", help="Only the first N jobs (default: all).")
@comparison_options("learned")
def philly(data: Path, nodes: int, first: int | None, **options: Any) -> int:
    """Run the jobs of the Philly trace: what are learned run times worth?

    RECOVERED is the part of the gain of shortest-job-first, which knows all run times, over fifo that a policy gets;
    compare it with both. All policies start whatever fits beside what comes first. Seeds other than 0 shuffle the jobs
    that arrive at the same instant.

    \b
    Policies:
      fifo                 in the order of arrival
      group-mean           shortest first, by the mean of the ended jobs of the same virtual cluster and size
      learned              shortest first, by Kaiwo's forecast
      shortest-job-first   shortest first, all run times known
    \b
    Examples:
      kaiwo simulate philly --data traces/philly --compare fifo,group-mean,learned,shortest-job-first
      kaiwo simulate philly --data traces/philly --first 5000 --html report.html
    """
    from kaiwo.simulate.job_run import JobRun, check_job_run, equal_nodes
    from kaiwo.simulate.trace_files import find_file
    from kaiwo.simulate.workloads.published_jobs import philly_jobs

    path, cluster = find_file(data, PHILLY_FILE), equal_nodes(nodes)
    found = tuple(sorted(philly_jobs(path), key=lambda job: (job.submitted_s, job.name)))[:first]
    runs = []
    for policy in _policies(options):
        check_job_run(policy, found, cluster, str(path))
        runs += [JobRun("philly", cluster, found, policy, seed) for seed in seed_numbers(options["seeds"])]
    return run_and_print("philly", runs, options)


@click.command(cls=LocalVerb)
@click.option(
    "--workload", metavar="FILE", default="", help="CSV of jobs, plain or published; or a folder with a journal."
)
@click.option("--generate", metavar="MIX", default="", help="Generate jobs instead: philly or openb.")
@click.option("--count", type=click.IntRange(1, MOST_JOBS), default=10_000, show_default=True, help="Jobs to generate.")
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=7, show_default=True, help="Days to generate.")
@click.option(
    "--load", type=click.FloatRange(0.01, 10), default=0.9, show_default=True, help="Part of all GPUs needed."
)
@click.option(
    "--cluster-file", "cluster", metavar="FILE", default="", help="Cluster file (YAML), or a node list of openb (CSV)."
)
@click.option("--nodes", type=click.IntRange(1, MOST_NODES), help="8 GPUs each (default: 8, or those of the journal).")
@click.option("--failures", type=click.FloatRange(0, 10_000), default=0.0, help="Failures per node and year.")
@click.option("--repair", type=click.IntRange(1), default=4 * HOUR_S, show_default=True, help="Seconds of a repair.")
@click.option("--partition", metavar="LIST", default="", help="Cut GPUs at run time: NODE=CPX+NPS4@SECONDS.")
@click.option("--restart-cost", type=click.IntRange(0), default=RESTART_S, show_default=True, help="Seconds.")
@click.option("--journal", metavar="DIR", default="", help="Keep a journal of all decisions, for one run.")
@comparison_options("fifo")
def run(workload: str, generate: str, cluster: str, nodes: int | None, **options: Any) -> int:
    """Run your own jobs, or generated ones, on your own cluster.

    A workload file has one job a line. Kaiwo's plain shape needs the columns submitted_s, runs_s and gpus, and may have
    name, pods, cpu_milli, memory_mib, gpu_models, queue, user, group and priority. Files of openb, Philly, Muri,
    Shockwave and Helios are read as they are. A folder is the home folder of a Kaiwo: the jobs of its journal run
    again, on the nodes and queues that it had. With --generate, seeds give other jobs; with --workload, seeds other
    than 0 shuffle the jobs that arrive at the same instant.

    A policy is one of ours, such as default, fifo or learned, or a policy file: NAME.yaml.

    \b
    Examples:
      kaiwo simulate run --workload jobs.csv --nodes 16
      kaiwo simulate run --workload jobs.csv --cluster-file cluster.yaml --compare fifo,learned --html report.html
      kaiwo simulate run --workload ~/.kaiwo --compare default,mine.yaml
      kaiwo simulate run --generate philly --count 100000 --days 30 --nodes 1000 --failures 2
    """
    from kaiwo.simulate.job_run import SHIPPED, JobRun, check_job_run

    if bool(workload) == bool(generate):
        raise ConfigError("give either --workload FILE or --generate MIX")
    policies, seeds = _policies(options), seed_numbers(options["seeds"])
    if options["journal"] and len(policies) * len(seeds) > 1:
        raise ConfigError("--journal keeps the decisions of one run; give one policy and one seed with it")
    given, machines, recorded = _given(workload, cluster, nodes)
    runs = []
    for policy in policies:
        rules = _policy_file(policy)
        for seed in seeds:
            found = given if workload else _generated(generate, seed, machines, options)
            check_job_run(SHIPPED if rules else policy, found, machines, workload or f"the mix {generate}")
            events = _node_events(machines, found, seed, options)
            runs.append(
                JobRun(
                    Path(workload).name if workload else generate,
                    machines,
                    found,
                    policy,
                    seed,
                    options["restart_cost"],
                    events,
                    journal=options["journal"],
                    recorded=recorded,
                    rules=rules,
                )
            )
    return run_and_print("run", runs, options)


@click.command(cls=LocalVerb)
@click.argument("folder", metavar="DIR")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def journal(folder: str, is_json: bool) -> int:
    """Decide every cycle of a journal again, and compare each plan byte by byte.

    DIR is the home folder of a Kaiwo, or one that `kaiwo simulate run --journal` wrote. Exits with 1 if a plan differs.
    A journal of another version of Kaiwo is refused. `kaiwo replay N` shows the plans of a single cycle.

    \b
    Examples:
      kaiwo simulate journal ~/.kaiwo
      kaiwo simulate run --workload jobs.csv --journal recorded && kaiwo simulate journal recorded
    """
    from kaiwo.simulate.journal_replay import replay_journal

    bar = ProgressBar(1)
    try:
        found = replay_journal(Path(folder), report=lambda part: bar.show(0, part))
    finally:
        bar.clear()
    if is_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        verdict = "all the same, byte for byte" if found.is_same else f"{found.cycles - found.same:,} DIFFER"
        click.echo(printing.bold(f"{found.cycles:,} cycles decided again: {verdict}"))
        click.echo(
            f"  cycles {found.first:,} to {found.last:,}: {found.starts:,} starts, {found.evictions:,} evictions"
        )
        for number in found.different:
            click.echo(f"  cycle {number} differs; see `kaiwo replay {number}`")
        for note in found.notes:
            click.echo(f"  {note}")
    return 0 if found.is_same else 1


def run_and_print(protocol: str, runs: "list[JobRun]", options: dict[str, Any]) -> int:
    from kaiwo.simulate.html_report import check_place, write_report
    from kaiwo.simulate.parallel_runs import run_tasks

    check_place(options["html"])
    bar = ProgressBar(len(runs))
    try:
        done, is_complete = run_tasks(runs, bar.show, options["jobs"] or 0)
    finally:
        bar.clear()
    found = [done[number] for number in sorted(done)]
    if options["is_json"]:
        click.echo(msgspec.json.encode({"protocol": protocol, "runs": [_flat(each) for each in found]}).decode())
    elif found:
        _print(found)
    if options["html"] and found:
        write_report(Path(options["html"]), f"Kaiwo simulation: {protocol}", found)
        printing.hint(f"the report is in {options['html']}")
    if not is_complete:
        printing.hint(f"interrupted: {len(found)} of {len(runs)} runs had finished")
    return 0 if is_complete else INTERRUPTED


def _flat(run: "JobRunFigures") -> dict[str, Any]:
    """One object for each run; without the series, which only the report shows."""
    found: dict[str, Any] = msgspec.to_builtins(run)
    figures = found.pop("figures")
    return found | {name: value for name, value in figures.items() if name not in ("series", "evictions_at_s")}


def _print(runs: "list[JobRunFigures]") -> None:
    from kaiwo.simulate.policy_comparison import compare

    rows = [
        [
            row.workload,
            row.policy,
            f"{row.restart_s} s",
            f"{row.average_jct_s / HOUR_S:.2f}",
            f"{row.mean_wait_s / HOUR_S:.2f}",
            f"{row.p99_wait_s / HOUR_S:.2f}",
            f"{row.makespan_s / DAY_S:.1f}",
            f"{row.utilisation_pct:.1f}",
            f"{row.fragmentation_pct:.1f}",
            f"{row.fairness:.3f}",
            f"{row.evictions:.0f}",
            "-" if row.recovered_pct is None else f"{row.recovered_pct:.1f}",
        ]
        for row in compare(runs)
    ]
    for line in lay_out(text_columns(TITLES, TITLES), rows, printing.terminal_width()):
        click.echo(line)


def _policies(options: dict[str, Any]) -> list[str]:
    return names_in(options["compare"], "--compare") if options["compare"] else [options["policy"]]


def _traces_in(folder: Path) -> list[str]:
    names = sorted({path.name.partition(".csv")[0] for path in folder.glob("trace*.csv*")}) if folder.is_dir() else []
    if not names:
        raise ConfigError(f"{folder} has no trace*.csv; --data must name the folder with the files of the trace")
    return names


def _given(
    workload: str, cluster: str, nodes: int | None
) -> "tuple[tuple[SimulatedJob, ...], tuple[Node, ...], tuple[Event, ...]]":
    """The jobs of a file or a journal, the cluster, and what else the journal knows about it."""
    from kaiwo.simulate.workloads.journal_jobs import is_journal, journal_jobs
    from kaiwo.simulate.workloads.read_jobs import read_jobs

    path = Path(workload)
    if not workload or not path.is_dir():
        return tuple(read_jobs(path)[1]) if workload else (), _read_cluster(cluster, nodes), ()
    if not is_journal(path):
        raise ConfigError(f"the folder {workload} has no journal; name the home folder of a Kaiwo, or a CSV file")
    found = journal_jobs(path)
    for note in found.notes:
        printing.hint(note)
    if found.unknown:
        printing.hint(f"{count(found.unknown, 'workload')} of the journal never ran, and are left out")
    if found.cut_short:
        printing.hint(
            f"{count(found.cut_short, 'job')} had not ended in the journal: they run as long as it saw them run"
        )
    return found.jobs, _read_cluster(cluster, nodes) if cluster or nodes else found.nodes, found.setting


def _policy_file(policy: str) -> "Policy | None":
    """The policy of a file; None: the name is that of one of ours."""
    from kaiwo.manifests.policy_file import read_policy

    if not policy.endswith((".yaml", ".yml")):
        return None
    try:
        return read_policy(Path(policy).read_bytes(), policy)
    except OSError as error:
        raise ConfigError(f"the policy {policy} cannot be read: {error.strerror}") from None


def _read_cluster(cluster: str, nodes: int | None) -> "tuple[Node, ...]":
    from kaiwo.clusters.local.cluster_file import read_cluster_file
    from kaiwo.simulate.job_run import equal_nodes
    from kaiwo.simulate.openb_trace import read_nodes

    if not cluster:
        return equal_nodes(nodes or DEFAULT_NODES)
    path = Path(cluster)
    if not path.is_file():
        raise ConfigError(f"there is no cluster file {cluster}")
    if ".csv" in path.suffixes:
        return tuple(read_nodes(path))
    try:
        return read_cluster_file(path.read_bytes(), cluster)
    except OSError as error:
        raise ConfigError(f"{cluster} cannot be read: {error.strerror}") from None


def _generated(mix: str, seed: int, nodes: "tuple[Node, ...]", options: dict[str, Any]) -> "tuple[SimulatedJob, ...]":
    from kaiwo.simulate.workloads.generated_jobs import JobsToGenerate, generated_jobs

    gpus = sum(len(node.gpus) for node in nodes)
    return tuple(generated_jobs(JobsToGenerate(mix, options["count"], options["days"], seed, gpus, options["load"])))


def _node_events(
    nodes: "tuple[Node, ...]", jobs: "tuple[SimulatedJob, ...]", seed: int, options: dict[str, Any]
) -> tuple[Any, ...]:
    from kaiwo.simulate.engine.node_events import random_failures, read_partition_changes

    days = max(job.submitted_s for job in jobs) // DAY_S + 1
    failures = random_failures(nodes, days, options["failures"], options["repair"], seed)
    changes = read_partition_changes(
        names_in(options["partition"], "--partition") if options["partition"] else (), nodes
    )
    return tuple(sorted((*failures, *changes), key=lambda event: (event.at_s, event.node, event.kind)))
