"""Which devices a process sees.

In:    the devices that it holds, in the order of the node; the vendors of the node.   Out: the vendors' variables.
Never: leaves a vendor of the node unsaid: whoever holds none of its devices sees none.
"""

from collections.abc import Collection, Sequence

from kaiwo.devices.sharing.share_types import GpuDevice

NO_DEVICE = "-1"


def visible_order(devices: Sequence[GpuDevice]) -> list[GpuDevice]:
    """In the order in which the process counts them: masks and limits are written by that number."""
    return sorted(devices, key=lambda device: (device.vendor, _rank(device)))


def first_without_order(devices: Sequence[GpuDevice]) -> str:
    """The first that a process on the node itself could not be told to use; empty: all can be."""
    return next((device.id for device in devices if device.vendor == "amd" and device.order is None), "")


def visible_variables(devices: Sequence[GpuDevice], vendors: Collection[str]) -> dict[str, str]:
    """For a process on the node itself."""
    variables: dict[str, str] = {}
    seen = visible_order(devices)
    for vendor in sorted(set(vendors)):
        mine = [device for device in seen if device.vendor == vendor]
        if vendor == "nvidia":
            variables |= _nvidia(mine)
        elif vendor == "amd":
            variables |= _amd(mine)
    return variables


def _rank(device: GpuDevice) -> int:
    """The numbers of nodes and of devices grow together; one that has neither comes last."""
    return next((number for number in (device.node, device.order) if number is not None), 1 << 30)


def _nvidia(devices: list[GpuDevice]) -> dict[str, str]:
    # A UUID means the same beside MIG and behind an MPS daemon, where CUDA counts anew.
    names = [device.uuid or str(device.order) for device in devices]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(names) or NO_DEVICE}


def _amd(devices: list[GpuDevice]) -> dict[str, str]:
    # A number moves when another GPU of the machine is cut or lost, under a running script too; a UUID stays.
    names = [device.uuid or str(device.order) for device in devices]
    # Who cannot be told which are its own sees none: better than a neighbour's.
    listed = NO_DEVICE if first_without_order(devices) else ",".join(names) or NO_DEVICE
    # HIP counts within what ROCr leaves visible, so its list begins at 0 again.
    again = ",".join(map(str, range(len(devices)))) or NO_DEVICE
    return {"ROCR_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": again}
