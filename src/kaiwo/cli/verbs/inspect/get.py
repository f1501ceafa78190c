"""`kaiwo get`: list objects of one kind."""

from typing import Any

import click
import msgspec

from kaiwo.api.views import WorkloadDetail
from kaiwo.cli.client.api_client import Server
from kaiwo.cli.lists.list_options import Wish, listing_options, make_wish
from kaiwo.cli.lists.object_kinds import KINDS, WORKLOADS, Kind, need_kind
from kaiwo.cli.lists.read_object import complete_object, read_one, server_time
from kaiwo.cli.lists.show_list import lines_of, show
from kaiwo.cli.name_completion import person
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import Verb, this_server
from kaiwo.model.errors import ConfigError


def _complete_kind(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [kind.plural for kind in KINDS if kind.plural.startswith(incomplete)]


@click.command(cls=Verb)
@click.argument("kind", shell_complete=_complete_kind)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_object)
@click.option("-u", "--user", metavar="NAME", default="", help="Only this user's workloads; `me` for your own.")
@listing_options()
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
    chosen = need_kind(kind)
    if user and chosen is not WORKLOADS:
        raise ConfigError(f"{chosen.plural} have no user; leave out --user")
    wish = make_wish(chosen, {"user": person(user)} if user else None, **options)
    if not names:
        show(this_server(), chosen, wish)
    elif wish.watch:
        raise ConfigError(f"-w watches a list; leave out {', '.join(names)}, or select with -l, -q or --state")
    else:
        _show_named(this_server(), chosen, names, wish)


def _show_named(server: Server, kind: Kind, names: tuple[str, ...], wish: Wish) -> None:
    bodies = [read_one(server, kind, name) for name in names]
    if wish.output in ("json", "yaml"):
        data = [msgspec.json.decode(body) for body in bodies]
        printing.print_data(data[0] if len(data) == 1 else {"items": data, "total": len(data), "next": ""}, wish.output)
        return
    if kind is WORKLOADS:
        views = [server.decode(body, WorkloadDetail).summary for body in bodies]
    else:
        views = [server.decode(body, kind.view) for body in bodies]
    for line in lines_of(kind, wish, views, server_time(server), printing.terminal_width()):
        click.echo(line)
