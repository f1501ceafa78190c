"""`kaiwo simulate`: run the shipped scheduler on a recorded trace, on a virtual clock. It needs no running Kaiwo."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import lay_out, text_columns
from kaiwo.cli.verb_base import LocalVerb
from kaiwo.cli.verbs.operate.simulate_defrag import defrag
from kaiwo.cli.verbs.operate.simulate_jobs import journal, muri, philly, run
from kaiwo.cli.verbs.operate.simulation_options import (
    INTERRUPTED,
    ProgressBar,
    check_variant,
    data_option,
    names_in,
    seed_numbers,
)
from kaiwo.model.errors import ConfigError

if TYPE_CHECKING:
    from kaiwo.simulate.openb_run import OpenbFigures

TITLES = ("SEED", "AT 100 %", "AT 130 %", "FRAG 60 %", "FRAG 80 %", "FRAG 90 %", "P50 MS", "P99 MS", "RSS MB")


@click.group()
def simulate() -> None:
    """Run the shipped scheduler on a trace or on generated jobs, on a virtual clock.

    Every decision is made by the code that schedules real clusters. Nothing sleeps, and nothing real is touched.

    \b
    Examples:
      kaiwo simulate openb --data traces/openb
      kaiwo simulate openb --data traces/openb --variant gpuspec33 --policy fgd --seeds 42-46
      kaiwo simulate muri --data traces/muri --compare least-attained-service,shortest-remaining-service
      kaiwo simulate run --workload jobs.csv --cluster-file cluster.yaml --html report.html
    """


for _command in (defrag, muri, philly, run, journal):
    simulate.add_command(_command)


@simulate.command(cls=LocalVerb)
@data_option("openb", "Folder with the trace; file names as published")
@click.option("--variant", metavar="NAME", default="default", show_default=True, help="Which pod list to run.")
@click.option("--seeds", metavar="LIST", default="42-46", show_default=True, help="Arrival orders: 42-46 or 42,45.")
@click.option("--policy", metavar="NAME", default="", help="Placement policy (default: Kaiwo's own).")
@click.option("--compare", metavar="LIST", default="", help="Several policies side by side: NAME,NAME.")
@click.option(
    "--mix",
    type=click.Choice(["learned", "known"]),
    default="learned",
    show_default=True,
    help="Whether Kaiwo's policy learns the mix of requests as they arrive, or knows it in advance.",
)
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs at the same time (default: one per core).")
@click.option("--html", metavar="FILE", default="", help="Also write a report with plots, as one HTML file.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def openb(data: Path, variant: str, seeds: str, jobs: int | None, is_json: bool, **options: str) -> int:
    """Place the pods of the openb trace one by one, and measure how much of the GPUs they get.

    The protocol is that of "Beware of Fragmentation" (USENIX ATC'23). Pods arrive in a published order until they have
    asked for 130 % of all GPUs. None leaves. A pod that fits nowhere is dropped, and counts as arrived. AT 100 % is the
    part of all GPUs that is allocated when as much as the cluster has was asked for. FRAG is the part of the free GPU
    amounts that typical pods could not use.

    \b
    DIR must have these files, plain or gzipped (.gz):
      openb_node_list_gpu_node.csv     sn,cpu_milli,memory_mib,gpu,model
      openb_pod_list_VARIANT.csv       name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]
      paper_orders.npz                 VARIANT/SEED and rank/VARIANT/SEED
    \b
    Policies:
      fragmentation-aware (default), first-fit, worst-fit, round-robin, load-balanced
      fgd, best-fit, gpu-packing, gpu-clustering, dot-product, random    as published
      seed                                                               the nodes in turn
    \b
    Examples:
      kaiwo simulate openb --variant gpuspec33 --seeds 42-46 --json
      kaiwo simulate openb --data traces/openb --policy fgd --seeds 42 --json
      kaiwo simulate openb --data traces/openb --compare fragmentation-aware,fgd,best-fit --html report.html

    Ctrl-C prints the runs that have finished.
    """
    from kaiwo.simulate.html_report import check_place, write_page
    from kaiwo.simulate.parallel_seeds import OpenbOrder, compare_seeds
    from kaiwo.simulate.placement_policies import DEFAULT_STRATEGY, POLICY_NAMES
    from kaiwo.simulate.trace_reports import openb_html

    names = names_in(options["compare"], "--compare") if options["compare"] else [options["policy"] or DEFAULT_STRATEGY]
    numbers, html = seed_numbers(seeds), options["html"]
    for name in names:
        if name not in POLICY_NAMES:
            raise ConfigError(f"there is no placement policy '{name}'; choose one of: {', '.join(POLICY_NAMES)}")
    check_variant(data, variant)
    check_place(html)
    bar = ProgressBar(len(numbers) * len(names))
    orders = [OpenbOrder(data, variant, name, options["mix"]) for name in names]
    try:
        found, is_complete = compare_seeds(orders, numbers, bar.show, jobs or 0)
    finally:
        bar.clear()
    if is_json:
        click.echo(_json(variant, found, is_comparison=bool(options["compare"])))
    else:
        for name, runs in found.items():
            _print(variant, name, runs)
    if html and any(found.values()):
        write_page(Path(html), openb_html(variant, {name: runs for name, runs in found.items() if runs}))
        printing.hint(f"the report is in {html}")
    if not is_complete:
        finished = sum(map(len, found.values()))
        printing.hint(f"interrupted: {finished} of {len(numbers) * len(names)} runs had finished")
    return 0 if is_complete else INTERRUPTED


def _json(variant: str, found: "dict[str, list[OpenbFigures]]", is_comparison: bool) -> str:
    """One object; with several policies, one for each in `policies`. The curves are for the report only."""
    shown: list[dict[str, Any]] = [
        {"variant": variant, "policy": name, "runs": [_without_curve(run) for run in runs]}
        for name, runs in found.items()
    ]
    return msgspec.json.encode({"variant": variant, "policies": shown} if is_comparison else shown[0]).decode()


def _without_curve(run: "OpenbFigures") -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(run)
    found.pop("curve")
    return found


def _print(variant: str, policy: str, runs: "list[OpenbFigures]") -> None:
    click.echo(printing.bold(f"openb {variant}, {policy}"))
    rows = [_cells(str(run.seed), [run]) for run in runs]
    if len(runs) > 1:
        rows.append(_cells("mean", runs))
    for line in lay_out(text_columns(TITLES, TITLES), rows, printing.terminal_width()):
        click.echo(line)


def _cells(title: str, runs: "list[OpenbFigures]") -> list[str]:
    return [
        title,
        _mean([run.allocated_at_100 for run in runs]),
        _mean([run.allocated_at_130 for run in runs]),
        *(_mean([run.fragmentation_ratio[load] for run in runs]) for load in ("60", "80", "90")),
        _mean([run.p50_ms for run in runs]),
        _mean([run.p99_ms for run in runs]),
        f"{max(run.peak_rss_mb for run in runs):.0f}",
    ]


def _mean(values: list[float | None]) -> str:
    """A dash where a run has no such figure."""
    there = [value for value in values if value is not None]
    return f"{sum(there) / len(there):.2f}" if len(there) == len(values) else "-"
