"""The flags that describe a workload, shared by `submit` and `run`, and the form that they make for POST /workloads.

Never: checks sizes or names; the server does, with the same message for all clients.
"""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click

from kaiwo.cli.name_completion import complete_queue, complete_workload, resolve_user
from kaiwo.cli.output.formatting import full_name, given_fields, one_of, parse_pair
from kaiwo.cli.verb_base import Verb, add_options, unknown_option_message
from kaiwo.model.errors import ConfigError
from kaiwo.model.workload_fields import FIELDS, ValueKind

COMMAND = "kaiwo.command"
TYPES = ("training", "batch", "inference", "notebook")
# For these programs, the script they run makes a better name.
INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|node|bash|sh|zsh|uv|torchrun|accelerate|time|env|nice)[\d.]*")
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

_SAME = "array cpu env gpus image memory pods priority queue retries simulate type user workdir"
_FLAGS_OF_FIELDS = {
    "gpuFraction": "--fraction",
    "gpuMemory": "--gpu-memory",
    "gpuDevices": "--devices",
    "gpuModels": "--model",
    "gpuPartition": "--partition",
    "gpuSharing": "--shared",
    "gpuIsolationGrade": "--isolation-grade",
    "gpuIsolation": "--isolation",
    "gpuShareWith": "--share-with",
    "gpuThreads": "--gpu-threads",
    "minPods": "--min-pods",
    "secretEnv": "--secret-env",
    "nodeSelector": "--node-selector",
    "labels": "--label",
    **{field: f"--{field}" for field in _SAME.split()},
    **{field.short: field.flag for field in FIELDS if field.flag},
}
FLAGS = {field: flag for field, flag in _FLAGS_OF_FIELDS.items() if not field.islower()}
_FIELD_OF_FLAG = {flag.removeprefix("--"): field for field, flag in _FLAGS_OF_FIELDS.items()}
_DURATIONS = frozenset(field.short for field in FIELDS if field.kind is ValueKind.DURATION)
PLAIN_FLAGS = {field: flag for field, flag in _FLAGS_OF_FIELDS.items() if field.islower()}
_FIELDS = re.compile(rf'\b({"|".join(FLAGS)})\b(?:: "?([\w.]+)"?)?')


