"""Base classes of all verbs, with the --server and --home options that work anywhere on the line.

Never: imports the HTTP client until a verb connects; `kaiwo --help` does not need it.
"""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kaiwo.cli.client.api_client import Server
    from kaiwo.cli.client.find_server import Place


DEFAULT_TIMEOUT_S = 30.0


class Verb(click.Command):
    """A verb that talks to a Kaiwo server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += place_options()


class LocalVerb(click.Command):
    """A verb that needs no server: it works on the home folder of this machine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(home_option())


class VerbGroup(click.Group):
    """A verb with subcommands, such as `nodes drain`."""

    command_class = Verb

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += place_options()


def place_options() -> list[click.Parameter]:
    """--server and --home; their values are kept in the click context."""
    text = "Kaiwo server to use (default: the one running on this machine)."
    server = click.Option(["--server"], metavar="URL", expose_value=False, callback=_remember, help=text)
    return [server, home_option()]


def home_option() -> click.Option:
    text = "Folder with Kaiwo's state (default: $KAIWO_HOME)."
    return click.Option(["--home"], metavar="DIR", expose_value=False, callback=_remember, help=text)


def unknown_option(error: click.NoSuchOption) -> str:
    """`unknown option '--gps' (did you mean --gpus?)`."""
    near = f" (did you mean {' or '.join(error.possibilities)}?)" if error.possibilities else ""
    return f"unknown option '{error.option_name}'{near}"


def this_place() -> "Place":
    """Where the person said to look."""
    from kaiwo.cli.client.find_server import Place

    said = click.get_current_context().meta
    return Place(said.get("kaiwo.server", ""), said.get("kaiwo.home", ""))


def this_server() -> "Server":
    """The Kaiwo to talk to."""
    from kaiwo.cli.client.find_server import connect

    return connect(this_place(), DEFAULT_TIMEOUT_S)


def _remember(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value:
        ctx.meta[f"kaiwo.{option.name}"] = value
