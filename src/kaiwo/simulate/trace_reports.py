"""The HTML reports of the openb protocols: what is allocated by arrived load, and by moved pods.

In:    the figures of the runs.   Out: one page with a table and plots, which needs no other file.
"""

import statistics
from collections.abc import Mapping, Sequence
from html import escape

from kaiwo.simulate.defrag_run import DefragFigures
from kaiwo.simulate.html_report import page_html, table_html
from kaiwo.simulate.openb_run import LoadPoint, OpenbFigures
from kaiwo.simulate.svg_plots import PlotLine, line_plot

OPENB_TITLES = (
    "Policy", "Seeds", "At 100 % (%)", "At 130 % (%)", "Fragmented at 60 % (%)", "At 80 %", "At 90 %", "P50 (ms)",
    "P99 (ms)",
)  # fmt: skip
DEFRAG_TITLES = ("Seed", "Pods", "Before (%)", "After (%)", "Moves", "Moved (%)", "Started", "Planning (CPU s)")


def openb_html(variant: str, runs: Mapping[str, Sequence[OpenbFigures]]) -> str:
    """By policy; the plots show the mean over the seeds that have got there."""
    rows = [[escape(policy), str(len(found)), *_means(found)] for policy, found in runs.items()]
    curves = {policy: _mean_curve([run.curve for run in found]) for policy, found in runs.items()}
    used = [PlotLine(name, [(at.arrived, at.allocated) for at in curve]) for name, curve in curves.items()]
    missing = [PlotLine(name, [(at.arrived, at.arrived - at.allocated) for at in curve if at.arrived <= 100])
               for name, curve in curves.items()]  # fmt: skip
    wasted = [PlotLine(name, [(at.arrived, at.fragmentation_ratio) for at in curve]) for name, curve in curves.items()]
    parts = [
        table_html(OPENB_TITLES, rows),
        "<h2>Utilisation: GPUs allocated</h2>", line_plot(used, "% of all GPUs asked for", "% of GPUs", 100.0),
        "<h2>What was asked for and got no place</h2>", line_plot(missing, "% of all GPUs asked for", "% of GPUs"),
        "<h2>Fragmentation: free GPU amounts that typical pods cannot use</h2>",
        line_plot(wasted, "% of all GPUs asked for", "% of what is free", 100.0),
    ]  # fmt: skip
    note = "Pods arrive one by one and none leaves, so nothing waits and nothing is evicted. Means over the seeds."
    return page_html(f"Kaiwo simulation: openb {variant}", note, parts)


def defrag_html(variant: str, runs: Sequence[DefragFigures]) -> str:
    rows = [
        [str(run.seed), f"{run.pods:,}", f"{run.allocated_before:.2f}", f"{run.allocated:.2f}", f"{run.moves:,}",
         f"{run.moved_percent:.2f}", f"{run.started:,}", f"{run.plan_cpu_s:.1f}"]
        for run in runs
    ]  # fmt: skip
    lines = [PlotLine(f"seed {run.seed}", [(at.moved_percent, at.allocated) for at in run.curve]) for run in runs]
    low = min((point.allocated for run in runs for point in run.curve), default=0.0)
    gains = [PlotLine(line.name, [(x, y - line.points[0][1]) for x, y in line.points]) for line in lines]
    parts = [
        table_html(DEFRAG_TITLES, rows),
        "<h2>Utilisation: GPUs allocated</h2>", line_plot(lines, "% of pods moved", "% of GPUs", 100.0),
        f"<h2>Gain over {low:.1f} % or what each began with</h2>",
        line_plot(gains, "% of pods moved", "points"),
    ]  # fmt: skip
    note = "Best-fit filled the cluster; then running pods move so that dropped ones fit. Each move is a pod."
    return page_html(f"Kaiwo simulation: defragmentation of openb {variant}", note, parts)


def _means(runs: Sequence[OpenbFigures]) -> list[str]:
    columns: list[list[float | None]] = [
        [run.allocated_at_100 for run in runs],
        [run.allocated_at_130 for run in runs],
        *([run.fragmentation_ratio[load] for run in runs] for load in ("60", "80", "90")),
        [run.p50_ms for run in runs],
        [run.p99_ms for run in runs],
    ]
    known = [[value for value in column if value is not None] for column in columns]
    return [f"{statistics.fmean(column):.2f}" if column else "-" for column in known]


def _mean_curve(curves: Sequence[Sequence[LoadPoint]]) -> list[LoadPoint]:
    together: dict[int, list[LoadPoint]] = {}
    for curve in curves:
        for point in curve:
            together.setdefault(int(point.arrived), []).append(point)
    return [
        LoadPoint(
            statistics.fmean(each.arrived for each in points),
            statistics.fmean(each.allocated for each in points),
            statistics.fmean(each.fragmentation_ratio for each in points),
        )
        for _, points in sorted(together.items())
    ]
