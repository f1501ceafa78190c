"""The table of all verbs: their sections and one-line summaries in `kaiwo --help`, and the module of each.

Never: imports the module of a verb that is not called; `--help` needs only the summaries in this table.
"""

import importlib
from typing import Any

import click

from kaiwo.cli.verb_base import location_options

ATTRIBUTES = {"set": "set_fields", "what-if": "what_if"}  # of the module, where the verb is no name in Python
# For each section of --help: the verb, its module under cli/verbs, and its summary.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "up": ("start.up", "Start Kaiwo and its web page on this machine."),
        "scheduler": ("start.scheduler", "Schedule the pods of a Kubernetes cluster."),
        "install": ("start.install", "Show what installs Kaiwo on Kubernetes, or print its manifests."),
        "demo": ("start.demo", "Remove the sample workloads of `kaiwo up --demo`."),
        "login": ("start.login", "Print a link that logs one browser in."),
        "logout": ("start.login", "Log all of your browsers out."),
        "doctor": ("start.doctor", "Check this installation and say what to fix."),
        "discover": ("start.discover", "Show this machine's GPUs."),
    },
    "Workloads": {
        "submit": ("workloads.submit", "Submit workloads, with flags or from YAML files."),
        "run": ("workloads.run", "Run a command on GPUs in the foreground."),
        "wait": ("workloads.wait", "Wait until workloads run, succeed or end."),
        "logs": ("workloads.logs", "Print a workload's output."),
        "cancel": ("workloads.cancel_hold_release_requeue", "Stop workloads for good."),
        "hold": ("workloads.cancel_hold_release_requeue", "Keep waiting workloads from starting."),
        "release": ("workloads.cancel_hold_release_requeue", "Let held workloads start."),
        "requeue": ("workloads.cancel_hold_release_requeue", "Stop workloads and put them back in the queue."),
        "set": ("workloads.set_fields", "Change workloads in place, without losing their place in the queue."),
        "progress": ("workloads.progress", "Report how fast a running workload is."),
        "checkpoint": ("workloads.checkpoint", "Record that a running workload has saved its progress."),
    },
    "Inspect": {
        "status": ("inspect.status", "Show the cluster on one screen."),
        "top": ("inspect.top", "Show the live cluster in the terminal, with keys as in k9s."),
        "why": ("inspect.why", "Explain why a workload waits and what would start it."),
        "what-if": ("inspect.what_if", "Show what a change of quotas, nodes, policy or work would bring."),
        "scale": ("inspect.scale", "Show how many nodes of which GPU model are needed when, and which may go."),
        "history": ("inspect.history", "Show the past of one workload, or what ended in the last days."),
        "seff": ("inspect.seff", "Show how much of its GPUs and memory a workload used."),
        "report": ("inspect.report", "Show the GPU-hours of queues and users: asked, used and wasted."),
        "advice": ("inspect.advice", "Show changes that help, each checked by running the scheduler forward."),
        "capacity": ("inspect.capacity", "Show how long work would wait with more nodes."),
        "trends": ("inspect.trends", "Show whether use and waiting rise or fall."),
        "adjustments": ("inspect.adjustments", "Show what Kaiwo changed of what work asks for, and why."),
        "idle": ("inspect.idle", "Show who holds GPUs that do nothing."),
        "usage": ("inspect.usage", "Show what GPUs, nodes, queues, users and Kaiwo itself did over time."),
        "alerts": ("inspect.alerts", "Show what is wrong now; its history, rules, silences and channels."),
        "queue": ("inspect.queue", "Show the queue tree, or one queue in detail."),
        "share": ("inspect.share", "Show how fair shares are computed, step by step."),
        "gpus": ("inspect.gpus", "List GPUs and the workloads on them."),
        "topology": ("inspect.topology", "Show the network: domains, links, their load and who uses them."),
        "recovery": ("inspect.recovery", "Show what failed, who lost pods to it, and what is done about it."),
        "get": ("inspect.get", "List workloads, nodes, queues, GPUs, cycles or reservations."),
        "describe": ("inspect.describe", "Show one object in detail."),
    },
    "Operate": {
        "nodes": ("operate.nodes", "List nodes; cordon, uncordon, drain, fail or restore them."),
        "reservations": ("operate.reservations", "List, describe, create or delete GPU reservations."),
        "defrag": ("operate.defrag", "Move running work so that waiting work fits or nodes become free."),
        "apply": ("operate.apply_delete", "Create or update the objects in YAML files."),
        "delete": ("operate.apply_delete", "Delete the objects in YAML files."),
        "backup": ("operate.backup_restore", "Copy Kaiwo's state to a file, also while it runs."),
        "restore": ("operate.backup_restore", "Repair or replace Kaiwo's state from a backup."),
        "replay": ("operate.replay", "Decide a past cycle again and compare the plans."),
        "simulate": ("operate.simulate", "Run the shipped scheduler on a trace or on generated jobs."),
        "policy": ("operate.policy", "Show, compare, change or undo the scheduling policy."),
        "partitions": ("operate.partitions", "Show GPU partition changes: planned, running and done."),
        "audit": ("operate.audit", "Show who changed what; check that the records are whole."),
        "tokens": ("operate.tokens", "List, create, rotate or revoke the tokens of people."),
        "plugins": ("operate.plugins", "List, check, enable, disable or reload plugins."),
        "agents": ("operate.agents", "List node agents and when each last reported."),
        "agent": ("operate.agent", "Report this machine's GPUs and allocate them to pods."),
    },
    "Other": {
        "version": ("start.version", "Print the version of this command and of the server."),
        "completion": ("start.completion", "Print a shell completion script."),
    },
}
# What people type who come from Slurm, kubectl or a shell.
MEANT = {
    "squeue": "get workloads", "qstat": "get workloads", "ps": "get workloads", "ls": "get workloads",
    "list": "get workloads", "jobs": "get workloads", "workloads": "get workloads", "pods": "get workloads",
    "sinfo": "nodes", "node": "nodes", "sbatch": "submit", "create": "submit", "qsub": "submit", "srun": "run",
    "salloc": "run", "exec": "run", "scancel": "cancel", "qdel": "cancel", "kill": "cancel", "stop": "cancel",
    "rm": "cancel", "scontrol": "set", "edit": "set", "update": "set", "patch": "set", "sacct": "history",
    "events": "history", "sprio": "why", "explain": "why", "sshare": "share", "sreport": "report", "queues": "queue",
    "gpu": "gpus", "resume": "release", "suspend": "hold", "cordon": "nodes cordon", "uncordon": "nodes uncordon",
    "drain": "nodes drain", "rollout": "requeue", "restart": "requeue", "info": "describe", "show": "describe",
}  # fmt: skip
ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class ReaderLeftError(Exception):
    """The reader of our output (`| head`) closed the pipe. Not an OSError, because click exits with 1 on those."""


