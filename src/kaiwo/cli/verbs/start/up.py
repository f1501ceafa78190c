"""`kaiwo up`: start the product on this machine."""

import errno

import click

from kaiwo.app.options import DEFAULT_HOST, DEFAULT_PORT, UpOptions
from kaiwo.cli.server_options import server_options
from kaiwo.cli.verb_base import LocalVerb, this_place
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.model.gpu import GPU_MODELS
from kaiwo.model.node import MOST_NODES


@click.command(cls=LocalVerb)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0: any free one.",
)
@click.option("--host", metavar="ADDRESS", default=DEFAULT_HOST, show_default=True, help="The address to listen on.")
@click.option("--demo", is_flag=True, help="Submit sample work, so that there is something to see.")
@click.option(
    "--speed", metavar="X", type=click.FloatRange(0.1, 100_000), default=1.0, help="Virtual seconds in a second."
)
@click.option("--nodes", metavar="N", type=click.IntRange(1, MOST_NODES), help="How many virtual nodes.")
@click.option(
    "--gpu-model",
    type=click.Choice(list(GPU_MODELS), case_sensitive=False),
    metavar="MODEL",
    help=f"Of the virtual nodes: {', '.join(GPU_MODELS)}.",
)
@click.option(
    "--cluster-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    help="A YAML file that describes the nodes.",
)
@click.option(
    "--root",
    metavar="DIR",
    default="/",
    type=click.Path(exists=True, file_okay=False),
    help="Where /sys and /dev of this machine are.",
)
@server_options
def up(
    port: int, host: str, demo: bool, speed: float, nodes: int | None, gpu_model: str | None, cluster_file: str | None,
    root: str, **served: str,
) -> None:  # fmt: skip
    """Start Kaiwo on this machine: the scheduler, its API and its web page.

    It uses the GPUs it finds; where there are none it makes 8 virtual nodes with 8 MI300X each. The state is kept, and
    `kaiwo up` goes on where it stopped. Ctrl-C stops it; running work goes on.

    \b
    Examples:
      kaiwo up --demo                        a living cluster to look at
      kaiwo up --nodes 100 --gpu-model H200  a large virtual one
      kaiwo up --port 0 --home /tmp/try      beside another one
    """
    if cluster_file and (nodes or gpu_model):
        raise ConfigError("--cluster-file describes the nodes already; leave --nodes and --gpu-model out")
    from kaiwo.app.up import run

    options = UpOptions(
        home=this_place().home_path,
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