class WholeGpus(click.ParamType):
    """A whole number of GPUs; the error for a fraction names --fraction."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(value)
        except ValueError:
            self.fail(f"'{value}' is not a whole number; for a fraction of a GPU use --fraction 0.5", param, ctx)


class CommandVerb(Verb):
    """A verb that takes everything after the first `--` as the command, unparsed."""

    begins_with_name = False  # what people write first is a name, not the command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[COMMAND] = args[:at], args[at + 1 :]
            rest = super().parse_args(ctx, args)
            if extra := ctx.params.get("extra"):
                line = " ".join([*extra, *ctx.meta[COMMAND]])
                fact = f"'{extra[0]}' must come after `--`, together with the rest of the command"
                raise click.UsageError(f"{fact}, like: {ctx.command_path} {ctx.params['name']} -- {line}", ctx)
            return rest
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        typed = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            own = f"options of the command itself go after --, like: {ctx.command_path} ... -- COMMAND"
            raise click.UsageError(f"{unknown_option_message(error)}; {own}", ctx) from None
        if extra := ctx.params.get("extra"):
            # `submit train python train.py` begins with a name; `run train` and `submit python train.py` do not.
            first = ctx.params["name"]
            is_name = self.begins_with_name and not INTERPRETERS.fullmatch(first) and "/" not in first
            flags = _without_positions(typed, [first, *extra])
            words = [first, *flags, "--", *extra] if is_name else [*flags, "--", first, *extra]
            raise click.UsageError(f"the command must come after --, like: {ctx.command_path} {shlex.join(words)}", ctx)
        return rest


def _without_positions(typed: Sequence[str], positions: Sequence[str]) -> list[str]:
    """The flags of a line, with their values: all words but the positions, which come in order."""
    left, flags = list(positions), []
    for word in typed:
        if left and word == left[0]:
            left.pop(0)
        else:
            flags.append(word)
    return flags


def workload_options(is_background: bool) -> Callable[[Any], Any]:
    """Add the workload flags, the most used first; some make sense only for `submit`."""
    return add_options(*_WORK, *(_BACKGROUND if is_background else ()))


_option = click.option
_WORK: tuple[Callable[[Any], Any], ...] = (
    click.argument("name", required=False, default=""),
    click.argument("extra", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED),
    _option("--name", "name_option", default="", metavar="NAME", help="Name (default: made from the command)."),
    _option("-g", "--gpus", type=WholeGpus(), metavar="N", help="Whole GPUs for each pod."),
    _option("--fraction", metavar="PART", help="Fraction of a GPU, such as 0.5."),
    _option("--gpu-memory", metavar="SIZE", help="GPU memory: MiB, or 24Gi. With --fraction the larger need counts."),
    _option("--devices", type=int, metavar="N", help="Number of GPUs to take that fraction or memory of."),
    _option("--partition", metavar="MODE", help="Use GPU partitions: CPX, CPX+NPS4 or any; --gpus counts them."),
    _option("--shared", is_flag=True, help="Let others share its whole GPUs; it counts as half of each."),
    _option("--isolation", metavar="METHOD", help="How fractions are isolated: mps, cu-mask or time-slicing."),
    _option("--isolation-grade", metavar="GRADE", help="Weakest acceptable grade: memory-capped, cu-mask, mps, ..."),
    _option("--share-with", metavar="WHO", help="Who may share its GPU: anyone, nobody, or the same queue,user."),
    _option("--gpu-threads", type=int, metavar="PERCENT", help="Multiprocessors that a share by MPS may use."),
    _option("--model", "models", multiple=True, metavar="MODEL", help="Only this GPU model. Repeatable."),
    _option("--cpu", metavar="AMOUNT", help="CPUs for each pod, such as 4 or 500m."),
    _option("--memory", metavar="SIZE", help="Memory for each pod, such as 16Gi."),
    _option("--pods", type=int, metavar="N", help="Number of identical pods, which start together."),
    _option("--min-pods", type=int, metavar="N", help="Start once this many pods fit; add the rest later."),
    _option("-q", "--queue", metavar="QUEUE", shell_complete=complete_queue, help="Queue to submit to."),
    _option("-p", "--priority", type=int, metavar="N", help="Higher priorities start first within a queue."),
    _option("--no-preempt", is_flag=True, help="Never preempt it for other workloads."),
    _option("--type", "kind", type=click.Choice(TYPES), metavar="TYPE", help=f"Type: {one_of(TYPES)}."),
    *(
        _option(*filter(None, (field.flag_letter, field.flag)), field.name, help=field.help,
                **({"is_flag": True} if field.kind is ValueKind.BOOLEAN else {"metavar": field.metavar}))
        for field in FIELDS
        if field.flag
    ),
    _option("--retries", type=int, metavar="N", help="Restart it up to N times if it fails."),
    _option("--after", multiple=True, metavar="WORKLOAD", shell_complete=complete_workload,
            help="Start after this workload, or all tasks of this array, succeeded. Repeatable."),
    _option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label. Repeatable."),
    _option("-e", "--env", multiple=True, metavar="NAME[=VALUE]",
            help="Environment variable (default: its value here)."),
    _option("--secret-env", multiple=True, metavar="NAME[=VALUE]",
            help="Variable that is stored encrypted and never shown (default: its value here)."),
    _option("--secret-env-file", metavar="FILE", type=click.Path(dir_okay=False),
            help="File with secret variables, one NAME=VALUE a line."),
    _option("--node-selector", multiple=True, metavar="KEY=VALUE", help="Only nodes with this label. Repeatable."),
    _option("--workdir", metavar="DIR", help="Working folder of the command (default: the current one)."),
    _option("--user", metavar="NAME", help="User it belongs to (default: you)."),
)  # fmt: skip
_BACKGROUND: tuple[Callable[[Any], Any], ...] = (
    _option(
        "--array",
        metavar="RANGE",
        help="Submit one workload for each index, such as 0-9, 0-99:2 (every second) or 0-999%50 (50 at once).",
    ),
    _option("--hold", is_flag=True, help="Do not start it until `kaiwo release`."),
    _option("--image", metavar="IMAGE", help="Container image, on clusters that run containers."),
    _option("--simulate", metavar="LENGTH", help="Run no command; simulate a run time of this length."),
)


def make_form(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """The submission form, without the fields that were not given."""
    _refuse_empty(ctx, options)
    for field in FIELDS:
        if field.flag:
            check_unit(field.short, f"{field.flag} {options[field.name]}", options[field.name])
    command: list[str] = ctx.meta.get(COMMAND, [])
    name = _choose_name(options, command)
    namespace, _, base = full_name(name).partition("/")
    option_names = {field: flag.removeprefix("--").replace("-", "_") for field, flag in _FLAGS_OF_FIELDS.items()}
    return given_fields(
        {
            "name": base,
            "namespace": namespace if "/" in name else None,
            **{field: options.get(option) for field, option in option_names.items()},
            **{field.short: options[field.name] or None for field in FIELDS if field.flag},
            "user": resolve_user(options["user"] or "me"),
            "type": options["kind"],
            "preemptible": False if options["no_preempt"] else None,
            "gpuMemory": _parse_mib(options["gpu_memory"]),
            "gpuModels": list(options["models"]),
            "gpuSharing": options["shared"] or None,
            "nodeSelector": dict(parse_pair(text, "label of a node") for text in options["node_selector"]),
            "command": command,
            "env": dict(_variable(text) for text in options["env"]),
            "secretEnv": _secret_variables(options),
            "workdir": _workdir(options, command),
            "after": [full_name(part) for text in options["after"] for part in text.removesuffix(",").split(",")],
            "hold": options.get("hold") or None,
            "labels": dict(parse_pair(text, "label") for text in options["labels"]),
        }
    )


def field_of_flag(name: str) -> str:
    """The field of the submission form that a flag sets: `gpuMemory` for `gpu-memory`; other names as they are."""
    return _FIELD_OF_FLAG.get(name, name)


def check_unit(field: str, written: str, text: object) -> None:
    """Refuse a time without a unit: Slurm reads minutes, others seconds or hours. `written`: as the user wrote it."""
    if field in _DURATIONS and re.fullmatch(r"[0-9]+", str(text)):
        raise ConfigError(f"{written} has no unit; write {text}m for minutes or {text}h for hours")


def fields_to_flags(message: str, field: str = "") -> str:
    """The server's message with fields replaced by flags: `--fraction 0.5` for `gpuFraction: "0.5"`."""
    if field in PLAIN_FLAGS:  # also an English word: replaced only at the start, where it names the field
        message = message.replace(f": {field} ", f": {PLAIN_FLAGS[field]} ", 1)
    return _FIELDS.sub(lambda found: FLAGS[found[1]] + (f" {found[2]}" if found[2] else ""), message)