class VerbTable(click.Group):
    """The `kaiwo` command; it imports a verb's module when the verb is called."""

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
        attribute = ATTRIBUTES.get(cmd_name, cmd_name)
        return getattr(importlib.import_module(f"kaiwo.cli.verbs.{module}"), attribute)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args[0] in ENTRIES or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = [MEANT[args[0]]] if args[0] in MEANT else get_close_matches(args[0], ENTRIES, 1, 0.6)
        hint = f"did you mean: kaiwo {near[0]}" if near else "list all verbs with: kaiwo --help"
        raise click.UsageError(f"unknown verb '{args[0]}'; {hint}", ctx)

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
    cls=VerbTable,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`kaiwo VERB --help` shows examples. Exit codes: 0 success, 1 failure, 2 invalid input, 3 refused by a "
    "queue or the policy. Environment variables: KAIWO_HOME, KAIWO_SERVER, KAIWO_TOKEN, NO_COLOR.",
    params=[
        *location_options(),
        click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
                     help="Print the version and exit."),
    ],
)  # fmt: skip
def kaiwo() -> None:
    """Kaiwo schedules workloads on GPUs.

    \b
    kaiwo up --demo                             start a demo cluster on this machine
    kaiwo submit --gpus 4 -- python train.py    submit a workload
    kaiwo why train                             see why it waits
    """
