"""`kaiwo up`: start Kaiwo on this machine."""

from typing import Any

import click

from kaiwo.app.options import UpOptions
from kaiwo.cli.server_options import given_options, host_option, port_option, run_server, server_options
from kaiwo.cli.verb_base import LocalVerb, add_options, server_location
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.node import MAX_VIRTUAL_NODES

# Each option is a field of UpOptions.
_option = click.option
_OPTIONS = (
    port_option("--port", "Port to listen on; 0 for any free port."),
    host_option,
    _option("--demo", is_flag=True, help="Submit sample workloads."),
    _option("--speed", metavar="X", type=click.FloatRange(0.1, 100_000), default=1.0,
            help="Virtual seconds per real second."),
    _option("--nodes", metavar="N", type=click.IntRange(1, MAX_VIRTUAL_NODES), help="Number of virtual nodes."),
    _option("--gpu-model", type=click.Choice(list(GPU_MODELS), case_sensitive=False), metavar="MODEL",
            help=f"GPU model of the virtual nodes: {', '.join(GPU_MODELS)}."),
    _option("--cluster-file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True),
            help="YAML file that describes the nodes."),
    _option("--topology", metavar="KIND=VALUE", multiple=True,
            help="Where the network is described: ibnetdiscover=FILE, slurm=FILE, kaiwo=FILE, kueue=FILE, "
            "nccl=FILE, labels=KEY,KEY or preset=NAME. Files are read again when they change. May be repeated."),
    _option("--root", metavar="DIR", default="/", type=click.Path(exists=True, file_okay=False),
            help="Folder that contains this machine's /sys and /dev."),
    _option("--keep-for", metavar="TIME", help="Keep ended workloads and their logs this long (default: 30d)."),
    _option("--keep-free", metavar="SIZE",
            help="Start nothing when the disk has less room (default: 500M, or 5 % of a small disk)."),
    _option("--log-size", metavar="SIZE",
            help="Keep the first and the last half of a log that grows beyond this; 0: keep all (default: 500M)."),
    _option("--max-processes", metavar="N", type=click.IntRange(0),
            help="Processes and threads of one run; 0: any number (default: a quarter of what the machine can have)."),
    _option("--keep-size", metavar="SIZE",
            help="Keep at most this much of ended workloads; the oldest are removed first (default: 5G)."),
)  # fmt: skip


@click.command(cls=LocalVerb)
@add_options(*_OPTIONS)
@server_options
def up(**options: Any) -> None:
    """Start Kaiwo on this machine: the scheduler, its API and its web page.

    Kaiwo uses the GPUs of this machine. Without any, it creates 8 virtual nodes with 8 MI300X each. It keeps its state
    and continues where it stopped. Ctrl-C stops Kaiwo; running workloads continue.

    \b
    Examples:
      kaiwo up --demo                        with sample workloads
      kaiwo up --nodes 100 --gpu-model H200  a large virtual cluster
      kaiwo up --port 0 --home /tmp/try      next to another Kaiwo
    """
    given = given_options(options)
    if "cluster_file" in given and ("nodes" in given or "gpu_model" in given):
        raise ConfigError("--cluster-file already describes the nodes; leave out --nodes and --gpu-model")
    from kaiwo.app.up import run

    run_server(run, UpOptions(home=server_location().home_path, **given), "kaiwo up --port 0")
