"""`kaiwo plugins`: list plugins, enable, disable or reload them, and write, check or measure a new one."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kaiwo.api.views.answers import Page
from kaiwo.api.views.plugins import PluginView
from kaiwo.cli.client.api_client import object_path
from kaiwo.cli.lists.columns import NUMBER, WIDE, table_row
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.verb_base import LocalVerb, VerbGroup, connect_server, reason_option, reason_query, run_for_each
from kaiwo.model.amounts import short_duration
from kaiwo.model.errors import ConfigError

if TYPE_CHECKING:  # it would load NumPy
    from kaiwo.runtime.plugin_worker.try_plugin import TriedPlugin

KINDS = (
    "score", "filter", "gpu_score", "allocation", "queue_order", "workload_order", "victim_filter", "domain_rule",
    "placement_strategy", "replica_strategy", "reserve", "permit", "bind", "post_bind", "resource", "topology_source",
    "metrics", "sink", "notification",
)  # fmt: skip
COLUMNS = (
    Column("NAME", lambda p, _: p.name),
    Column("VERSION", lambda p, _: p.version or "-"),
    Column("STATE", lambda p, _: p.state, is_state=True),
    Column("KINDS", lambda p, _: ", ".join(p.kinds) or "-"),
    Column("RUNS", lambda p, _: f"{p.run} ({p.grade})" if p.grade else p.run),
    Column("CALLS", lambda p, _: f"{p.calls:,}" if p.calls else "-", NUMBER),
    Column("EACH", lambda p, _: f"{p.mean_us:,} µs" if p.calls else "-", NUMBER),
    Column("LAST FAULT", lambda p, now: _last_fault(p, now)),
    Column("SOURCE", lambda p, _: p.source or "-"),
    Column("SHA256", lambda p, _: p.sha256[:12] or "-", False, WIDE),
    Column("DETAIL", lambda p, _: p.detail or "-", False, WIDE),
)


@click.group(cls=VerbGroup, invoke_without_command=True, describe="kaiwo plugins info")
@printing.output_option("table", "wide", "json", "yaml", "name")
@click.pass_context
def plugins(ctx: click.Context, output: str) -> None:
    """List plugins; enable, disable or reload them; write, check or measure a new one.

    Kaiwo runs a plugin of others only if its name and the sha256 of its files are in the file that `kaiwo up
    --plugins` or `kaiwo scheduler --plugins` names. It runs in a process of its own without rights, and is set aside
    when it misbehaves. See docs/plugins.md.

    \b
    Examples:
      kaiwo plugins
      kaiwo plugins info prefer-cheap-nodes
      kaiwo plugins new prefer-cheap-nodes --kind score
      kaiwo plugins check examples/plugins/prefer-cheap-nodes
    """
    if ctx.invoked_subcommand is None:
        _print_list(output)


@plugins.command("list")
@printing.output_option("table", "wide", "json", "yaml", "name")
def list_plugins(output: str) -> None:
    """List all plugins: where each comes from, whether it is confined, what it costs, and when it last failed.

    \b
    Example:
      kaiwo plugins list -o wide
    """
    _print_list(output)


@plugins.command("info")
@click.argument("name")
@printing.output_option("table", "json", "yaml")
def info(name: str, output: str) -> None:
    """Show one plugin, with the sha256 of its files.

    \b
    Example:
      kaiwo plugins info prefer-cheap-nodes
    """
    server = connect_server()
    body = server.get(object_path("plugins", name))
    if output != "table":
        printing.print_body(body, output)
        return
    plugin = server.decode(body, PluginView)
    cost = f"{plugin.calls:,} calls, {plugin.mean_us:,} µs each, at most {plugin.longest_us:,} µs"
    rows = {
        "state": plugin.state, "detail": plugin.detail, "kinds": ", ".join(plugin.kinds), "runs": plugin.run,
        "confinement": plugin.grade, "from": plugin.source, "sha256": plugin.sha256,
        "needs": ", ".join(plugin.dependencies), "cost": cost if plugin.calls else "",
        "faults": f"{plugin.faults}; the last {_last_fault(plugin, time.time())}: {plugin.last_fault}"
        if plugin.faults else "",
        "about": plugin.description,
    }  # fmt: skip
    click.echo(printing.bold(f"{plugin.name} {plugin.version}"))
    for title, text in rows.items():
        if text:
            click.echo(f"  {title:<12} {text}")


@plugins.command("enable")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@reason_option()
def enable(names: tuple[str, ...], reason: str) -> int:
    """Start plugins that are disabled or were set aside. Lasts until Kaiwo restarts.

    \b
    Example:
      kaiwo plugins enable prefer-cheap-nodes
    """
    return _change(names, "enable", reason)


@plugins.command("disable")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@reason_option()
def disable(names: tuple[str, ...], reason: str) -> int:
    """Stop plugins. Lasts until Kaiwo restarts; to make it last, write `enabled: false` into the file.

    \b
    Example:
      kaiwo plugins disable prefer-cheap-nodes --reason "too slow"
    """
    return _change(names, "disable", reason)


@plugins.command("reload")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@reason_option()
def reload(names: tuple[str, ...], reason: str) -> int:
    """Read the file of allowed plugins and the plugins' own files again, and start what they are now.

    \b
    Example:
      kaiwo plugins reload prefer-cheap-nodes
    """
    return _change(names, "reload", reason)


@plugins.command("check", cls=LocalVerb)
@click.argument("plugins", nargs=-1, required=True, metavar="FOLDER|NAME...")
@click.option("--config", metavar="JSON", default="{}", help="The configuration of one plugin, as a JSON object.")
@printing.output_option("table", "yaml")
def check(plugins: tuple[str, ...], config: str, output: str) -> None:
    """Load a plugin, confined, and call it on a made-up cluster. Needs no running Kaiwo.

    Give the folder of its project, or the name of one that is installed.

    It prints the lines with which an administrator allows the plugin; with `-o yaml`, a whole file for --plugins, with
    all plugins that you give.

    \b
    Examples:
      kaiwo plugins check prefer-cheap-nodes
      kaiwo plugins check . --config '{"busy_at": 10}' -o yaml > plugins.yaml
      kaiwo plugins check prefer-cheap-nodes licences -o yaml > plugins.yaml
    """
    if len(plugins) > 1 and _fields(config):
        raise ConfigError(
            "--config is that of one plugin; give one plugin, or write `config` into the file", "--config"
        )
    found = [_try(plugin, config, nodes=100, calls=1) for plugin in plugins]
    if output == "yaml":
        printing.print_data({"plugins": [_allowing(tried, config) for tried in found]}, output)
        return
    for tried in found:
        _print_checked(tried, config)


def _print_checked(tried: "TriedPlugin", config: str) -> None:
    click.echo(printing.bold(f"{tried.name} {tried.version} works"))
    click.echo(f"  kinds        {', '.join(tried.kinds)}")
    click.echo(f"  confinement  {tried.grade}")
    click.echo("  to allow it, add this to the file of --plugins:")
    for number, (field, value) in enumerate(_allowing(tried, config).items()):
        click.echo(f"    {' ' if number else '-'} {field}: {value if isinstance(value, str) else json.dumps(value)}")


@plugins.command("bench", cls=LocalVerb)
@click.argument("plugin", metavar="FOLDER|NAME")
@click.option("--nodes", type=click.IntRange(1, 20_000), default=1_000, show_default=True, help="Size of the cluster.")
@click.option("--calls", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How often to call it.")
@click.option("--config", metavar="JSON", default="{}", help="Its configuration, as a JSON object.")
@printing.output_option("table", "json", "yaml")
def bench(plugin: str, nodes: int, calls: int, config: str, output: str) -> None:
    """Measure what a call of a plugin costs, confined. Needs no running Kaiwo.

    Give the folder of its project, or the name of one that is installed.

    \b
    Example:
      kaiwo plugins bench examples/plugins/prefer-cheap-nodes --nodes 5000
    """
    import msgspec

    tried = _try(plugin, config, nodes, calls)
    if output != "table":
        printing.print_data(msgspec.to_builtins(tried), output)
        return
    cluster = f" for {tried.nodes:,} nodes" if tried.nodes else ""
    click.echo(printing.bold(f"{tried.name}: {calls} calls{cluster}"))
    for cost in tried.costs:
        click.echo(f"  {cost.point:<14} median {cost.median_us:,} µs, 90th percentile {cost.p90_us:,} µs")


@plugins.command("new", cls=LocalVerb)
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), metavar="KIND", default="score", show_default=True,
              help=f"What it does: {', '.join(KINDS)}.")  # fmt: skip
@click.option("--folder", type=click.Path(file_okay=False), help="Where to write it (default: ./NAME).")
def new(name: str, kind: str, folder: str | None) -> None:
    """Write a new plugin project with a manifest, code, and a test that passes.

    \b
    Example:
      kaiwo plugins new prefer-cheap-nodes --kind score
    """
    from kaiwo.runtime.plugin_worker.plugin_template import write_project

    target = Path(folder or name)
    for path in write_project(name, kind, target):
        click.echo(str(path))
    printing.hint(f"test it: cd {target} && pytest && kaiwo plugins check .")


def _try(plugin: str, config: str, nodes: int, calls: int) -> "TriedPlugin":
    from kaiwo.runtime.plugin_worker.plugin_files import installed_plugin, plugin_in
    from kaiwo.runtime.plugin_worker.plugin_settings import DEADLINE_MS
    from kaiwo.runtime.plugin_worker.try_plugin import try_plugin

    found = plugin_in(plugin) if Path(plugin).is_dir() else installed_plugin(plugin)
    tried = try_plugin(found, _fields(config), nodes, calls)
    for cost in tried.costs:
        if cost.median_us > DEADLINE_MS * 1000:
            took = f"{tried.name} took {cost.median_us // 1000:,} ms for one answer to {cost.point}"
            printing.hint(f"{took}: Kaiwo sets it aside after {DEADLINE_MS} ms, or the deadlineMs in its file")
    return tried


def _allowing(tried: "TriedPlugin", config: str) -> dict[str, Any]:
    """The entry of the file of --plugins. An installed package is found without its folder."""
    path = {"path": tried.source} if Path(tried.source).is_dir() else {}
    given = _fields(config)
    return {"name": tried.name, "sha256": tried.sha256} | path | ({"config": given} if given else {})


def _fields(config: str) -> dict[str, Any]:
    from kaiwo.manifests import read_json

    try:
        fields: dict[str, Any] = read_json(config)
    except ConfigError as error:
        raise ConfigError(f"--config: {error}", "--config") from error
    return fields


def _change(names: tuple[str, ...], action: str, reason: str) -> int:
    server = connect_server()

    def change_one(name: str) -> None:
        body = server.send("POST", f"{object_path('plugins', name)}/{action}", reason_query(reason))
        plugin = server.decode(body, PluginView)
        click.echo(f"plugin {plugin.name} is {plugin.state}")

    return run_for_each(names, change_one)


def _print_list(output: str) -> None:
    server = connect_server()
    body = server.get("/plugins")
    if output in ("json", "yaml"):
        printing.print_body(body, output)
        return
    items = server.decode(body, Page[PluginView]).items
    if output == "name":
        for plugin in items:
            click.echo(plugin.name)
        return
    columns = [column for column in COLUMNS if output == "wide" or not column.is_wide]
    printing.print_table(columns, [table_row(columns, plugin, time.time()) for plugin in items])


def _last_fault(plugin: PluginView, now: float) -> str:
    if not plugin.last_fault_s:
        return "-"
    return f"{short_duration(now - plugin.last_fault_s)} ago"
