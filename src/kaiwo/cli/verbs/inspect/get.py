"""`kaiwo get`: list objects of one kind."""

from typing import Any

import click
import msgspec

from kaiwo.api.views.workloads import WorkloadDetail
from kaiwo.cli.lists.object_kinds import KINDS, WORKLOADS, ObjectKind, require_kind
from kaiwo.cli.lists.read_object import WITH_MANIFESTS, complete_object, read_manifest, read_object
from kaiwo.cli.lists.show_list import list_options, make_list_request, print_list, show_list
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

    With -o yaml, named workloads, queues and reservations are printed as manifests, which can be applied again.

    \b
    Examples:
      kaiwo get workloads --state waiting
      kaiwo get workloads -q lab -l team=vision --sort-by -gpus
      kaiwo get nodes -o wide
      kaiwo get workloads -w
      kaiwo get queue lab -o yaml > lab.yaml; kaiwo apply -f lab.yaml
      kaiwo cancel $(kaiwo get workloads -u me --state held -o name)
    """
    chosen = require_kind(kind)
    if user and chosen is not WORKLOADS:
        raise ConfigError(f"{chosen.plural} have no user; leave out --user")
    query = {"user": resolve_user(user)} if user else None
    if names:
        _show_named(chosen, names, query, **options)
    else:
        show_list(chosen, query, **options)


def _show_named(kind: ObjectKind, names: tuple[str, ...], query: dict[str, str] | None, **options: Any) -> None:
    request = make_list_request(kind, query, **options)
    if request.watch:
        raise ConfigError(f"-w watches a list; leave out {', '.join(names)}, or select with -l, -q or --state")
    server = connect_server()
    if request.output == "yaml" and kind in WITH_MANIFESTS:
        documents = [read_manifest(server, kind, name) for name in names]
        printing.print_documents(documents)
        return
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
    print_list(server, kind, request, views)
