"""`kaiwo scheduler`: schedule the pods of a Kubernetes cluster."""

import errno
from collections.abc import Callable
from typing import Any

import click

from kaiwo.app.options import DEFAULT_HOST, DEFAULT_PORT, SchedulerOptions
from kaiwo.cli.server_options import server_options
from kaiwo.cli.verb_base import LocalVerb, server_location
from kaiwo.model.errors import ClusterError

Command = Callable[..., Any]


def kubernetes_options(command: Command) -> Command:
    """Options for webhooks, agents and the extender; their names are fields of SchedulerOptions."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _check_host_names(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not name or any(sign in name for sign in "/:@ "):
            raise click.BadParameter(f"'{name}' is not a host name; write it like kaiwo.kaiwo-system.svc")
    return names


def _check_account(_: click.Context, __: click.Parameter, account: str) -> str:
    if account and (account.count(":") != 1 or not all(account.split(":"))):
        raise click.BadParameter(f"'{account}' is not a service account; write it like kaiwo-system:kaiwo-agent")
    return account


def _check_config_map(_: click.Context, __: click.Parameter, name: str) -> str:
    if name and (name.count("/") != 1 or not all(name.split("/"))):
        raise click.BadParameter(f"'{name}' is not a ConfigMap; write it like kube-amd-gpu/config-manager-config")
    return name


_OPTIONS = (
    click.option(
        "--host-name",
        "host_names",
        metavar="NAME",
        multiple=True,
        callback=_check_host_names,
        help="Host name at which the API is reached, such as that of its Service. Repeatable.",
    ),
    click.option(
        "--webhooks",
        metavar="NAME",
        default="",
        help="Serve admission webhooks. NAME is that of their Service and Secret, in the Lease's namespace.",
    ),
    click.option(
        "--webhook-port",
        metavar="N",
        type=click.IntRange(0, 65535),
        default=9443,
        show_default=True,
        help="Port of the webhooks.",
    ),
    click.option(
        "--agents",
        metavar="NAME",
        default="",
        help="Serve node agents over TLS with the webhooks' certificate. NAME is the ConfigMap that gives them the CA.",
    ),
    click.option(
        "--agents-port",
        metavar="N",
        type=click.IntRange(0, 65535),
        default=7601,
        show_default=True,
        help="Port for node agents.",
    ),
    click.option(
        "--agent-account",
        metavar="NAMESPACE:NAME",
        default="",
        callback=_check_account,
        help="Service account of the node agents. Each may report only for the node its pod runs on.",
    ),
    click.option(
        "--may-name-users",
        metavar="NAME",
        multiple=True,
        help="User or group that may submit workloads for other users (kaiwo.ai/user). Repeatable.",
    ),
    click.option(
        "--dcm-config",
        metavar="NAMESPACE/NAME",
        default="",
        callback=_check_config_map,
        help="ConfigMap of AMD's Device Config Manager. Kaiwo adds the partition profiles it needs.",
    ),
    click.option(
        "--extender-port",
        metavar="N",
        type=click.IntRange(0, 65535),
        default=0,
        help="Serve as an extender of the kube-scheduler on this machine, on this loopback port (0: off).",
    ),
    click.option(
        "--extends",
        metavar="NAME",
        default="default-scheduler",
        show_default=True,
        help="Scheduler name of the pods that the extender places.",
    ),
)


@click.command(cls=LocalVerb)
@click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(dir_okay=False), help="Kubeconfig (default: $KUBECONFIG)."
)
@click.option("--context", metavar="NAME", help="Kubeconfig context (default: the current one).")
@click.option(
    "--scheduler-name",
    metavar="NAME",
    default="kaiwo-scheduler",
    show_default=True,
    help="Schedule pods with this schedulerName.",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of the API and the web page; 0 for any free port.",
)
@click.option("--host", metavar="ADDRESS", default=DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Let one of several replicas schedule while the others stand by. Without it, run only one replica.",
)
@click.option("--lease-name", metavar="NAME", help="Name of the leader's Lease (default: the scheduler name).")
@click.option(
    "--lease-namespace", metavar="NAME", help="Namespace of the Lease (default: that of the pod or the context)."
)
@server_options
@kubernetes_options
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
    """Schedule the pods of a Kubernetes cluster, from inside it or from anywhere that reaches its API server.

    Pods with `schedulerName: kaiwo-scheduler` are queued, placed on exact GPUs and bound. All other pods are counted
    but not touched. At start, the state is rebuilt from the cluster. Ctrl-C stops the scheduler; pods keep running.

    Several replicas may run: the one that holds the Lease schedules. If it dies, another takes over within 15 seconds.

    \b
    Examples:
      kaiwo scheduler --kubeconfig ~/.kube/config
      kaiwo scheduler --context staging --port 0
    """
    from kaiwo.app.scheduler import run

    options = SchedulerOptions(
        home=server_location().home_path,
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
