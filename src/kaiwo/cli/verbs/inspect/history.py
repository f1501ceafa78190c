"""`kaiwo history`: the past of one workload, or the list of those that ended."""

from typing import Any

import click
import msgspec

from kaiwo.api.views.answers import Page
from kaiwo.api.views.past import EfficiencyView, EndedWorkView, HistoryView, MomentView
from kaiwo.cli.client.api_client import ApiClient, workload_path
from kaiwo.cli.lists.read_object import server_time
from kaiwo.cli.name_completion import complete_queue, complete_workload, resolve_user
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import FINISHED_STATES, full_name, given_fields, one_of, parse_duration, short_name
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.cli.verbs.inspect.describe import device_names
from kaiwo.model.amounts import count, rounded_duration, rounded_memory, short_duration, thousandths
from kaiwo.model.reservation import clock_words

COLUMNS = ("NAME", "QUEUE", "USER", "GPUS", "STATE", "ENDED", "TRIES", "EVICTED", "GPU-HOURS", "USED")
PAGE = 500
LITTLE_GPU_S = 36  # of lost work: less is not worth a line


@click.command(cls=Verb)
@click.argument("name", required=False, metavar="[WORKLOAD]", shell_complete=complete_workload)
@click.option("--submission", metavar="N", type=click.IntRange(1), help="Submission of a name that was used again.")
@click.option("--since", metavar="TIME", default="7d", show_default=True, help="In a list: how far back.")
@click.option("-u", "--user", metavar="NAME", default="", help="In a list: only this user's; `me` for your own.")
@click.option(
    "-q",
    "--queue",
    metavar="QUEUE",
    default="",
    shell_complete=complete_queue,
    help="In a list: only this queue and those below it.",
)
@click.option(
    "--state", metavar="STATE", default="", help=f"In a list: only {one_of(FINISHED_STATES)}; several as a,b."
)
@click.option(
    "--limit",
    metavar="N",
    default=50,
    show_default=True,
    type=click.IntRange(0),
    help="In a list: show at most N; 0 for all.",
)
@printing.output_option("table", "json", "yaml")
def history(name: str | None, submission: int | None, output: str, **chosen: Any) -> None:  # fmt: skip
    """Show the past of one workload, or list what has ended.

    Of one workload: when it was submitted, each reason it waited for and how long, planned starts, attempts with their
    nodes and devices, evictions (by whom and for whom), its end, and how much of its GPUs it used. The list has every
    submission of a name. What was not recorded is shown as unknown.

    \b
    Examples:
      kaiwo history train
      kaiwo history train --submission 1
      kaiwo history --since 30d -u me
      kaiwo history -q lab --state failed -o json
    """
    server = connect_server()
    if name is None:
        _print_list(server, output, **chosen)
        return
    body = read_history(server, name, submission)
    if output != "table":
        printing.print_body(body, output)
    else:
        _print_history(server.decode(body, HistoryView))


def read_history(server: ApiClient, name: str, submission: int | None) -> bytes:
    return server.get(f"{workload_path(full_name(name))}/history", given_fields({"submission": submission}))


def _print_history(view: HistoryView) -> None:
    short = short_name(view.workload)
    others = [str(number) for number in view.submissions if number != view.submission]
    printing.print_facts(
        ("workload", view.workload),
        (
            "state",
            f"{view.state or 'ended'}: {view.message}" if view.message else view.state or "ended, how is unknown",
        ),
        ("queue", view.queue),
        ("user", view.user),
        ("submission", f"{view.submission}; also kept: {', '.join(others)}" if others else ""),
    )
    click.echo()
    rows = [[clock_words(each.at_s), _lasted(each, view.now_s), each.sentence] for each in view.timeline]
    printing.print_table(text_columns(("WHEN", "FOR", "WHAT")), rows)
    if view.attempts:
        click.echo()
        attempts = [
            [str(each.attempt), short_duration((each.ended_s or view.now_s) - each.started_s), ", ".join(each.nodes),
             device_names([device.partition("/")[2] for device in each.devices]),
             each.message or ("still running" if not each.ended_s else f"exit code {each.exit_code}")]
            for each in view.attempts
        ]  # fmt: skip
        printing.print_table(text_columns(("ATTEMPT", "RAN", "NODES", "DEVICES", "ENDED")), attempts)
    click.echo()
    print_efficiency(view.efficiency)
    for sentence in view.unknown:
        click.echo("\n" + printing.wrap(sentence))
    if view.attempts:
        printing.hint(f"the output of an attempt: kaiwo logs {short} --attempt {view.attempts[-1].attempt}")


