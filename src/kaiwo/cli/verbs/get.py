"""`kaiwo get`, `kaiwo gpus`: listings."""

from typing import Any

import click
import msgspec

from kaiwo.api.views import GpuView, Page, WorkloadDetail
from kaiwo.cli import printing
from kaiwo.cli.kinds import CYCLES, GPUS, KINDS, NODES, QUEUES, WORKLOADS, Kind, find_kind, need_kind
from kaiwo.cli.listing import lines_of, server_time, show
from kaiwo.cli.names import complete_node, complete_queue, complete_workload
from kaiwo.cli.server import Server, object_path, workload_path
from kaiwo.cli.verb import Verb, this_server
from kaiwo.cli.wish import Wish, listing_options, make_wish
from kaiwo.cli.words import full_name
from kaiwo.model.errors import ConfigError, NotFoundError


def _complete_kind(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [kind.plural for kind in KINDS if kind.plural.startswith(incomplete)]


def complete_object(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the kind that was typed before."""
    kind = find_kind(ctx.params.get("kind") or "")
    complete = {WORKLOADS: complete_workload, NODES: complete_node, QUEUES: complete_queue}.get(kind)  # type: ignore[arg-type]
    return complete(ctx, parameter, incomplete) if complete else []


@click.command(cls=Verb)
@click.argument("kind", shell_complete=_complete_kind)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_object)
@click.option("-u", "--user", metavar="NAME", default="", help="Only this person's workloads.")
@listing_options
def get(kind: str, names: tuple[str, ...], user: str, **options: Any) -> None:
    """List workloads, nodes, queues, gpus or cycles, or the named ones.

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
        raise ConfigError(f"{chosen.plural} have no user; leave --user out")
    wish = make_wish(chosen, {"user": user} if user else None, **options)
    if not names:
        show(this_server(), chosen, wish)
    elif wish.watch:
        raise ConfigError(f"-w follows a listing; leave {', '.join(names)} out or choose with -l, -q or --state")
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


def read_one(server: Server, kind: Kind, name: str) -> bytes:
    """The API's answer for one object."""
    if kind is WORKLOADS:
        return server.get(workload_path(full_name(name)))
    if kind in (NODES, QUEUES):
        return server.get(object_path(kind.plural, name))
    if kind is GPUS:
        return _read_gpu(server, name)
    return _read_cycle(server, name)


def _read_gpu(server: Server, name: str) -> bytes:
    node, slash, gpu_id = name.partition("/")
    if not slash:
        raise ConfigError(f"'{name}' is not a GPU's name; write it like node/gpu-0 (kaiwo gpus -o name lists them)")
    page = server.decode(server.get("/gpus", {"node": node, "limit": 1000}), Page[GpuView])
    for gpu in page.items:
        if gpu.id == gpu_id:
            return msgspec.json.encode(gpu)
    raise NotFoundError(f"there is no GPU '{gpu_id}' on node '{node}'; see: kaiwo get nodes")


def _read_cycle(server: Server, name: str) -> bytes:
    if not name.isdecimal():
        raise ConfigError(f"'{name}' is not a cycle's number; see: kaiwo get cycles")
    query: dict[str, Any] = {"limit": CYCLES.page_limit}
    while True:
        page = server.decode(server.get("/cycles", query), Page[dict[str, Any]])
        for cycle in page.items:
            if cycle.get("number") == int(name):
                return msgspec.json.encode(cycle)
        if not page.next:
            raise NotFoundError(f"there is no cycle {name} in the journal; see: kaiwo get cycles")
        query["after"] = page.next
