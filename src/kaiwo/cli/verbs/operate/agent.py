"""`kaiwo agent`: report this machine's GPUs, and allocate them to pods for the kubelet."""

import os
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from kaiwo.cli.output import printing
from kaiwo.model.amounts import count
from kaiwo.model.errors import ConfigError

if TYPE_CHECKING:
    from kaiwo.devices.agent.options import CheckListener, DevicesOf

DEFAULT_KUBELET = "/var/lib/kubelet"


@click.command()
@click.option("--server", metavar="URL", envvar="KAIWO_SERVER", default="", help="Kaiwo server to report to (https).")
@click.option("--token-file", metavar="FILE", default="", help="File with the token (default: $KAIWO_TOKEN).")
@click.option("--ca-file", metavar="FILE", default="", help="CA certificates to trust (default: the system's).")
@click.option("--node", metavar="NAME", default="", help="Node name (default: $NODE_NAME or the host name).")
@click.option(
    "--root", metavar="DIR", default="/", type=click.Path(exists=True, file_okay=False), help="Root with /sys and /dev."
)
@click.option(
    "--metrics", metavar="[HOST:]PORT", default="", help="Serve /metrics and /healthz here; 0 for any free port."
)
@click.option("--kubelet", is_flag=True, help="Serve as the kubelet's device plugin instead of the vendor's plugin.")
@click.option("--kubelet-dir", metavar="DIR", default=DEFAULT_KUBELET, show_default=True, help="The kubelet's folder.")
@click.option("--api", metavar="URL", default="", help="Kubernetes API server (default: the cluster's own).")
@click.option("--state", "state_folder", metavar="DIR", default="", help="Folder for the records of allocated devices.")
@click.option(
    "--grant-keys",
    metavar="NAMESPACE/NAME",
    default="",
    help="ConfigMap with the keys that verify grants (with --kubelet).",
)
@click.option(
    "--scheduler-name",
    "schedulers",
    metavar="NAME",
    multiple=True,
    default=("kaiwo-scheduler",),
    show_default=True,
    help="Honour verified grants of pods with this schedulerName. Repeatable.",
)
@click.option("--dev-dir", "device_folder", metavar="DIR", default="", help="The machine's /dev (default: ROOT/dev).")
@click.option("--mps/--no-mps", default=True, help="Share NVIDIA GPUs with MPS where it is installed.  [default: mps]")
@click.option(
    "--processes/--no-processes",
    default=True,
    help="Say whose processes use a GPU; needs the machine's process ids.  [default: processes]",
)
@click.option("--once", is_flag=True, help="Print one sample as JSON and exit.")
def agent(node: str, metrics: str, kubelet: bool, kubelet_dir: str, once: bool, **options: Any) -> None:
    """Sample this machine's GPUs every second and report to Kaiwo, Prometheus and the kubelet.

    A report contains health, utilisation, memory, power, temperature, errors, and the usage of each process and
    partition. On Kubernetes the agent runs on every GPU node and gives each pod exactly the devices that Kaiwo's
    scheduler chose for it.

    \b
    Examples:
      kaiwo agent --once
      kaiwo agent --metrics 9410
      kaiwo agent --server https://kaiwo.example:8443 --token-file /etc/kaiwo/token --kubelet
    """
    from kaiwo.devices.agent.node_agent import NodeAgent, node_name
    from kaiwo.devices.agent.options import AgentOptions

    if once:
        _print_sample(options["root"])
        return
    if not (options["server"] or metrics or kubelet):
        raise ConfigError("nothing to report to; give --server, --metrics, --kubelet or --once")
    if kubelet and not (find_spec("grpc") and find_spec("google") and find_spec("google.protobuf")):
        raise ConfigError("--kubelet needs gRPC, which is not installed; run: pip install 'kaiwo[agent]'")
    if options["grant_keys"] and (options["grant_keys"].count("/") != 1 or not all(options["grant_keys"].split("/"))):
        raise ConfigError(
            f"--grant-keys '{options['grant_keys']}' is no ConfigMap; write it like kaiwo-system/kaiwo-grants"
        )
    if options["grant_keys"] and not find_spec("cryptography"):
        raise ConfigError("--grant-keys needs cryptography, which is not installed; run: pip install 'kaiwo[agent]'")
    host, port = _parse_address(metrics)
    settings = AgentOptions(
        node=node or node_name(),
        token=os.environ.get("KAIWO_TOKEN", ""),
        metrics_host=host,
        metrics_port=port,
        kubelet_folder=os.path.join(kubelet_dir, "device-plugins") if kubelet else "",
        pod_resources=os.path.join(kubelet_dir, "pod-resources", "kubelet.sock") if kubelet else "",
        **options,
    )
    running = NodeAgent(
        settings,
        printing.hint,
        _devices_of(settings.mps) if kubelet else None,
        check_listener=_listener_check(settings.token_file),
    )
    if kubelet and not options["grant_keys"]:
        printing.hint("grants are not verified: anyone who may annotate pods can choose devices; give --grant-keys")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.stop())
    if running.endpoint:
        printing.hint(f"serving metrics on port {running.endpoint.port}")
    printing.hint(f"sampling {count(len(running.inventory.gpus), 'GPU')} of {settings.node} every second")
    running.run()


def _listener_check(token_file: str) -> "CheckListener":
    """The check of the CLI itself: on this machine, the token goes to a program of a trusted user only."""
    from kaiwo.cli.client.find_server import trusted_users
    from kaiwo.cli.client.http_connection import ServerTrust, check_listener

    try:
        owner = os.stat(token_file).st_uid if token_file else None
    except OSError:
        owner = None  # the stream says what is wrong with it
    trust = ServerTrust(users=trusted_users(owner))
    return lambda connection: check_listener(connection, trust)


def _devices_of(may_use_mps: bool) -> "DevicesOf":
    from kaiwo.devices.sharing.prepare_grants import detect_isolation_support
    from kaiwo.runtime.nodes.local_node import devices_of

    platform = detect_isolation_support(True, may_use_mps)
    return lambda inventory: devices_of(inventory, platform)


def _print_sample(root: str) -> None:
    import time

    import msgspec

    from kaiwo.devices.discover import discover
    from kaiwo.devices.sampling.sampler import Sampler

    sampler = Sampler(discover(root, has_telemetry=False), root)
    printing.print_data(msgspec.to_builtins(sampler.sample(time.time())), "json")
    sampler.close()


def _parse_address(text: str) -> tuple[str, int]:
    """`9410` or `127.0.0.1:9410`; -1 for none."""
    if not text:
        return "", -1
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--metrics '{text}' is not an address; write a port such as 9410, or 127.0.0.1:9410")
    return host.strip("[]") or "0.0.0.0", int(port)
