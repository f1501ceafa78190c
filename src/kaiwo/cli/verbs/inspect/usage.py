"""`kaiwo usage`: what GPUs, nodes, queues, users, the cluster and Kaiwo itself did over time, with small charts."""

from collections.abc import Callable, Sequence

import click
import msgspec

from kaiwo.api.views.series import MeasuresView, MeasureView, OneSeriesView, SeriesView, SubjectsView
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import parse_duration
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import duration, rounded_memory, thousandths
from kaiwo.model.errors import NotFoundError

KINDS = ("cluster", "node", "gpu", "queue", "user", "scheduler", "process")
FIRST_MEASURE = {
    "node": "gpu_used_milli",
    "gpu": "allocated_milli",
    "queue": "gpu_used_milli",
    "user": "gpu_used_milli",
}
COLUMNS = ("NAME", "MEASURE", "NOW", "MEAN", "MOST", "OVER TIME")
CHART, BARS, UNKNOWN = 30, "▁▂▃▄▅▆▇█", "·"  # points of a chart
SHOWN = 20  # subjects without a name
AT_ONCE = 20  # names in one request
WRITERS: dict[str, Callable[[int], str]] = {
    "_permille": lambda value: f"{value / 10:.1f} %",
    "_percent": lambda value: f"{value} %",
    "_milli": thousandths,
    "_mib": rounded_memory,
    "_us": lambda value: f"{value / 1000:.1f} ms",
    "_w": lambda value: f"{value} W",
    "_c": lambda value: f"{value} °C",
}


@click.command(cls=Verb)
@click.argument("kind", type=click.Choice(KINDS), default="cluster")
@click.argument("names", nargs=-1)
@click.option("-m", "--measure", "measures", multiple=True, metavar="NAME", help="Only this measure. Repeatable.")
@click.option("--since", default="24h", metavar="TIME", help="How far back (default: 24h; at most 30d).")
@click.option(
    "--points", metavar="N", type=click.IntRange(1, 5000), default=CHART, help="How many values to show or print."
)
@printing.output_option("table", "json", "yaml")
def usage(kind: str, names: Sequence[str], measures: Sequence[str], since: str, points: int, output: str) -> None:
    """Show what the cluster, nodes, GPUs, queues, users, the scheduler or Kaiwo's process did over time.

    With names, every measure of these subjects is shown; without, the first 20 subjects with their most important
    measure. A dot in the chart means that there is no data. Two hours are kept in steps of ten seconds, seven days by
    the minute, and thirty days by the hour.

    \b
    Examples:
      kaiwo usage
      kaiwo usage queue
      kaiwo usage gpu node-1/gpu-0 --since 2h
      kaiwo usage node node-1 -m gpu_used_milli --since 7d -o json
    """
    server = connect_server()
    known = [each for each in server.decode(server.get("/series/measures"), MeasuresView).measures if each.kind == kind]
    last_s = parse_duration(since)
    subjects = list(names) or server.decode(server.get("/series/subjects", {"kind": kind}), SubjectsView).names
    if not subjects:
        raise NotFoundError(f"nothing is recorded of a {kind} yet; samples are taken every ten seconds")
    shown = subjects if names else subjects[:SHOWN]
    views = []
    for measure in _wanted(kind, known, measures, bool(names)):
        for at in range(0, len(shown), AT_ONCE):
            query: dict[str, str | int | Sequence[str]] = {
                "kind": kind,
                "measure": measure,
                "points": points,
                "last": last_s,
                "name": shown[at : at + AT_ONCE],
            }
            views.append(server.decode(server.get("/series", query), SeriesView))
    if output != "table":
        printing.print_data([msgspec.to_builtins(view) for view in views], output)
        return
    rows = [_row(view.measure, each) for view in views for each in view.series]
    rows.sort(key=lambda row: shown.index(row[0]))
    printing.print_table(text_columns(COLUMNS, numbers=COLUMNS[2:5]), rows)
    printing.hint(f"Each bar is the mean of {duration(views[0].step_s)}; the tallest one is the maximum of its row.")
    if len(shown) < len(subjects):
        printing.hint(f"{len(subjects) - len(shown)} more are recorded; name those that you want to see.")


def _wanted(kind: str, known: Sequence[MeasureView], measures: Sequence[str], is_named: bool) -> list[str]:
    names = [each.name for each in known]
    for measure in measures:
        if measure not in names:
            raise NotFoundError(f"there is no measure '{measure}' of a {kind}; there are: {', '.join(names)}")
    if measures:
        return list(measures)
    return names if is_named or kind not in FIRST_MEASURE else [FIRST_MEASURE[kind]]


def _row(measure: str, series: OneSeriesView) -> list[str]:
    write, title = _unit_of(measure)
    known = [value for value in series.values if value is not None]
    if not known:
        return [series.name, title, "-", "-", "-", UNKNOWN * len(series.values)]
    mean = (2 * sum(known) + len(known)) // (2 * len(known))
    return [series.name, title, write(known[-1]), write(mean), write(max(known)), _chart(series.values)]


def _chart(values: Sequence[int | None]) -> str:
    most = max((value for value in values if value is not None), default=0)
    return "".join(
        UNKNOWN if value is None else BARS[0 if not most else value * (len(BARS) - 1) // most] for value in values
    )


def _unit_of(measure: str) -> tuple[Callable[[int], str], str]:
    """How to write a value, and what the measure is called without its unit."""
    for suffix, write in WRITERS.items():
        if measure.endswith(suffix):
            return write, measure.removesuffix(suffix).replace("_", " ")
    return str, measure.replace("_", " ")
