"""`kaiwo defrag`: plan moves of running work, run a plan, show how far it is, and abort it."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from kaiwo.api.views.defragmentation import DefragmentationView, MovePlanView, MoveStepView, MoveView
from kaiwo.cli.client.api_client import ApiClient, workload_path
from kaiwo.cli.name_completion import complete_workload, first_waiting
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name, short_name
from kaiwo.cli.output.kind_words import kind_words
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import VerbGroup, add_options, connect_server, reason_option, reason_query
from kaiwo.model.amounts import count, duration, thousandths
from kaiwo.model.errors import ConfigError, NotFoundError
from kaiwo.model.reservation import clock_words

PLAN_TIMEOUT_S = 160.0  # a plan for a thousand nodes takes up to a minute
SHOWN_STEPS, SHOWN_KEPT, SHOWN_KINDS = 20, 10, 5
MOVES = ("STEP", "WORKLOAD", "POD", "FROM", "TO", "GPUS", "LOST GPU-H", "FOR")
PROGRESS = ("STEP", "WORKLOAD", "POD", "FROM", "TO", "STATE", "FOR")
KEPT = ("WORKLOAD", "GPUS", "NOT MOVED, BECAUSE")

purpose = add_options(
    click.option("--for", "workload", metavar="WORKLOAD", default="", shell_complete=complete_workload,
                 help="Make room for this waiting workload (of an array: the first task), with the fewest moves."),
    click.option("--free-nodes", metavar="COUNT", type=click.IntRange(1), default=None,
                 help="Leave this many nodes without work, so that they may go."),
    click.option("--balance", is_flag=True, help="Even out the load of the nodes."),
    click.option("--most-moves", metavar="COUNT", type=click.IntRange(1), default=None,
                 help="Make at most this many moves (default: 8 % of the running pods, or 16 if that is more)."),
)  # fmt: skip


@click.group(cls=VerbGroup)
def defrag() -> None:
    """Move running work together, so that waiting work fits or nodes become free.

    A pod that moves is stopped, and starts again at once in a place that is kept for it. kaiwo gpus --fragments shows
    which free GPUs nobody can use, and docs/defragmentation.md has the rules.

    \b
    Examples:
      kaiwo defrag plan
      kaiwo defrag plan --for train
      kaiwo defrag run 3f2a91
      kaiwo defrag status
      kaiwo defrag abort
    """


@defrag.command()
@purpose
@printing.output_option("table", "json", "yaml")
def plan(output: str, **options: Any) -> None:
    """Show which moves would help, what they bring and what they cost. Nothing changes.

    LOST GPU-H is the work since the last checkpoint that is done again: that of a whole gang, if it cannot go on
    without the pod that moves.

    \b
    Examples:
      kaiwo defrag plan
      kaiwo defrag plan --for train
      kaiwo defrag plan --free-nodes 2
      kaiwo defrag plan --balance -o json
    """
    server = connect_server(PLAN_TIMEOUT_S)
    body = server.post("/defragmentation/plan", _form(server, options))
    if output != "table":
        printing.print_body(body, output)
        return
    _print_plan(server.decode(body, MovePlanView))


@defrag.command()
@click.argument("name", required=False, metavar="[PLAN]")
@purpose
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@reason_option()
@printing.output_option("table", "json", "yaml")
def run(name: str | None, yes: bool, reason: str, output: str, **options: Any) -> None:
    """Carry out a plan, either a named one or a new one, within the limits of the policy.

    At a terminal the plan is shown first. Each move is checked again before it begins: what no longer fits is left out.
    """
    server = connect_server(PLAN_TIMEOUT_S)
    form = _form(server, options)
    if name and form:
        raise ConfigError("name either a plan, or what the moves are for")
    if not name:
        view = server.decode(server.post("/defragmentation/plan", form), MovePlanView)
        if view.steps and sys.stdin.isatty() and not yes:
            _print_plan(view)
            click.confirm("Run it?", abort=True, err=True)
        name = view.name
    body = server.post("/defragmentation/run", {"plan": name}, reason_query(reason))
    _print_status(body, server.decode(body, DefragmentationView), output)


@defrag.command()
@printing.output_option("table", "json", "yaml")
def status(output: str) -> None:
    """Show how far the last run is, move by move."""
    server = connect_server()
    body = server.get("/defragmentation")
    _print_status(body, server.decode(body, DefragmentationView), output)


@defrag.command()
@reason_option()
@printing.output_option("table", "json", "yaml")
def abort(reason: str, output: str) -> None:
    """Start no more moves. Moves under way finish, and pods that have moved stay where they are."""
    server = connect_server()
    body = server.post("/defragmentation/abort", {}, reason_query(reason))
    _print_status(body, server.decode(body, DefragmentationView), output)


def _form(server: ApiClient, options: dict[str, Any]) -> dict[str, Any]:
    form = {
        "workload": _one_workload(server, full_name(options["workload"])) if options["workload"] else "",
        "free_nodes": options["free_nodes"],
        "balance": options["balance"],
        "most_moves": options["most_moves"],
    }
    return {name: value for name, value in form.items() if value}


def _one_workload(server: ApiClient, full: str) -> str:
    """Of an array, the first task that waits."""
    try:
        server.get(workload_path(full))
    except NotFoundError:
        return first_waiting(server, full) or full  # the plan says that it does not exist
    return full


def _print_plan(view: MovePlanView) -> None:
    click.echo(printing.bold(printing.wrap(printing.as_sentence(view.message))))
    if view.steps:
        _print_cost(view)
        click.echo()
        rows = [_plan_row(step, move) for step in view.steps[:SHOWN_STEPS] for move in step.moves]
        printing.print_table(text_columns(MOVES, numbers=("STEP", "LOST GPU-H")), rows)
        if len(view.steps) > SHOWN_STEPS:
            click.echo(f"and {len(view.steps) - SHOWN_STEPS} more steps; -o json has all of them")
    if view.kept:
        click.echo()
        rows = [[short_name(each.workload), thousandths(each.gpu_milli), each.sentence] for each in view.kept]
        printing.print_table(text_columns(KEPT, numbers=("GPUS",)), rows[:SHOWN_KEPT])
        if len(rows) > SHOWN_KEPT:
            click.echo(f"and {len(rows) - SHOWN_KEPT} more; -o json has all of them")
    if view.kinds:
        words = "; ".join(kind_words(each) for each in view.kinds[:SHOWN_KINDS])
        click.echo()
        click.echo(printing.wrap(f"Requests that can't use what is free: {words}."))


def _print_cost(view: MovePlanView) -> None:
    if view.used_after_milli != view.used_before_milli and view.gpu_milli:
        before, after = (
            f"{100 * used / view.gpu_milli:.1f} %" for used in (view.used_before_milli, view.used_after_milli)
        )
        click.echo(f"GPUs in use: {before} -> {after} of {thousandths(view.gpu_milli)}.")
    if view.load_gap:
        before, after = (f"{100 * gap:.1f} %" for gap in view.load_gap)
        click.echo(f"Highest load of a node less the mean: {before} -> {after} of its GPUs.")
    if view.free_nodes or any(step.frees for step in view.steps):
        freed = ", ".join(step.frees for step in view.steps if step.frees)
        click.echo(printing.wrap(f"Without work now: {', '.join(view.free_nodes) or 'no node'}; then also: {freed}."))
    parts = f"{view.moved_percent:g} % of {count(view.running, 'running pod')}"
    click.echo(f"It moves {parts} and loses {view.lost_gpu_hours:g} GPU-hours of work.")
    limits = view.limits
    hours = f", between {' and '.join(limits.hours)} UTC" if limits.hours else ""
    longer = f"; it takes at least {duration(view.least_s)}" if view.least_s else ""
    click.echo(f"The policy allows {limits.at_once} moves at once and {limits.per_hour} an hour{hours}{longer}.")
    if view.is_smallest:
        click.echo("Fewer moves would not do.")
    if view.is_cut_short:
        click.echo("The search ended before everything was tried: fewer moves, or more room, may be possible.")


def _plan_row(step: MoveStepView, move: MoveView) -> list[str]:
    lost = f"{move.lost_gpu_hours:.2f}"
    where = (short_name(move.workload), move.pod, move.source, move.node, _few(move.gpus))
    return [str(step.number), *where, lost, _for(step)]


def _for(step: MoveStepView) -> str:
    if step.frees:
        return f"free {step.frees}"
    return short_name(step.starts[0].workload) if step.starts else "even load"


def _few(names: Sequence[str]) -> str:
    return ",".join(names[:2]) + (f",+{len(names) - 2}" if len(names) > 2 else "") or "-"


def _print_status(body: bytes, view: DefragmentationView, output: str) -> None:
    if output != "table":
        printing.print_body(body, output)
        return
    run = view.run
    if run is None:
        click.echo(printing.as_sentence(view.message))
        return
    click.echo(printing.bold(printing.wrap(f"Run {run.name} ({run.goal}): {view.message}.")))
    by = f" by {run.by}" if run.by else ""
    ended = f", ended {clock_words(run.ended_s)}" if run.ended_s else ""
    click.echo(f"Started {clock_words(run.begun_s)}{by}{ended}.\n")
    rows = [
        [str(step.number), short_name(move.workload), move.pod, move.source, move.node, move.state, _for(step)]
        for step in run.steps
        for move in step.moves
    ]
    printing.print_table(text_columns(PROGRESS, numbers=("STEP",)), rows)
    for step in run.steps:
        if step.reason:
            click.echo(printing.wrap(f"Step {step.number} was not made, or not all of it: {step.reason}."))
