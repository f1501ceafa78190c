"""What `kaiwo up` and `kaiwo scheduler` share: options for the API, the policy and partition changes, and the start."""

import errno
from collections.abc import Callable
from typing import Any

import click

from kaiwo.app.options import DEFAULT_HOST, DEFAULT_PORT, SchedulerOptions, UpOptions
from kaiwo.cli.verb_base import add_options
from kaiwo.model.errors import ClusterError

PARTITIONS = ("off", "dry-run", "on")
LOG_LEVELS = ("debug", "info", "warning", "error")


def port_option(flag: str, text: str, default: int = DEFAULT_PORT) -> Callable[..., Any]:
    ports = click.IntRange(0, 65535)
    return click.option(flag, metavar="N", type=ports, default=default, show_default=default > 0, help=text)


def _file(name: str, text: str) -> Callable[..., Any]:
    return click.option(name, metavar="FILE", type=click.Path(dir_okay=False), help=text)


host_option = click.option(
    "--host", metavar="ADDRESS", default=DEFAULT_HOST, show_default=True, help="Address to listen on."
)
server_options = add_options(
    click.option(
        "--insecure-http", is_flag=True, help="Serve other machines without TLS: tokens can be read on the way."
    ),
    _file("--tls-cert", "Serve HTTPS with this certificate (PEM)."),
    _file("--tls-key", "Private key, if it is not in the certificate file."),
    _file("--agent-token-file", "File with the node agents' token (default: KAIWO_HOME/agent-token)."),
    _file("--policy", "YAML file with the scheduling policy; see docs/policy.md."),
    _file("--plugins", "YAML file that allows third-party plugins; see docs/plugins.md."),
    _file("--alerts", "YAML file with alert rules and channels; see docs/alerts.md."),
    _file("--exporters", "YAML file with exporters of AMD or NVIDIA to scrape; see docs/usage.md."),
    click.option("--traces", metavar="URL", help="Send OpenTelemetry traces there, by OTLP over HTTP."),
    click.option(
        "--log-level", type=click.Choice(LOG_LEVELS), metavar="|".join(LOG_LEVELS), help="Least level (default: info)."
    ),
    click.option("--audit-keep", metavar="LENGTH", help="Keep audit records this long (default: 730d)."),
    click.option("--audit-size", metavar="SIZE", help="Keep at most this much of the audit (default: 1G)."),
    click.option(
        "--partitions",
        type=click.Choice(PARTITIONS),
        metavar="|".join(PARTITIONS),
        help="Change GPU partition modes for waiting workloads? (default: as last set, initially dry-run)",
    ),
)


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the others keep the defaults of UpOptions and SchedulerOptions."""
    return {name: value for name, value in options.items() if value is not None}


def run_server(run: Callable[[Any], None], options: UpOptions | SchedulerOptions, any_port: str) -> None:
    try:
        run(options)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        taken = f"port {options.port} on {options.host} is taken"
        raise ClusterError(f"{taken}; choose another, or any: {any_port}") from error
