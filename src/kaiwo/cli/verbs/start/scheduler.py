"""Options for a scheduler that is part of a Kubernetes cluster: its names, its webhooks, its extender.

Also: `kaiwo scheduler`: schedule a Kubernetes cluster.
"""

import errno
from collections.abc import Callable
from typing import Any

import click

from kaiwo.app.options import DEFAULT_HOST, DEFAULT_PORT, SchedulerOptions
from kaiwo.cli.server_options import server_options
from kaiwo.cli.verb_base import LocalVerb, this_place
from kaiwo.model.errors import ClusterError

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


@click.command(cls=LocalVerb)
@click.option("--kubeconfig", metavar="FILE", type=click.Path(dir_okay=False), help="Instead of KUBECONFIG.")
@click.option("--context", metavar="NAME", help="A context of the kubeconfig, instead of its current one.")
@click.option(
    "--scheduler-name",
    metavar="NAME",
    default="kaiwo-scheduler",
    show_default=True,
    help="Schedule the pods that name this scheduler.",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Of the API and the page; 0: any free one.",
)
@click.option("--host", metavar="ADDRESS", default=DEFAULT_HOST, show_default=True, help="The address to listen on.")
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Of several replicas one decides, and the others stand by. Without it, run only one.",
)
@click.option("--lease-name", metavar="NAME", help="Of the Lease that the leader holds, instead of the scheduler name.")
@click.option(
    "--lease-namespace", metavar="NAME", help="Where the Lease is, instead of the namespace of the pod or the context."
)
@server_options
@cluster_options
def scheduler(
    kubeconfig: str | None,
    context: str | None,
    scheduler_name: str,
    port: int,
    host: str,
    leader_elect: bool,
    lease_name: str | None,
    lease_namespace: str | None,
    **served: Any,
) -> None:
    """Schedule a Kubernetes cluster, from inside it or from anywhere that reaches its API server.

    Pods that say `schedulerName: kaiwo-scheduler` are queued, placed with exact GPUs and bound; all others are counted
    and left alone. Everything is rebuilt from the cluster at the start. Ctrl-C stops it; running work goes on.

    Several may run: the one that holds the Lease decides, and when it dies another does within 15 seconds.

    \b
    Examples:
      kaiwo scheduler --kubeconfig ~/.kube/config
      kaiwo scheduler --context staging --port 0
    """
    from kaiwo.app.scheduler import run

    options = SchedulerOptions(
        home=this_place().home_path,
        host=host,
        port=port,
        kubeconfig=kubeconfig or "",
        context=context or "",
        scheduler=scheduler_name,
        leader_elect=leader_elect,
        lease_name=lease_name or "",
        lease_namespace=lease_namespace or "",
        **served,
    )
    try:
        run(options)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ClusterError(f"port {port} on {host} is taken; choose another, or any: --port 0") from error
        raise
