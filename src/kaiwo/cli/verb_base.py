"""Base classes of all verbs, with the --server and --home options that work anywhere on the line.

Never: imports the HTTP client until a verb connects; `kaiwo --help` does not need it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kaiwo.model.errors import ConfigError, KaiwoError, RefusedError

if TYPE_CHECKING:
    from kaiwo.cli.client.api_client import ApiClient
    from kaiwo.cli.client.find_server import ServerLocation


DEFAULT_TIMEOUT_S = 30.0


class Verb(click.Command):
    """A verb that talks to a Kaiwo server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += location_options()


class LocalVerb(click.Command):
    """A verb that needs no server: it works on the home folder of this machine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(home_option())


class VerbGroup(click.Group):
    """A verb with subcommands, such as `nodes drain`.

    `describe`: the command for one object, named when an object's name is given in place of a subcommand.
    """

    command_class = Verb

    def __init__(self, *args: Any, describe: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += location_options()
        self._describe = describe

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        is_command = args[0] in self.commands or args[0].startswith("-")
        if self._describe and not is_command and not ctx.resilient_parsing:
            from difflib import get_close_matches

            known = ", ".join(self.commands)
            near = get_close_matches(args[0], self.commands, 1, 0.7)
            meant = f"{ctx.command_path} {near[0]}" if near else f"{self._describe} {args[0]}"
            raise click.UsageError(f"'{args[0]}' is not one of {known}; did you mean: {meant}", ctx)
        return super().resolve_command(ctx, args)


def add_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decorator that adds these options and arguments; `--help` shows them in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def reason_option() -> Callable[[Any], Any]:
    return click.option("--reason", metavar="TEXT", default="", help="Your reason, for the audit.")


def reason_query(reason: str) -> dict[str, str]:
    return {"reason": reason} if reason else {}


def location_options() -> list[click.Parameter]:
    """--server and --home; their values are kept in the click context."""
    text = "Kaiwo server to use (default: the one running on this machine)."
    server = click.Option(["--server"], metavar="URL", expose_value=False, callback=_store_in_context, help=text)
    return [server, home_option()]


def home_option() -> click.Option:
    text = "Folder with Kaiwo's state (default: $KAIWO_HOME)."
    return click.Option(["--home"], metavar="DIR", expose_value=False, callback=_store_in_context, help=text)


def unknown_option_message(error: click.NoSuchOption) -> str:
    """`unknown option '--gps' (did you mean --gpus?)`."""
    near = f" (did you mean {' or '.join(error.possibilities)}?)" if error.possibilities else ""
    return f"unknown option '{error.option_name}'{near}"


def exit_code(error: Exception) -> int:
    if isinstance(error, ConfigError | click.UsageError | UnicodeEncodeError):
        return 2
    return 3 if isinstance(error, RefusedError) else 1


def run_for_each(names: Sequence[str], act: Callable[[str], None]) -> int:
    """Call `act` for every name. Of several names the failures are printed, and the first gives the exit code."""
    from kaiwo.cli.output import printing

    code = 0
    for name in names:
        try:
            act(name)
        except KaiwoError as error:
            if len(names) == 1:
                raise
            printing.hint(f"kaiwo: {error}")
            code = code or exit_code(error)
    return code


def server_location() -> "ServerLocation":
    from kaiwo.cli.client.find_server import ServerLocation

    given = click.get_current_context().meta
    return ServerLocation(given.get("kaiwo.server", ""), given.get("kaiwo.home", ""))


def connect_server(timeout_s: float | None = None) -> "ApiClient":
    from kaiwo.cli.client.find_server import connect

    return connect(server_location(), DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s)


def _store_in_context(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value:
        ctx.meta[f"kaiwo.{option.name}"] = value
