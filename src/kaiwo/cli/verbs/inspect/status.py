"""`kaiwo status`: show the cluster on one screen."""

import contextlib
from collections.abc import Callable

import click

from kaiwo.api.views.cluster import ClusterView, CycleView, StatusView, Usage
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import FINISHED_STATES, UNFINISHED_STATES
from kaiwo.cli.output.table_layout import cut
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, rounded_memory, short_duration, thousandths

BAR, MIN_BAR = 24, 6
NAMES = 12  # the width of the left column


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
@click.option("-w", "--watch", is_flag=True, help="Keep it up to date; Ctrl-C to stop.")
def status(output: str, watch: bool) -> None:
    """Show the cluster on one screen: how full it is, what is running and what is waiting.

    \b
    Examples:
      kaiwo status
      kaiwo status -w          live
      kaiwo status -o json     for programs
    """
    server = connect_server()
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(server, output)
        return
    body = server.get("/status")
    view = server.decode(body, StatusView)
    if output != "table":
        printing.print_body(body, output)
    else:
        click.echo("\n".join(status_lines(view)))


def status_lines(view: StatusView) -> list[str]:
    """The screen as lines, with the next step last."""
    rows = [
        ("cluster", _cluster(view.cluster, view.version)),
        *_bars(view),
        ("workloads", _workloads(view.workloads)),
        ("queues", str(view.queues)),
        ("last cycle", _cycle(view.last_cycle, view.cluster.now_s)),
    ]
    text = [printing.wrap(value, f"{name:<{NAMES}}", " " * NAMES) for name, value in rows]
    if waiting := view.workloads.get("waiting", 0):
        verb = "waits" if waiting == 1 else "wait"
        hint = f"{count(waiting, 'workload')} {verb}; see why: kaiwo get workloads --state waiting"
        text += ["", printing.wrap(hint)]
    elif not sum(view.workloads.values()):
        text += ["", printing.wrap("no workloads yet; try: kaiwo submit --gpus 1 -- sleep 60")]
    drawn, width = "\n".join(text).split("\n"), printing.terminal_width()
    return [cut(line, width) for line in drawn] if width else drawn


def _cluster(cluster: ClusterView, version: str) -> str:
    nodes = "virtual nodes" if cluster.is_virtual else "real nodes"
    speed = f", time runs {cluster.speed:g} times as fast" if cluster.speed != 1 else ""
    name = f"{cluster.name}, " if cluster.name != cluster.kind else ""
    return f"{name}{cluster.kind}, {nodes}{speed}, kaiwo {version}"


def _bars(view: StatusView) -> list[tuple[str, str]]:
    """Bars that show how full the cluster is. A narrow terminal shows the numbers without the bars."""
    rows = [
        ("nodes", view.nodes, _usage_text(view.nodes, str)),
        ("GPUs", view.gpus, _usage_text(view.gpus, str)),
        ("GPU shares", view.gpu_milli, _usage_text(view.gpu_milli, thousandths)),
        ("CPUs", view.cpu_milli, _usage_text(view.cpu_milli, thousandths)),
        ("memory", view.memory_mib, _usage_text(view.memory_mib, rounded_memory)),
    ]
    width = printing.terminal_width()
    room = width - NAMES - len("[] ") - max(len(text) for _, _, text in rows) if width else BAR
    size = min(room, BAR) if room >= MIN_BAR else 0
    bars = {name: _bar(usage, size) + text if usage.total else "none" for name, usage, text in rows}
    if view.nodes_out:
        bars["nodes"] += f", {view.nodes_out} cordoned or not ready"
    return list(bars.items())


def _bar(usage: Usage, size: int) -> str:
    if not size:
        return ""
    filled = max(min(size, usage.used * size // usage.total), 1 if usage.used else 0)
    return f"[{'#' * filled}{'.' * (size - filled)}] "


def _usage_text(usage: Usage, write: Callable[[int], str]) -> str:
    percent = usage.used * 100 // usage.total if usage.total else 0
    return f"{percent:>3} %  {write(usage.used)} of {write(usage.total)} in use"


def _workloads(by_state: dict[str, int]) -> str:
    known = [*UNFINISHED_STATES, *FINISHED_STATES]
    states = sorted((s for s, n in by_state.items() if n), key=lambda s: known.index(s) if s in known else len(known))
    return ", ".join(f"{by_state[state]} {state}" for state in states) or "none"


def _cycle(cycle: CycleView | None, now_s: int) -> str:
    if cycle is None:
        return "none yet"
    notes = f"; {'; '.join(cycle.notes)}" if cycle.notes else ""
    return (
        f"{cycle.number}, {short_duration(now_s - cycle.at_s)} ago: {cycle.starts} started, {cycle.evictions} evicted, "
        f"in {cycle.took_ms:.1f} ms{notes}"
    )


def _watch(server: ApiClient, output: str) -> None:
    from kaiwo.cli.lists.watch_list import ListFrame, ListWatcher, frames_without_problem, reconnector, redraw

    def lines(frame: ListFrame) -> list[str]:
        return status_lines(server.convert(frame.items["cluster"], StatusView))

    watcher = ListWatcher(reconnector(server), "status", {})
    if printing.is_terminal() and output == "table":
        redraw(watcher, lines, lambda _: "the whole cluster")
    for frame in frames_without_problem(watcher):
        if output == "table":
            click.echo("\n".join([*lines(frame), ""]))
        else:
            printing.print_document(frame.items["cluster"], output)
