"""Options for a scheduler that is part of a Kubernetes cluster: its names, its webhooks, its extender."""

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def cluster_options(command: Command) -> Command:
    """They go into SchedulerOptions by these names."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _host_name(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not name or any(sign in name for sign in "/:@ "):
            raise click.BadParameter(f"'{name}' is no host name; write it as kaiwo.kaiwo-system.svc")
    return names


def _account(_: click.Context, __: click.Parameter, account: str) -> str:
    if account and (account.count(":") != 1 or not all(account.split(":"))):
        raise click.BadParameter(f"'{account}' is no service account; write it as kaiwo-system:kaiwo-agent")
    return account


def _config_map(_: click.Context, __: click.Parameter, place: str) -> str:
    if place and (place.count("/") != 1 or not all(place.split("/"))):
        raise click.BadParameter(f"'{place}' is no ConfigMap; write it as kube-amd-gpu/config-manager-config")
    return place


_OPTIONS = (
    click.option(
        "--host-name",
        "host_names",
        metavar="NAME",
        multiple=True,
        callback=_host_name,
        help="A name under which people reach the API, such as its Service's; again for more.",
    ),
    click.option(
        "--webhooks",
        metavar="NAME",
        default="",
        help="Serve admission webhooks: the name of their Service and Secret, in the namespace of the Lease.",
    ),
    click.option(
        "--webhook-port",
        metavar="N",
        type=click.IntRange(0, 65535),
        default=9443,
        show_default=True,
        help="Where the webhooks are served.",
    ),
    click.option(
        "--agents",
        metavar="NAME",
        default="",
        help="Serve node agents over TLS with the webhooks' certificates: the ConfigMap that tells them whom to trust.",
    ),
    click.option(
        "--agents-port",
        metavar="N",
        type=click.IntRange(0, 65535),
        default=7601,
        show_default=True,
        help="Where node agents are served.",
    ),
    click.option(
        "--agent-account",
        metavar="NAMESPACE:NAME",
        default="",
        callback=_account,
        help="The service account of node agents: each speaks for the node of its pod, and for no other.",
    ),
    click.option(
        "--may-name-users",
        metavar="NAME",
        multiple=True,
        help="A user or group who brings work for others (kaiwo.ai/user); again for more.",
    ),
    click.option(
        "--dcm-config",
        metavar="NAMESPACE/NAME",
        default="",
        callback=_config_map,
        help="The ConfigMap with the profiles of AMD's Device Config Manager: those that Kaiwo needs are added there.",
    ),
    click.option(
        "--extender-port",
        metavar="N",
        type=click.IntRange(0, 65535),
        default=0,
        help="Serve the kube-scheduler of this machine as its extender, on this port of loopback.",
    ),
    click.option(
        "--extends",
        metavar="NAME",
        default="default-scheduler",
        show_default=True,
        help="The scheduler name of the pods that the extender places.",
    ),
)
