"""Options of `kaiwo up` and `kaiwo scheduler`: TLS, the agents' token, the policy and partition changes."""

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
    _file("--tls-key", "Private key, if it is not in the certificate file."),
    _file("--agent-token-file", "File with the node agents' token (default: KAIWO_HOME/agent-token)."),
    _file("--policy", "YAML file with the scheduling policy; see docs/policy.md."),
    click.option(
        "--partitions",
        type=click.Choice(PARTITIONS),
        callback=lambda context, option, value: value or "",
        metavar="|".join(PARTITIONS),
        help="Change GPU partition modes for waiting workloads? (default: as last set, initially dry-run)",
    ),
)
