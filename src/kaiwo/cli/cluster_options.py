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
        "--may-name-users",
        metavar="NAME",
        multiple=True,
        help="A user or group who brings work for others (kaiwo.ai/user); again for more.",
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
