"""`kaiwo queue`: show the queue tree, or one queue with its numbers and workloads."""

from typing import Any

import click

from kaiwo.api.views.queues import AmountView, ModelAmountView, QueueView
from kaiwo.api.views.workloads import WorkloadView
from kaiwo.cli.client.api_client import ApiClient, object_path
from kaiwo.cli.lists.object_kinds import QUEUES, WORKLOADS
from kaiwo.cli.lists.show_list import fetch_list, list_options, make_list_request, print_list, show_list
from kaiwo.cli.name_completion import complete_queue
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import UNFINISHED_STATES, limit_or_dash
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import duration, memory, rounded_memory, thousandths
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import rule_words

RESOURCES = ("RESOURCE", "USED", "FIXED", "SHARE", "QUOTA", "LIMIT", "WEIGHT", "WAITING REQUESTS")


@click.command(cls=Verb)
@click.argument("name", required=False, metavar="[QUEUE]", shell_complete=complete_queue)
@list_options(QUEUES)
def queue(name: str | None, **options: Any) -> None:
    """Show the queue tree, or one queue with its workloads.

    In GPUs, each queue including the queues below it: USED by running workloads, the current fair SHARE, the QUOTA that
    other queues can't reclaim, the LIMIT on what it may use, and ASKED by waiting workloads.

    \b
    Examples:
      kaiwo queue
      kaiwo queue lab          one queue and its workloads
      kaiwo queue -q lab       the queue and those below it
    """
    if name is None:
        show_list(QUEUES, **options)
        return
    if options["queue"]:
        raise ConfigError(f"-q shows the tree below a queue; for one queue, use: kaiwo queue {name}")
    if options["watch"]:
        raise ConfigError(f"-w watches a list; try: kaiwo get workloads -q {name} -w")
    server = connect_server()
    body = server.get(object_path("queues", name))
    view = server.decode(body, QueueView)
    if options["output"] in ("json", "yaml"):
        printing.print_body(body, options["output"])
    elif options["output"] == "name":
        click.echo(view.name)
    else:
        print_queue(view)
        _print_workloads(server, view, options)


def print_queue(view: QueueView) -> None:
    printing.print_facts(
        ("queue", view.name + (f" ({view.display_name})" if view.display_name else "")),
        ("parent", view.parent or "none"),
        ("priority", str(view.priority)),
        ("max priority", f"{view.max_priority} (of its workloads)"),
        ("takes workloads", "yes" if view.is_leaf else "no, only the queues below it do"),
        ("divides by", "" if view.is_leaf else view.policy.value),
        ("reclaim", view.reclaim_strategy.value),
        ("min run time", duration(view.min_runtime_s) if view.min_runtime_s else ""),
        ("namespaces", ", ".join(view.namespaces)),
        ("max threads", f"{view.max_threads} % of the multiprocessors" if view.max_threads else ""),
        ("default threads", f"{view.default_threads} % of the multiprocessors" if view.default_threads else ""),
        ("max share memory", f"{memory(view.max_share_mib)} of one GPU" if view.max_share_mib else ""),
        ("shares GPUs with", rule_words(tuple(view.share_with)) if view.share_with else ""),
        ("users", ", ".join(view.users)),
        ("GPU models", "; ".join(_model_text(name, amounts) for name, amounts in sorted(view.gpu_models.items()))),
        ("workloads", f"{view.running} running, {view.waiting} waiting"),
    )
    rows = [
        _resource_row("GPUs", view.gpu_milli, thousandths),
        _resource_row("CPUs", view.cpu_milli, thousandths),
        _resource_row("memory", view.memory_mib, rounded_memory),
    ]
    click.echo()
    printing.print_table(text_columns(RESOURCES, RESOURCES[1:]), rows)
    click.echo(f"\nsee how its share is computed: kaiwo share {view.name}")


def _model_text(name: str, amounts: ModelAmountView) -> str:
    quota = "" if amounts.quota < 0 else f" quota {thousandths(amounts.quota)}"
    most = "" if amounts.limit < 0 else f" limit {thousandths(amounts.limit)}"
    return f"{name} used {thousandths(amounts.used)}{quota}{most}"


def _resource_row(name: str, amounts: AmountView, write: Any) -> list[str]:
    quota, most = limit_or_dash(amounts.quota, write), limit_or_dash(amounts.limit, write)
    used, fixed, share = write(amounts.used), write(amounts.fixed), write(amounts.share)
    return [name, used, fixed, share, quota, most, str(amounts.weight), write(amounts.waiting)]


def _print_workloads(server: ApiClient, view: QueueView, options: dict[str, Any]) -> None:
    request = make_list_request(WORKLOADS, **{**options, "queue": view.name, "states": UNFINISHED_STATES})
    items, total = fetch_list(server, WORKLOADS, request)
    views = server.convert(items, list[WorkloadView])
    if not views:
        return
    click.echo()
    print_list(server, WORKLOADS, request, views)
    if len(views) < total:
        printing.hint(f"the first {len(views)} of {total} workloads; --limit 0 shows all")
