"""`kaiwo agent`: report this machine's GPUs, and hand them out for the kubelet."""

import os
import signal
from typing import TYPE_CHECKING

import click

from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import count
from kaiwo.model.errors import ConfigError

if TYPE_CHECKING:
    from kaiwo.devices.agent.node_agent import DevicesOf

DEFAULT_KUBELET = "/var/lib/kubelet"


@click.command()
@click.option("--server", metavar="URL", envvar="KAIWO_SERVER", default="", help="The Kaiwo to report to, over https.")
@click.option("--token-file", metavar="FILE", default="", help="A file with the token, instead of KAIWO_TOKEN.")
@click.option("--ca-file", metavar="FILE", default="", help="Whom to trust, instead of this system's authorities.")
@click.option("--node", metavar="NAME", default="", help="This machine's name, instead of NODE_NAME or its own.")
@click.option(
    "--root", metavar="DIR", default="/", type=click.Path(exists=True, file_okay=False), help="Where /sys and /dev are."
)
@click.option(
    "--metrics", metavar="[HOST:]PORT", default="", help="Serve /metrics and /healthz there; port 0: any free one."
)
@click.option("--kubelet", is_flag=True, help="Be the kubelet's device plugin, in the vendor plugin's place.")
@click.option("--kubelet-dir", metavar="DIR", default=DEFAULT_KUBELET, show_default=True, help="The kubelet's folder.")
@click.option("--api", metavar="URL", default="", help="The Kubernetes API, instead of the cluster's own.")
@click.option("--state", metavar="DIR", default="", help="Where to keep what was handed out.")
@click.option("--once", is_flag=True, help="Print one look as JSON and stop.")
def agent(
    server: str, token_file: str, ca_file: str, node: str, root: str, metrics: str, kubelet: bool, kubelet_dir: str,
    api: str, state: str, once: bool,
) -> None:  # fmt: skip
    """Look at this machine's GPUs every second and tell Kaiwo, Prometheus and the kubelet.

    Health, utilisation, memory, power, heat, errors, and what each process and partition uses. On Kubernetes it runs
    on every GPU node and hands out exactly the devices that Kaiwo's scheduler wrote on a pod.

    \b
    Examples:
      kaiwo agent --once
      kaiwo agent --metrics 9410
      kaiwo agent --server https://kaiwo.example:8443 --token-file /etc/kaiwo/token --kubelet
    """
    from kaiwo.devices.agent.node_agent import Agent, AgentOptions, node_name

    if once:
        _look(root)
        return
    if not (server or metrics or kubelet):
        raise ConfigError("nobody would hear of it; give --server, --metrics or --kubelet, or look --once")
    if kubelet:
        _check_grpc()
    host, port = _address(metrics)
    options = AgentOptions(
        node=node or node_name(),
        root=root,
        server=server,
        token_file=token_file,
        token=os.environ.get("KAIWO_TOKEN", ""),
        ca_file=ca_file,
        metrics_host=host,
        metrics_port=port,
        kubelet_folder=os.path.join(kubelet_dir, "device-plugins") if kubelet else "",
        pod_resources=os.path.join(kubelet_dir, "pod-resources", "kubelet.sock") if kubelet else "",
        api=api,
        state_folder=state,
    )
    running = Agent(options, printing.hint, _devices_of() if kubelet else None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.stop())
    if running.endpoint:
        printing.hint(f"metrics are on port {running.endpoint.port}")
    printing.hint(f"looking at {count(len(running.inventory.gpus), 'GPU')} of {options.node} every second")
    running.run()


def _devices_of() -> "DevicesOf":
    from kaiwo.devices.sharing.machine_shares import this_platform
    from kaiwo.runtime.nodes.local_node import devices_of

    platform = this_platform(in_containers=True)
    return lambda inventory: devices_of(inventory, platform)


def _look(root: str) -> None:
    import time

    import msgspec

    from kaiwo.devices.discover import discover
    from kaiwo.devices.sampling import Sampler

    sampler = Sampler(discover(root, has_telemetry=False), root)
    printing.print_data(msgspec.to_builtins(sampler.sample(time.time())), "json")
    sampler.close()


def _address(text: str) -> tuple[str, int]:
    """`9410` or `127.0.0.1:9410`; -1 for none."""
    if not text:
        return "", -1
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--metrics is '{text}'; write a port such as 9410, or 127.0.0.1:9410")
    return host.strip("[]") or "0.0.0.0", int(port)


def _check_grpc() -> None:
    from importlib.util import find_spec

    if not (find_spec("grpc") and find_spec("google") and find_spec("google.protobuf")):
        raise ConfigError("the kubelet speaks gRPC, which is not installed: pip install 'kaiwo[agent]'")
