"""Options of the verbs that serve: TLS, the agents' token, the policy, and whether partition modes change."""

from collections.abc import Callable
from typing import Any

import click

PARTITIONS = ("off", "dry-run", "on")


def server_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """--tls-cert, --tls-key, --agent-token-file, --policy and --partitions."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def _file(name: str, text: str) -> Callable[..., Any]:
    return click.option(name, metavar="FILE", default="", type=click.Path(dir_okay=False), help=text)


_OPTIONS = (
    _file("--tls-cert", "Serve HTTPS with this certificate (PEM)."),
    _file("--tls-key", "Its key, when it is in a file of its own."),
    _file("--agent-token-file", "The node agents' token, instead of KAIWO_HOME/agent-token."),
    _file("--policy", "A YAML file: actions, orders, past use; see docs/policy.md."),
    click.option(
        "--partitions",
        type=click.Choice(PARTITIONS),
        callback=lambda context, option, value: value or "",
        metavar="|".join(PARTITIONS),
        help="Whether GPUs change their partition mode for waiting work; else as it was, at first dry-run.",
    ),
)
