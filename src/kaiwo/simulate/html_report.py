"""Write the report of a comparison as one HTML file: a table and plots that need no other file and no script."""

import os
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

import kaiwo
from kaiwo.model.errors import ConfigError
from kaiwo.simulate.engine.run_figures import SeriesPoint
from kaiwo.simulate.job_run import JobRunFigures
from kaiwo.simulate.policy_comparison import PolicyRow, compare
from kaiwo.simulate.svg_plots import PlotBars, PlotLine, bar_plot, line_plot

HOUR_S, DAY_S = 3600, 86_400
MOST_HOURS = 72  # a longer run is shown in days
EVICTION_BINS = 40
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; background: #fff; margin: 2rem auto; max-width: 62rem;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 0.3rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.25rem 0.6rem; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.plot { width: 100%; max-width: 46rem; font-size: 11px; } .plot text { fill: #333; }
.axis { stroke: #333; } .grid { stroke: #e4e4e4; } .legend span { margin-right: 1.2rem; white-space: nowrap; }
.note { color: #555; }
"""
NOTE = "Means over the seeds of each policy; the plots over time show the first seed."
COLUMNS = (
    "Workload", "Policy", "Mean JCT (h)", "Mean wait (h)", "P99 wait (h)", "Makespan (d)", "Used (%)", "Fragmented (%)",
    "Fairness", "Evictions", "Lost GPU h",
)  # fmt: skip


def write_report(path: Path, title: str, runs: Sequence[JobRunFigures]) -> None:
    write_page(path, report_html(title, runs))


def check_place(path: str) -> None:
    """Before hours of simulation."""
    if path and not Path(path).parent.is_dir():
        raise ConfigError(f"the report {path} cannot be written: its folder does not exist")


def write_page(path: Path, html: str) -> None:
    """The file appears whole or not at all."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent or ".", prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(html)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"the report {path} cannot be written: {error.strerror or error}") from None


def report_html(title: str, runs: Sequence[JobRunFigures]) -> str:
    parts = [table_html(COLUMNS, [_cells(row) for row in compare(runs)])]
    for workload in dict.fromkeys(run.workload for run in runs):
        parts.append(f"<h1>{escape(workload)}</h1>")
        parts += _plots([run for run in runs if run.workload == workload])
    return page_html(title, NOTE, parts)


def page_html(title: str, note: str, parts: Sequence[str]) -> str:
    head = (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p class='note'>Kaiwo {escape(kaiwo.__version__)}, simulated. {escape(note)}</p>"
    )
    return f"{head}{''.join(parts)}</body></html>\n"


def table_html(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The cells are HTML."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: PolicyRow) -> list[str]:
    return [
        escape(row.workload),
        escape(policy_title(row.policy, row.restart_s)),
        f"{row.average_jct_s / HOUR_S:,.2f}",
        f"{row.mean_wait_s / HOUR_S:,.2f}",
        f"{row.p99_wait_s / HOUR_S:,.2f}",
        f"{row.makespan_s / DAY_S:,.1f}",
        f"{row.utilisation_pct:.1f}",
        f"{row.fragmentation_pct:.1f}",
        f"{row.fairness:.3f}",
        f"{row.evictions:,.0f}",
        f"{row.lost_gpu_h:,.1f}",
    ]


def policy_title(policy: str, restart_s: int) -> str:
    return f"{policy}, restart {restart_s} s" if restart_s else policy


def _plots(runs: Sequence[JobRunFigures]) -> list[str]:
    firsts = {(run.policy, run.restart_s): run for run in reversed(runs)}
    shown = [(policy_title(*key), run.figures) for key, run in reversed(firsts.items())]
    longest_s = max((found.makespan_s for _, found in shown), default=0)
    unit, unit_s = ("days", DAY_S) if longest_s > MOST_HOURS * HOUR_S else ("hours", HOUR_S)

    def lines(value: Callable[[SeriesPoint], float]) -> list[PlotLine]:
        return [PlotLine(name, _steps([(at.at_s / unit_s, value(at)) for at in found.series])) for name, found in shown]

    used, waiting = lines(lambda at: at.used_pct), lines(lambda at: at.waiting)
    fragmented = lines(lambda at: at.fragmented_pct)
    sizes = list(dict.fromkeys(each.gpus for _, found in shown for each in found.waits_by_size))
    waits = [
        PlotBars(name, _of_sizes({e.gpus: e.mean_wait_s for e in found.waits_by_size}, sizes)) for name, found in shown
    ]
    groups = sorted({group for _, found in shown for group in found.groups})
    slow = [PlotBars(name, [found.groups.get(group, 0.0) for group in groups]) for name, found in shown]
    evictions = [PlotLine(name, _per_bin(found.evictions_at_s, found.makespan_s, unit_s)) for name, found in shown]
    return [
        "<h2>Utilisation: GPUs allocated</h2>", line_plot(used, unit, "% of GPUs", 100.0),
        "<h2>Waiting jobs</h2>", line_plot(waiting, unit, "jobs"),
        "<h2>Fragmentation: free GPU amounts that typical jobs cannot use</h2>",
        line_plot(fragmented, unit, "% of what is free", 100.0),
        "<h2>Mean wait by size</h2>", bar_plot(sizes, waits, "GPUs", "hours"),
        "<h2>Fairness: mean slowdown by group</h2>",
        "<p class='note'>From submission to end, over the time that the job ran; 1 is no delay.</p>",
        bar_plot(groups, slow, "group", "slowdown"),
        "<h2>Evictions</h2>", line_plot(evictions, unit, "jobs stopped")
        if any(found.evictions_at_s for _, found in shown) else "<p>No job was stopped for another one.</p>",
    ]  # fmt: skip


def _of_sizes(waits_s: dict[str, float], sizes: Sequence[str]) -> list[float]:
    return [waits_s.get(size, 0.0) / HOUR_S for size in sizes]


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """What a sample shows holds until the next one."""
    found = list(points[:1])
    for (_, before), (x, now) in pairwise(points):
        found += [(x, before), (x, now)]
    return found


def _per_bin(at_s: Sequence[int], makespan_s: int, unit_s: int) -> list[tuple[float, float]]:
    width = max(1, makespan_s // EVICTION_BINS)
    counts = [0] * (EVICTION_BINS + 1)
    for each in at_s:
        counts[min(EVICTION_BINS, each // width)] += 1
    return [(number * width / unit_s, float(count)) for number, count in enumerate(counts)]
