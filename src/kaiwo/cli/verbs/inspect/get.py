"""`kaiwo get`: list objects of one kind."""

from typing import Any

import click
import msgspec

from kaiwo.api.views import WorkloadDetail
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.lists.list_options import ListRequest, list_options, make_list_request
from kaiwo.cli.lists.object_kinds import KINDS, WORKLOADS, ObjectKind, require_kind
from kaiwo.cli.lists.read_object import complete_object, read_object, server_time
from kaiwo.cli.lists.show_list import list_lines, show_list
from kaiwo.cli.name_completion import resolve_user
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import ConfigError


def _complete_kind(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [kind.plural for kind in KINDS if kind.plural.startswith(incomplete)]


@click.command(cls=Verb)
@click.argument("kind", shell_complete=_complete_kind)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_object)
@click.option("-u", "--user", metavar="NAME", default="", help="Only this user's workloads; `me` for your own.")
@list_options()
def get(kind: str, names: tuple[str, ...], user: str, **options: Any) -> None:
    """List workloads, nodes, queues, gpus, cycles or reservations: all of them, or those named.

    \b
    Examples:
      kaiwo get workloads --state waiting
      kaiwo get workloads -q lab -l team=vision --sort-by -gpus
      kaiwo get nodes -o wide
      kaiwo get workloads -w
      kaiwo cancel $(kaiwo get workloads -u me --state held -o name)
    """
    chosen = require_kind(kind)
    if user and chosen is not WORKLOADS:
        raise ConfigError(f"{chosen.plural} have no user; leave out --user")
    request = make_list_request(chosen, {"user": resolve_user(user)} if user else None, **options)
    if not names:
        show_list(connect_server(), chosen, request)
    elif request.watch:
        raise ConfigError(f"-w watches a list; leave out {', '.join(names)}, or select with -l, -q or --state")
    else:
        _show_named(connect_server(), chosen, names, request)


def _show_named(server: ApiClient, kind: ObjectKind, names: tuple[str, ...], request: ListRequest) -> None:
    bodies = [read_object(server, kind, name) for name in names]
    if request.output in ("json", "yaml"):
        items = [msgspec.json.decode(body) for body in bodies]
        data = items[0] if len(items) == 1 else {"items": items, "total": len(items), "next": ""}
        printing.print_data(data, request.output)
        return
    if kind is WORKLOADS:
        views = [server.decode(body, WorkloadDetail).summary for body in bodies]
    else:
        views = [server.decode(body, kind.view) for body in bodies]
    for line in list_lines(kind, request, views, server_time(server), printing.terminal_width()):
        click.echo(line)
