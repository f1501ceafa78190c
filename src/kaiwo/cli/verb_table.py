"""The verbs of `kaiwo`, each in its own module that is imported only when it is called.

In:    the first word of the command line.   Out: its click command.
Never: imports a verb for the sake of `--help`; the one-line texts are here.
"""

import importlib
from typing import Any

import click

from kaiwo.cli.verb_base import place_options

# Under each heading of --help: a verb, the module it lives in, and one line about it.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "up": ("start.up", "Start Kaiwo on this machine, with its web page."),
        "scheduler": ("start.scheduler", "Schedule a Kubernetes cluster."),
        "install": ("start.install", "Print what puts Kaiwo on a Kubernetes cluster."),
        "demo": ("start.demo", "Remove the sample work of `kaiwo up --demo`."),
        "login": ("start.login", "Print an address that logs one browser in."),
        "doctor": ("start.doctor", "Check this installation and say what to mend."),
        "discover": ("start.discover", "Show the GPUs that this machine has."),
    },
    "Submit and steer": {
        "submit": ("workloads.submit", "Submit work, by flags or from YAML files."),
        "run": ("workloads.run", "Run a command on GPUs in the foreground."),
        "wait": ("workloads.wait", "Wait until workloads run or end."),
        "logs": ("workloads.logs", "Show what a workload printed."),
        "cancel": ("workloads.cancel_hold_release_requeue", "Stop workloads for good."),
        "hold": ("workloads.cancel_hold_release_requeue", "Keep waiting workloads from starting."),
        "release": ("workloads.cancel_hold_release_requeue", "Let held workloads start."),
        "requeue": ("workloads.cancel_hold_release_requeue", "Stop workloads and let them wait again."),
        "checkpoint": ("workloads.checkpoint", "Say that running work has saved what it did."),
    },
    "Look": {
        "status": ("inspect.status", "The cluster on one screen."),
        "why": ("inspect.why", "Why a workload waits, and what would start it now."),
        "queue": ("inspect.queue", "The queues and their numbers, or one of them."),
        "share": ("inspect.share", "How the fair shares come about, number by number."),
        "gpus": ("inspect.gpus", "The GPUs and who is on them."),
        "get": ("inspect.get", "List workloads, nodes, queues, GPUs or cycles."),
        "describe": ("inspect.describe", "All there is to say of one object."),
    },
    "Operate": {
        "nodes": ("operate.nodes", "The nodes; cordon, uncordon and drain them."),
        "reservations": ("operate.reservations", "GPUs kept for somebody: list, describe, create, delete."),
        "apply": ("operate.apply_delete", "Create or change what YAML files describe."),
        "delete": ("operate.apply_delete", "Delete what YAML files name."),
        "replay": ("operate.replay", "Decide a past cycle again and compare."),
        "partitions": ("operate.partitions", "The partition modes: what is planned, what changes, at what cost."),
        "agents": ("operate.agents", "The node agents, and when each was heard last."),
        "agent": ("operate.agent", "Report this machine's GPUs, and hand them out."),
    },
    "Learn": {
        "version": ("start.version", "The version of this command and of the server."),
        "completion": ("start.completion", "Make the shell complete verbs and names."),
    },
}
ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class ReaderLeftError(Exception):
    """Whoever reads our output (`| head`) has enough. Not an OSError, for click would make exit code 1 of that."""


class Verbs(click.Group):
    """Loads a verb when it is called."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderLeftError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ENTRIES:
            return None
        module, _ = ENTRIES[cmd_name]
        return getattr(importlib.import_module(f"kaiwo.cli.verbs.{module}"), cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args[0] in ENTRIES or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = get_close_matches(args[0], ENTRIES, 1, 0.6)
        hint = f"did you mean: kaiwo {near[0]}" if near else "the verbs are in: kaiwo --help"
        raise click.UsageError(f"there is no verb '{args[0]}'; {hint}", ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(10), line) for name, (_, line) in entries.items()])
        click.Command.format_options(self, ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(name, help=line) for name, (_, line) in ENTRIES.items() if name.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)


def _print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        from kaiwo import __version__

        click.echo(f"kaiwo {__version__}")
        ctx.exit()


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`kaiwo VERB --help` shows examples. Exit codes: 0 done, 1 failed, 2 invalid input, 3 refused by a queue "
    "or the policy. KAIWO_HOME, KAIWO_SERVER, KAIWO_TOKEN and NO_COLOR are read from the environment.",
    params=[
        *place_options(),
        click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
                     help="Print the version and stop."),
    ],
)  # fmt: skip
def kaiwo() -> None:
    """Kaiwo schedules GPU work.

    \b
    kaiwo up --demo                             a living cluster on this machine
    kaiwo submit --gpus 4 -- python train.py    give it work
    kaiwo why train                             ask why it waits
    """
