"""One harmless line for each verb, for the tests that type all of them.

A test compares this table with the table of verbs: a new verb needs a line here, and then all those tests type it.
"""

import shlex

import click

from kaiwo.cli.verb_table import ENTRIES, kaiwo

# `runs` runs, `waits` waits and `gone` does not exist. FILE is a manifest, FOLDER an empty folder.
LINES = {
    "up": "up --cluster-file FOLDER/none.yaml",
    "scheduler": "scheduler --kubeconfig FOLDER/none",
    "install": "install --agent",
    "demo clear": "demo clear",
    "login": "login",
    "logout": "logout",
    "doctor": "doctor",
    "discover": "discover --root FOLDER",
    "submit": "submit --dry-run more --gpus 1 -- true",
    "run": "run --reservation none --gpus 1 -- true",
    "wait": "wait waits --timeout 1s",
    "logs": "logs runs",
    "cancel": "cancel gone",
    "hold": "hold gone",
    "release": "release gone",
    "requeue": "requeue gone",
    "set": "set waits priority=-1",
    "progress": "progress runs --step 2s",
    "checkpoint": "checkpoint runs",
    "status": "status",
    "top": "top",
    "why": "why waits",
    "what-if": "what-if --quota default=1",
    "scale": "scale",
    "history": "history runs",
    "seff": "seff runs",
    "report": "report",
    "idle": "idle",
    "advice": "advice",
    "capacity": "capacity --add-nodes 1",
    "trends": "trends",
    "adjustments": "adjustments",
    "usage": "usage process",
    "alerts": "alerts",
    "alerts history": "alerts history",
    "alerts rules": "alerts rules",
    "alerts check": "alerts check FILE",
    "alerts silence": "alerts silence gpu-hot",
    "alerts silences": "alerts silences",
    "alerts unsilence": "alerts unsilence 999999",  # nobody has it: the line must say the same each time
    "alerts channels": "alerts channels",
    "alerts test": "alerts test ops",
    "queue": "queue",
    "share": "share default",
    "gpus": "gpus",
    "topology": "topology",
    "recovery": "recovery",
    "get": "get workloads",
    "describe": "describe waits",
    "nodes": "nodes",
    "nodes cordon": "nodes cordon gone",
    "nodes uncordon": "nodes uncordon gone",
    "nodes drain": "nodes drain gone",
    "nodes fail": "nodes fail gone",
    "nodes restore": "nodes restore gone",
    "reservations": "reservations",
    "reservations describe": "reservations describe gone",
    "reservations create": "reservations create later --gpus 1 --start 9h --end 1h --dry-run",
    "reservations delete": "reservations delete gone",
    "apply": "apply -f FILE --dry-run",
    "delete": "delete -f FILE",
    "backup": "backup FOLDER/copy.db",
    "restore": "restore",
    "replay": "replay 1",
    "simulate openb": "simulate openb --data FOLDER",
    "simulate defrag": "simulate defrag --data FOLDER",
    "simulate run": "simulate run --jobs 3 --nodes 1",
    "simulate muri": "simulate muri --data FOLDER",
    "simulate philly": "simulate philly --data FOLDER",
    "simulate journal": "simulate journal FOLDER",
    "defrag plan": "defrag plan",
    "defrag run": "defrag run gone --yes",
    "defrag status": "defrag status",
    "defrag abort": "defrag abort",
    "policy get": "policy get",
    "policy diff": "policy diff placement=spread",
    "policy set": "policy set placement=nowhere",
    "policy undo": "policy undo",
    "partitions": "partitions",
    "audit": "audit",
    "audit head": "audit head",
    "audit verify": "audit verify",
    "tokens": "tokens",
    "tokens list": "tokens list",
    "tokens create": "tokens create ada --role user --queue gone",
    "tokens rotate": "tokens rotate t-none",
    "tokens revoke": "tokens revoke t-none",
    "plugins": "plugins",
    "plugins list": "plugins list",
    "plugins info": "plugins info gone",
    "plugins enable": "plugins enable gone",
    "plugins disable": "plugins disable gone",
    "plugins reload": "plugins reload gone",
    "plugins check": "plugins check FOLDER",
    "plugins bench": "plugins bench FOLDER",
    "plugins new": "plugins new FOLDER/none/new --kind score",
    "agents": "agents",
    "agent": "agent --once --root FOLDER",
    "version": "version",
    "completion": "completion bash",
}
# They work without a server, or start one.
LOCAL = frozenset(
    {
        "up",
        "scheduler",
        "install",
        "doctor",
        "discover",
        "backup",
        "restore",
        "replay",
        "agent",
        "completion",
        "version",
    }
    | {name for name in LINES if name.startswith("simulate ")}
    | {"plugins check", "plugins bench", "plugins new", "audit head", "audit verify", "alerts check"}
)
SCREENS = frozenset({"top"})  # with keys, and only in a terminal
ASKS_THE_SERVER = sorted(set(LINES) - LOCAL - SCREENS)


def all_verbs() -> set[str]:
    """Every verb and subcommand; a group that is no verb by itself only has subcommands."""
    found: set[str] = set()
    context = click.Context(kaiwo)
    for name in ENTRIES:
        command = kaiwo.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {each}" for each in command.commands}
        if not isinstance(command, click.Group) or command.invoke_without_command:
            found.add(name)
    return found


def words(verb: str, folder: object, file: object) -> list[str]:
    line = LINES[verb].replace("FOLDER", str(folder)).replace("FILE", str(file))
    return shlex.split(line)
