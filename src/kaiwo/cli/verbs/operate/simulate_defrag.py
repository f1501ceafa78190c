"""`kaiwo simulate defrag`: what defragmentation gains on a cluster that best-fit has filled."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import lay_out, text_columns
from kaiwo.cli.verb_base import LocalVerb
from kaiwo.cli.verbs.operate.simulation_options import (
    INTERRUPTED,
    ProgressBar,
    check_variant,
    data_option,
    seed_numbers,
)

if TYPE_CHECKING:
    from kaiwo.simulate.defrag_run import DefragFigures

TITLES = ("SEED", "PODS", "BEFORE", "AFTER", "MOVES", "MOVED %", "STARTED", "PLAN S")


@click.command(cls=LocalVerb)
@data_option("openb", "Folder with the openb trace; file names as published")
@click.option("--variant", metavar="NAME", default="default", show_default=True, help="Which pod list to run.")
@click.option("--seeds", metavar="LIST", default="42-46", show_default=True, help="Arrival orders: 42-46 or 42,45.")
@click.option(
    "--max-moved",
    type=click.FloatRange(0, 100),
    default=8.0,
    show_default=True,
    help="Make at most this many moves, in % of the pods.",
)
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs at the same time (default: one per core).")
@click.option("--html", metavar="FILE", default="", help="Also write a report with plots, as one HTML file.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def defrag(data: Path, variant: str, seeds: str, max_moved: float, jobs: int | None, html: str, is_json: bool) -> int:
    """Fill the openb cluster with best-fit, then move pods so that those that were dropped fit.

    Pods arrive in a published order until they have asked for all GPUs. Dropped pods are tried once more. Then Kaiwo
    plans moves of running pods. Every step of the plan is carried out on the cluster state. The curve shows the part of
    all GPUs that is allocated after so many moves.

    \b
    Examples:
      kaiwo simulate defrag --data traces/openb
      kaiwo simulate defrag --data traces/openb --seeds 42 --max-moved 4 --json

    Ctrl-C prints the runs that have finished.
    """
    from kaiwo.simulate.html_report import check_place, write_page
    from kaiwo.simulate.parallel_seeds import run_defrag_seeds
    from kaiwo.simulate.trace_reports import defrag_html

    numbers = seed_numbers(seeds)
    check_variant(data, variant)
    check_place(html)
    bar = ProgressBar(len(numbers))
    try:
        runs, is_complete = run_defrag_seeds(data, variant, max_moved, numbers, bar.show, jobs or 0)
    finally:
        bar.clear()
    if is_json:
        click.echo(msgspec.json.encode({"variant": variant, "max_moved_percent": max_moved, "runs": runs}).decode())
    else:
        _print(variant, runs)
    if html and runs:
        write_page(Path(html), defrag_html(variant, runs))
        printing.hint(f"the report is in {html}")
    if not is_complete:
        printing.hint(f"interrupted: {len(runs)} of {len(numbers)} runs had finished")
    return 0 if is_complete else INTERRUPTED


def _print(variant: str, runs: "list[DefragFigures]") -> None:
    click.echo(printing.bold(f"openb {variant}, filled with best-fit, then defragmented"))
    for line in lay_out(text_columns(TITLES, TITLES), [_cells(run) for run in runs], printing.terminal_width()):
        click.echo(line)
    for run in runs:
        points = "  ".join(f"{point.moved_percent:.1f} % {point.allocated:.2f}" for point in run.curve)
        click.echo(printing.wrap(f"Seed {run.seed}, moved and allocated: {points}"))


def _cells(run: "DefragFigures") -> list[str]:
    return [
        str(run.seed),
        f"{run.pods:,}",
        f"{run.allocated_before:.2f}",
        f"{run.allocated:.2f}",
        str(run.moves),
        f"{run.moved_percent:.2f}",
        str(run.started),
        f"{run.plan_s:.1f}",
    ]
