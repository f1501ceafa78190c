"""Links between NVIDIA GPUs: NVLink, directly or through switches, and PCIe; and the fabric clique."""

from collections.abc import Mapping
from ctypes import byref
from typing import TYPE_CHECKING, Any

from kaiwo.devices.inventory import Link

if TYPE_CHECKING:
    from kaiwo.devices.nvidia.discover_gpus import NvmlReader

MOST_LINKS = 36
ACTIVE = 1
TO_GPU, TO_SWITCH = 0, 2
P2P_NVLINK, P2P_OK = 2, 0
SPEED_FIELD = 90  # of one link in MB/s
FABRIC_COMPLETED = 3
# NVML's distances on the PCI bus, as nvidia-smi names them.
BUS_LEVELS = {0: "internal", 10: "pix", 20: "pxb", 30: "phb", 40: "node", 50: "sys"}


def gpu_links(reader: "NvmlReader", name: str, handles: Mapping[str, Any]) -> tuple[Link, ...]:
    """Links from one GPU to all others: NVLink if there is one, else PCIe."""
    mine = handles.get(name)
    if mine is None or len(handles) < 2:
        return ()
    direct, switched = _count_links(reader, mine)
    speed = _speed(reader, mine)
    found = []
    for other, handle in sorted(handles.items()):
        if other == name:
            continue
        level = reader.query("nvmlDeviceGetTopologyCommonAncestor", mine, handle)
        count = direct.get(other, 0) or (switched if _is_nvlinked(reader, mine, handle) else 0)
        if count:
            found.append(Link(other, "nvlink", level, count=count, bandwidth_mb_s=count * speed if speed else None))
        elif level is not None:
            found.append(Link(other, "pcie", level))
    return tuple(found)


def fabric_clique(reader: "NvmlReader", handle: Any) -> str:
    """The fabric clique as cluster UUID and number; its GPUs share memory over NVLink, even across machines."""
    make = getattr(reader.nvml, "c_nvmlGpuFabricInfo_t", None)
    if make is None:
        return ""
    info = make()
    if reader.query("nvmlDeviceGetGpuFabricInfo", handle, byref(info)) is None:
        return ""
    cluster = bytes(info.clusterUuid)
    if info.state != FABRIC_COMPLETED or not any(cluster):
        return ""
    text = cluster.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}.{info.cliqueId}"


def pci_address(info: Any) -> str:
    """`00000000:1B:00.0` as 0000:1b:00.0."""
    domain, _, rest = decode_text(getattr(info, "busId", "")).lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if rest else ""
    except ValueError:
        return ""


def decode_text(value: Any) -> str:
    """Text; older versions of the package return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def _count_links(reader: "NvmlReader", handle: Any) -> tuple[dict[str, int], int]:
    """Active links to each GPU, and to switches."""
    direct: dict[str, int] = {}
    switched = 0
    for link in range(MOST_LINKS):
        state = reader.query("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        if state != ACTIVE:
            continue
        kind = reader.query("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        other = pci_address(reader.query("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
        if kind == TO_GPU and other:
            direct[other] = direct.get(other, 0) + 1
        elif kind == TO_SWITCH:
            switched += 1
    return direct, switched


def _is_nvlinked(reader: "NvmlReader", one: Any, other: Any) -> bool:
    status = reader.query("nvmlDeviceGetP2PStatus", one, other, P2P_NVLINK)
    return status is not None and status == P2P_OK


def _speed(reader: "NvmlReader", handle: Any) -> int:
    values = reader.query("nvmlDeviceGetFieldValues", handle, [SPEED_FIELD])
    if not values or values[0].nvmlReturn != 0:
        return 0
    return int(values[0].value.uiVal)
