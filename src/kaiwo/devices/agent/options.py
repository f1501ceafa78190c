"""The options of the node agent."""

from collections.abc import Callable

import msgspec

from kaiwo.devices.inventory import Inventory
from kaiwo.model.gpu import Gpu

# Turns an inventory into the devices that the scheduler knows; the runtime supplies it.
DevicesOf = Callable[[Inventory], tuple[Gpu, ...]]


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
    interval_s: float = 1.0