def make_name(command: Sequence[str]) -> str:
    """A new, readable name: `train-x7k2p` for `python train.py`."""
    stem = re.sub(r"\.[a-z]{1,4}$", "", os.path.basename(_script_or_program(command)).lower())
    stem = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:40].strip("-") or "work"
    return f"{stem}-{''.join(SUFFIX_LETTERS[byte % len(SUFFIX_LETTERS)] for byte in os.urandom(5))}"


def _refuse_empty(ctx: click.Context, options: dict[str, Any]) -> None:
    """Refuse options with an empty value, which mostly come from an unset shell variable."""
    for parameter in ctx.command.params:
        given = options.get(parameter.name or "")
        is_empty = given == "" or (isinstance(given, tuple) and "" in given)
        if is_empty and isinstance(parameter, click.Option) and is_on_command_line(ctx, parameter):
            raise ConfigError(f"{parameter.opts[-1]} is empty; give it a value or leave it out")


def is_on_command_line(ctx: click.Context, parameter: click.Parameter) -> bool:
    source = ctx.get_parameter_source(parameter.name or "")
    return source is not None and source.name == "COMMANDLINE"


def _script_or_program(command: Sequence[str]) -> str:
    """The program, or the script that an interpreter such as `python -u` or `torchrun -m` runs."""
    program = ""
    for word in command:
        if program and re.fullmatch(r"-[a-z]*c", word):
            break  # `sh -c '...'`: an inline script makes no name
        if word.startswith("-") or "=" in word:
            continue
        program = word
        if not INTERPRETERS.fullmatch(os.path.basename(word)):
            break
    return program


def _choose_name(options: dict[str, Any], command: Sequence[str]) -> str:
    given, option = options["name"], options["name_option"]
    if given and option and given != option:
        raise ConfigError(f"the name is '{given}' and also --name {option}; give one name")
    return given or option or make_name(command)


def _workdir(options: dict[str, Any], command: Sequence[str]) -> str | None:
    if options["workdir"]:
        return os.path.abspath(os.path.expanduser(options["workdir"]))
    # People expect `-- python train.py` to find the train.py in their current folder.
    return os.getcwd() if command and not options.get("image") else None


def _parse_mib(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(|Mi|MiB|Gi|GiB)", text)
    if not found:
        raise ConfigError(f"--gpu-memory '{text}' is not an amount of memory; write it like 24Gi, or in MiB like 16000")
    return int(found[1]) * (1024 if found[2].startswith("G") else 1)


def _variable(text: str) -> tuple[str, str]:
    if "=" in text:
        return parse_pair(text, "variable")
    if text not in os.environ:
        raise ConfigError(f"--env {text}: no such variable in your environment; write {text}=value")
    return text, os.environ[text]


def _secret_variables(options: dict[str, Any]) -> dict[str, str]:
    """From the file first; a flag overrides it. No message shows a value."""
    found: dict[str, str] = {}
    if path := options["secret_env_file"]:
        try:
            with open(path) as file:
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"cannot read {path} ({why}); check --secret-env-file") from None
        for number, line in enumerate(lines, 1):
            name, equals, value = line.partition("=")
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not equals or not name.strip():
                raise ConfigError(f"{path}, line {number} is not NAME=VALUE; correct it")
            found[name.strip().removeprefix("export ")] = value
    for text in options["secret_env"]:
        name, equals, value = text.partition("=")
        if equals and not name:
            raise ConfigError("--secret-env needs a name before the =; write NAME=VALUE, or NAME")
        if not equals and name not in os.environ:  # not shown: it may be the secret itself
            raise ConfigError("--secret-env names a variable that is not in your environment; write NAME=VALUE")
        found[name] = value if equals else os.environ[name]
    return found
