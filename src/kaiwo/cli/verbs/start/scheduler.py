"""`kaiwo scheduler`: schedule the pods of a Kubernetes cluster."""

from typing import Any

import click

from kaiwo.app.options import SchedulerOptions
from kaiwo.cli.server_options import given_options, host_option, port_option, run_server, server_options
from kaiwo.cli.verb_base import LocalVerb, add_options, server_location


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


# Each option is a field of SchedulerOptions.
_option = click.option
_CLUSTER_OPTIONS = (
    _option("--kubeconfig", metavar="FILE", type=click.Path(dir_okay=False), help="Kubeconfig (default: $KUBECONFIG)."),
    _option("--context", metavar="NAME", help="Kubeconfig context (default: the current one)."),
    _option("--scheduler-name", "scheduler", metavar="NAME", default="kaiwo-scheduler", show_default=True,
            help="Schedule pods with this schedulerName."),
    port_option("--port", "Port of the API and the web page; 0 for any free port."),
    host_option,
    _option("--leader-elect/--no-leader-elect", default=True, show_default=True,
            help="Let one of several replicas schedule while the others stand by. Without it, run only one replica."),
    _option("--lease-name", metavar="NAME", help="Name of the leader's Lease (default: the scheduler name)."),
    _option("--lease-namespace", metavar="NAME",
            help="Namespace of the Lease (default: that of the pod or the context)."),
)  # fmt: skip
_SERVICE_OPTIONS = (
    _option("--host-name", "host_names", metavar="NAME", multiple=True, callback=_check_host_names,
            help="Host name at which the API is reached, such as that of its Service. Repeatable."),
    _option("--webhooks", metavar="NAME",
            help="Serve admission webhooks. NAME is that of their Service and Secret, in the Lease's namespace."),
    port_option("--webhook-port", "Port of the webhooks.", 9443),
    _option("--webhook-client-ca", metavar="FILE", type=click.Path(dir_okay=False),
            help="Answer only API servers with a client certificate of this authority."),
    _option("--webhook-client-name", "webhook_client_names", metavar="NAME", multiple=True,
            help="Common name that such a certificate must have (default: any). Repeatable."),
    _option("--agents", metavar="NAME",
            help="Serve node agents over TLS with the webhooks' certificate. NAME is the ConfigMap that gives them "
            "the CA."),
    port_option("--agents-port", "Port for node agents.", 7601),
    _option("--agent-account", metavar="NAMESPACE:NAME", callback=_check_account,
            help="Service account of the node agents. Each may report only for the node its pod runs on."),
    _option("--kubernetes-tokens", is_flag=True,
            help="Let people in with their Kubernetes tokens; RBAC on the group kaiwo.ai says what each may do."),
    _option("--admission-policies", "is_guarded", is_flag=True,
            help="The chart's admission policies are installed: only schedulers bind pods, and only they and kubelets "
            "write their status. Without it, Kaiwo checks that itself: the end of a pod counts after 12 s, nominations "
            "of other schedulers do not count, a GPU pod that somebody else bound is evicted, and kaiwo.ai/user counts "
            "only with --webhooks."),
    _option("--grant-keys", metavar="NAME",
            help="Sign grants, so that agents honour no others. NAME is the Secret with the keys and the ConfigMap "
            "with their public parts, in the Lease's namespace."),
    _option("--may-name-users", metavar="NAME", multiple=True,
            help="User or group that may submit workloads for other users (kaiwo.ai/user). Repeatable."),
    _option("--trusted-controller", "trusted_controllers", metavar="NAMESPACE:NAME", multiple=True,
            help="Service account of a controller whose pods may name the user of their owner. Repeatable."),
    _option("--dcm-config", metavar="NAMESPACE/NAME", callback=_check_config_map,
            help="ConfigMap of AMD's Device Config Manager. Kaiwo adds the partition profiles it needs."),
    port_option("--extender-port",
                "Serve as an extender of the kube-scheduler on this machine, on this loopback port (0: off). It needs "
                "the client certificate in KAIWO_HOME/extender.", 0),
    _option("--extends", metavar="NAME", default="default-scheduler", show_default=True,
            help="Scheduler name of the pods that the extender places."),
)  # fmt: skip


@click.command(cls=LocalVerb)
@add_options(*_CLUSTER_OPTIONS)
@server_options
@add_options(*_SERVICE_OPTIONS)
def scheduler(**options: Any) -> None:
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

    run_server(run, SchedulerOptions(home=server_location().home_path, **given_options(options)), "--port 0")