def _lasted(moment: MomentView, now_s: int) -> str:
    if moment.is_over and not moment.until_s:
        return ""
    return rounded_duration((moment.until_s or now_s) - moment.at_s) + ("" if moment.is_over else ", until now")


def print_efficiency(found: EfficiencyView) -> None:
    """The facts of what it asked for and used."""
    memory = ""
    if found.peak_memory_mib:
        memory = f"{rounded_memory(found.peak_memory_mib)} at most"
        if found.asked_memory_mib:
            share = 100 * found.peak_memory_mib // found.asked_memory_mib
            memory += f", {share} % of the {rounded_memory(found.asked_memory_mib)} that it asked for"
    measured = ""
    if found.measured_gpu_milli_s and found.measured_gpu_milli_s < found.held_gpu_milli_s:
        measured = f"{100 * found.measured_gpu_milli_s // found.held_gpu_milli_s} % of what it held"
    used = wasted = "unknown" if found.held_gpu_milli_s else ""
    if found.used_gpu_milli_s is not None and found.wasted_gpu_milli_s is not None:
        used = f"{gpu_hours(found.used_gpu_milli_s)} ({found.used_percent} %)"
        wasted = gpu_hours(found.wasted_gpu_milli_s)
    printing.print_facts(
        ("waited", rounded_duration(found.waited_s)),
        ("ran", rounded_duration(found.ran_s)),
        ("asked", gpu_hours(found.held_gpu_milli_s)),
        ("used", used),
        ("wasted", wasted),
        ("measured", measured),
        ("not saved", gpu_hours(1000 * found.lost_gpu_s) if found.lost_gpu_s >= LITTLE_GPU_S else ""),
        ("peak memory", memory),
    )


def gpu_hours(milli_s: int) -> str:
    """`1.5 GPU-hours`: two decimal places, or four where there are few."""
    places = 2 if milli_s >= 360_000 else 4
    hours = f"{milli_s / 3_600_000:,.{places}f}".rstrip("0").rstrip(".")
    return f"{hours} GPU-{'hour' if hours == '1' else 'hours'}"


def _print_list(server: ApiClient, output: str, since: str, user: str, queue: str, state: str, limit: int) -> None:
    query = given_fields({
        "last": parse_duration(since), "user": resolve_user(user) if user else "", "queue": queue, "state": state,
    })  # fmt: skip
    items: list[EndedWorkView] = []
    while True:
        query["limit"] = min(PAGE, limit - len(items)) if limit else PAGE
        page = server.decode(server.get("/history", query), Page[EndedWorkView])
        items += page.items
        if not page.next or (limit and len(items) >= limit):
            break
        query["after"] = page.next
    if output != "table":
        printing.print_data({"items": msgspec.to_builtins(items), "total": page.total, "next": ""}, output)
        return
    if not items:
        printing.hint(f"nothing ended in the last {since}" + (" that matches" if len(query) > 2 else ""))
        return
    now_s = server_time(server)
    printing.print_table(text_columns(COLUMNS, numbers=("GPUS", "TRIES", "EVICTED", "GPU-HOURS", "USED")), [
        _row(each, now_s) for each in items
    ])  # fmt: skip
    if len(items) < page.total:
        printing.hint(f"the last {len(items)} of {count(page.total, 'workload')}; --limit 0 shows all")


def _row(work: EndedWorkView, now_s: int) -> list[str]:
    known, used = work.measured_gpu_milli_s, work.used_gpu_milli_s
    return [
        short_name(work.workload) + (f" ({work.submission})" if 1 < work.submission < 10**6 else ""), work.queue,
        work.user, thousandths(work.gpu_milli), work.state or "unknown", f"{short_duration(now_s - work.ended_s)} ago",
        str(work.attempts), str(work.evictions), gpu_hours(work.held_gpu_milli_s).partition(" ")[0],
        f"{(200 * used + known) // (2 * known)} %" if known else "-",
    ]  # fmt: skip
