"""NVIDIA's Multi-Process Service: the variables of a client and of its daemon.

In:    shares of devices, and the daemon's folder.   Out: variables.
Never: starts anything; `mps_daemon` does.
"""

from collections.abc import Sequence

from kaiwo.devices.sharing.words import Held
from kaiwo.model.gpu import WHOLE_MILLI

PIPES, LOGS = "pipe", "log"


def client_variables(held: Sequence[Held], folder: str) -> dict[str, str]:
    """For a process that holds these shares, in the order in which it sees them."""
    milli = min(share.milli for share in held)  # the variable is one for all devices
    variables = {
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/{PIPES}",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/{LOGS}",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent(milli),
    }
    limits = [f"{index}={share.mib}M" for index, share in enumerate(held) if share.mib]
    if limits:
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    return variables


def daemon_variables(uuids: Sequence[str], folder: str) -> dict[str, str]:
    """For the control daemon of these GPUs."""
    return {
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/{PIPES}",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/{LOGS}",
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def percent(milli: int) -> str:
    """300 is `30`, 333 is `33.3`; never 0, which CUDA takes for no limit at all."""
    whole, tenth = divmod(max(1, min(milli, WHOLE_MILLI)), 10)
    return f"{whole}.{tenth}" if tenth else str(whole)
