"""`kaiwo scheduler`: schedule a Kubernetes cluster."""

import errno
from typing import Any

import click

from kaiwo.cli.cluster_options import cluster_options
from kaiwo.cli.serving import server_options
from kaiwo.cli.verb import LocalVerb, this_place
from kaiwo.model.errors import ClusterError
from kaiwo.runtime.options import DEFAULT_HOST, DEFAULT_PORT, SchedulerOptions


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
    from kaiwo.api.scheduler import run

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
