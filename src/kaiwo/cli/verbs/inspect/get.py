"""`kaiwo get`: list objects of one kind."""

from typing import Any

import click
import msgspec

from kaiwo.api.views.workloads import WorkloadView
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.lists.array_tasks import read_tasks
from kaiwo.cli.lists.object_kinds import KINDS, WORKLOADS, ObjectKind, require_kind
from kaiwo.cli.lists.read_object import WITH_MANIFESTS, complete_object, read_manifest, read_object, server_time
from kaiwo.cli.lists.show_list import ListRequest, list_options, make_list_request, print_list, show_list
from kaiwo.cli.name_completion import chosen_tasks, expand_name, is_pattern, resolve_user, resolve_workloads
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import FINISHED_STATES, full_name, parse_duration
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import ConfigError, NotFoundError


def _complete_kind(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [kind.plural for kind in KINDS if kind.plural.startswith(incomplete)]


@click.command(cls=Verb)
@click.argument("kind", shell_complete=_complete_kind)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_object)
@click.option("-u", "--user", metavar="NAME", default="", help="Only this user's workloads; `me` for your own.")
@click.option("-n", "--namespace", metavar="NAMESPACE", default="", help="Only workloads in this namespace.")
@click.option("--ended", is_flag=True, help="Only workloads that have ended, the latest first.")
@click.option("--since", metavar="TIME", default="", help="How far back --ended goes, such as 7d.")
@list_options()
def get(kind: str, names: tuple[str, ...], user: str, namespace: str, ended: bool, since: str, **options: Any) -> None:
    """List workloads, nodes, queues, gpus, cycles or reservations: all of them, or those named.

    An array is one row; --tasks lists its tasks. With -o yaml, named workloads, queues and reservations are printed as
    manifests, which can be applied again.

    \b
    Examples:
      kaiwo get workloads --state waiting
      kaiwo get workloads -q lab -l team=vision --sort-by -gpus
      kaiwo get nodes -o wide
      kaiwo get workloads -w
      kaiwo get workloads 'sweep[10-19]'
      kaiwo get workloads --ended --since 7d
      kaiwo get queue lab -o yaml > lab.yaml; kaiwo apply -f lab.yaml
      kaiwo cancel $(kaiwo get workloads -u me --state held -o name)
    """
    chosen = require_kind(kind)
    if user and chosen is not WORKLOADS:
        raise ConfigError(f"{chosen.plural} have no user; leave out --user")
    if namespace and chosen is not WORKLOADS:
        raise ConfigError(f"{chosen.plural} are in no namespace; leave out --namespace")
    query = {"user": resolve_user(user)} if user else {}
    if namespace:
        query["namespace"] = namespace
    if ended or since:
        if chosen is not WORKLOADS:
            raise ConfigError(f"{chosen.plural} do not end; leave out --ended and --since")
        options["states"] = options["states"] or FINISHED_STATES
        options["sort_by"] = options["sort_by"] or "-ended"
        if since:
            query["ended_since"] = str(max(0, server_time(connect_server()) - parse_duration(since)))
    if names:
        _show_named(chosen, names, query, **options)
    else:
        show_list(chosen, query, **options)


def _show_named(kind: ObjectKind, names: tuple[str, ...], query: dict[str, str], **options: Any) -> None:
    request = make_list_request(kind, query, **options)
    if request.watch:
        raise ConfigError(f"-w watches a list; leave out {', '.join(names)}, or select with -l, -q or --state")
    server = connect_server()
    if request.output == "yaml" and kind in WITH_MANIFESTS:
        documents = [read_manifest(server, kind, each) for name in names for each in _each(server, kind, name)]
        printing.print_documents(documents)
        return
    items = [item for name in names for item in _read(server, kind, name, request)]
    if request.output in ("json", "yaml"):
        data = items[0] if len(items) == 1 else {"items": items, "total": len(items), "next": ""}
        printing.print_data(data, request.output)
        return
    if kind is WORKLOADS:
        views = [server.convert(item.get("summary", item), WorkloadView) for item in items]
    else:
        views = server.convert(items, list[kind.view])  # type: ignore[name-defined]
    print_list(server, kind, request, views)


def _each(server: ApiClient, kind: ObjectKind, name: str) -> list[str]:
    """Of workloads, all that the name of an array or a pattern means."""
    if kind is not WORKLOADS:
        return [name]
    return expand_name(server, name) if is_pattern(name) else resolve_workloads(server, name)


def _read(server: ApiClient, kind: ObjectKind, name: str, request: ListRequest) -> list[Any]:
    """The named object as plain data; of workloads, all that a pattern means, or the row or the tasks of an array."""
    if kind is WORKLOADS and (chosen := chosen_tasks(name)):
        named = set(expand_name(server, name))
        return [item for item in read_tasks(server, chosen.array, folds=False) if item["name"] in named]
    if kind is WORKLOADS and is_pattern(name):
        return [item for full in expand_name(server, name) for item in _read(server, kind, full, request)]
    try:
        return [msgspec.json.decode(read_object(server, kind, name))]
    except NotFoundError:
        if kind is WORKLOADS and (tasks := read_tasks(server, full_name(name), folds=request.folds)):
            return tasks
        raise
