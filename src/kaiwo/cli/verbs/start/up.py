"""`kaiwo up`: start Kaiwo on this machine."""

import errno

import click

from kaiwo.app.options import DEFAULT_HOST, DEFAULT_PORT, UpOptions
from kaiwo.cli.server_options import server_options
from kaiwo.cli.verb_base import LocalVerb, server_location
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.model.gpu_models import GPU_MODELS
from kaiwo.model.node import MOST_VIRTUAL_NODES


@click.command(cls=LocalVerb)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 for any free port.",
)
@click.option("--host", metavar="ADDRESS", default=DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option("--demo", is_flag=True, help="Submit sample workloads.")
@click.option(
    "--speed", metavar="X", type=click.FloatRange(0.1, 100_000), default=1.0, help="Virtual seconds per real second."
)
@click.option("--nodes", metavar="N", type=click.IntRange(1, MOST_VIRTUAL_NODES), help="Number of virtual nodes.")
@click.option(
    "--gpu-model",
    type=click.Choice(list(GPU_MODELS), case_sensitive=False),
    metavar="MODEL",
    help=f"GPU model of the virtual nodes: {', '.join(GPU_MODELS)}.",
)
@click.option(
    "--cluster-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    help="YAML file that describes the nodes.",
)
@click.option(
    "--root",
    metavar="DIR",
    default="/",
    type=click.Path(exists=True, file_okay=False),
    help="Folder that contains this machine's /sys and /dev.",
)
@server_options
def up(
    port: int, host: str, demo: bool, speed: float, nodes: int | None, gpu_model: str | None, cluster_file: str | None,
    root: str, **served: str,
) -> None:  # fmt: skip
    """Start Kaiwo on this machine: the scheduler, its API and its web page.

    Kaiwo uses the GPUs of this machine. Without any, it creates 8 virtual nodes with 8 MI300X each. It keeps its state
    and continues where it stopped. Ctrl-C stops Kaiwo; running workloads continue.

    \b
    Examples:
      kaiwo up --demo                        with sample workloads
      kaiwo up --nodes 100 --gpu-model H200  a large virtual cluster
      kaiwo up --port 0 --home /tmp/try      next to another Kaiwo
    """
    if cluster_file and (nodes or gpu_model):
        raise ConfigError("--cluster-file already describes the nodes; leave out --nodes and --gpu-model")
    from kaiwo.app.up import run

    options = UpOptions(
        home=server_location().home_path,
        host=host,
        port=port,
        demo=demo,
        speed=speed,
        nodes=nodes or 0,
        gpu_model=gpu_model or "",
        cluster_file=cluster_file or "",
        root=root,
        **served,
    )
    try:
        run(options)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ClusterError(f"port {port} on {host} is taken; choose another, or any: kaiwo up --port 0") from error
        raise
