"""The environment variables that make only granted devices visible to a process.

Never: leaves out a vendor of the node: a process without devices of a vendor sees none of them.
"""

from collections.abc import Collection, Sequence

from kaiwo.devices.sharing.share_types import GpuDevice

NO_DEVICE = "-1"


def visible_order(devices: Sequence[GpuDevice]) -> list[GpuDevice]:
    """Devices in the order in which the process numbers them; masks and limits use these numbers."""
    return sorted(devices, key=lambda device: (device.vendor, _rank(device)))


def first_without_order(devices: Sequence[GpuDevice]) -> str:
    """The first AMD device without a known index, which can't be made visible; empty if there is none."""
    return next((device.id for device in devices if device.vendor == "amd" and device.order is None), "")


def visible_variables(devices: Sequence[GpuDevice], vendors: Collection[str]) -> dict[str, str]:
    """The variables for a process on the node, outside a container."""
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
    """Sort by KFD node or index, which grow together; devices with neither come last."""
    return next((number for number in (device.node, device.order) if number is not None), 1 << 30)


def _nvidia(devices: list[GpuDevice]) -> dict[str, str]:
    # A UUID is valid also with MIG and behind an MPS daemon, where CUDA numbers devices anew.
    names = [device.uuid or str(device.order) for device in devices]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(names) or NO_DEVICE}


def _amd(devices: list[GpuDevice]) -> dict[str, str]:
    # An index changes when another GPU is partitioned or lost, even while a script runs; a UUID does not.
    names = [device.uuid or str(device.order) for device in devices]
    # A process whose devices are not known for certain sees none, rather than another pod's.
    listed = NO_DEVICE if first_without_order(devices) else ",".join(names) or NO_DEVICE
    # HIP numbers what ROCr leaves visible, so its list starts at 0.
    again = ",".join(map(str, range(len(devices)))) or NO_DEVICE
    return {"ROCR_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": again}
