"""The options of the node agent."""

import socket
from collections.abc import Callable

import msgspec

from kaiwo.devices.inventory import Inventory
from kaiwo.model.gpus.gpu import Gpu

# Turns an inventory into the devices that the scheduler knows; the runtime supplies it.
DevicesOf = Callable[[Inventory], tuple[Gpu, ...]]
# Raises if the program at the other end of a connection on this machine must not get the token; the CLI supplies it.
CheckListener = Callable[[socket.socket], None]


class AgentOptions(msgspec.Struct, frozen=True):
    node: str
    root: str = "/"
    server: str = ""  # empty: no report stream
    token_file: str = ""
    token: str = ""
    ca_file: str = ""
    metrics_host: str = "0.0.0.0"
    metrics_port: int = -1  # -1: no metrics
    kubelet_folder: str = ""  # empty: no device plugin
    pod_resources: str = ""
    api: str = ""
    account: str = ""
    state_folder: str = ""
    grant_keys: str = ""  # namespace/name of the ConfigMap with the public keys; empty: grants are not verified
    schedulers: tuple[str, ...] = ("kaiwo-scheduler",)  # whose pods get devices, where grants are verified
    device_folder: str = ""  # where the node's /dev is; empty: under the root
    mps: bool = True  # False: it has no right to start MPS daemons
    processes: bool = True  # False: it does not see the node's processes, so nobody knows whose they are
    interval_s: float = 1.0
    report_s: float = 10.0  # between two samples to the server that say nothing new about health
